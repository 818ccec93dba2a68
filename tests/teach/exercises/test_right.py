"""No false alarm: right solutions in many styles pass every stage, whatever their manner."""

import warnings
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from mha_numpy.checking.trees import children, leaves, replaced
from mha_numpy.teach.diagnosis import TASKS, make, right_answers
from mha_numpy.teach.exercises import EXERCISES, Limits, find_exercise, judge
from tests.sweeps import sweep
from tests.teach.exercises import unusual
from tests.teach.exercises.test_foreign import FILES, load, solutions


def all_solutions():
    """Return right solutions of each piece by their style: those of `foreign`, and unusual ones."""
    found = {piece: {} for piece in TASKS}
    for file in FILES:
        exercise = find_exercise(file.stem)
        for number, solution in enumerate(solutions(file), start=1):
            style = f"{number} {solution['style']}"
            found[exercise.task][style] = load(solution["code"], exercise.function_name)
    for name, function in vars(unusual).items():
        if pieces := [piece for piece in TASKS if name.startswith(f"{piece}_")]:
            found[max(pieces, key=len)][name] = function
    return found


SOLUTIONS = all_solutions()
PATIENT = Limits(seconds=60.0)
OF_PIECE = {e.task: e for e in reversed(EXERCISES) if e.kind != "tests"}
RNG = np.random.default_rng(0)
HAS_PARTS = [piece for piece in TASKS if children(right_answers(piece)[0]) is not None]


def assert_passes(piece, function):
    verdict = judge(OF_PIECE[piece], lambda: function, PATIENT)
    assert verdict.passed, f"\n{verdict}"


def cases():
    """Return the solutions as parameters; all but the first and the last of a piece are slow."""
    found = []
    for piece, styles in SOLUTIONS.items():
        for number, (style, solution) in enumerate(styles.items()):
            marks = pytest.mark.slow if 0 < number < len(styles) - 1 else ()
            found.append(pytest.param(piece, solution, id=f"{piece}-{style}", marks=marks))
    return found


@pytest.mark.parametrize(("piece", "solution"), cases())
def test_a_right_solution_passes(piece, solution):
    assert_passes(piece, solution)


def test_there_are_at_least_three_for_every_piece():
    for piece, styles in SOLUTIONS.items():
        assert len(styles) >= 3, piece


class OwnArray(np.ndarray):
    """An array of somebody's own class."""


def fortran_order_reversed_bytes(array):
    array = np.asarray(array)
    return np.array(array, array.dtype.newbyteorder(), order="F")


def read_only_view_of_wide_numbers_in_a_subclass(array):
    array = np.asarray(array)
    wide = array.astype(np.longdouble) if array.dtype.kind == "f" else array
    from_behind = np.flip(wide).repeat(2).reshape(*wide.shape, 2)[..., 1]
    view = np.asarray(np.flip(from_behind)).view(OwnArray)
    view.flags.writeable = False
    return view


def other_last_digits(array):
    """Return what sums in another order may give, something else at each call; zeros are -0."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array
    return np.where(array == 0, -0.0, array * (1 + 1e-13 * RNG.uniform(-1, 1, array.shape)))


# one of each kind of answer is always judged: an array, a mask, several arrays, params, numbers
ALWAYS = ("softmax", "make_mask", "attention_backward", "multi_head_backward", "cost_table")
EACH_PIECE = sweep(sorted(TASKS, key=lambda piece: piece not in ALWAYS), len(ALWAYS), every=3)


@pytest.mark.parametrize("piece", EACH_PIECE)
@pytest.mark.parametrize(
    "changed",
    [
        fortran_order_reversed_bytes,
        read_only_view_of_wide_numbers_in_a_subclass,
        other_last_digits,
    ],
)
def test_arrays_of_any_kind_pass(piece, changed):
    function = make(piece)

    def mine(*given):
        answer = function(*given)
        return replaced(answer, {name: changed(array) for name, array in leaves(answer).items()})

    assert_passes(piece, mine)


def lists(parts):
    return list(parts.values())


def dicts_in_another_order_and_spelling(parts):
    return {name.replace("_", "").upper(): parts[name] for name in reversed(parts)}


def named_tuples_in_another_order(parts):
    return namedtuple("Mine", reversed(parts))(**parts)


def rebuilt(answer, build):
    """Return an answer with each container built anew from its parts by name."""
    parts = children(answer)
    if parts is None:
        return answer
    return build({name: rebuilt(part, build) for name, part in parts.items()})


@pytest.mark.parametrize("piece", sweep(HAS_PARTS, 5))
@pytest.mark.parametrize(
    "build", [lists, dicts_in_another_order_and_spelling, named_tuples_in_another_order]
)
def test_containers_of_any_kind_pass(piece, build):
    function = make(piece)
    if build is lists and isinstance(right_answers(piece)[0], dict):
        build = dict  # a list has no names
    assert_passes(piece, lambda *given: rebuilt(function(*given), build))


def noisily(function, *given):
    print("at work")
    warnings.warn("this will change", DeprecationWarning, stacklevel=1)
    np.log(np.zeros(1)) * 0  # division by zero, then an invalid value
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *given).result()


@pytest.mark.parametrize("piece", EACH_PIECE)
def test_printing_warning_threads_and_objects_without_a_name_pass(piece):
    assert_passes(piece, partial(noisily, make(piece)))
