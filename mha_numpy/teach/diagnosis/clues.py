"""Clues: facts about wrong numbers that neither a known mistake nor a small edit gives.

The clues say which are wrong, on which inputs, where in an array, and by how much.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mha_numpy.checking.differences import differing, largest_of
from mha_numpy.checking.patterns import find_pattern
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.conventions import variant_in_force
from mha_numpy.teach.diagnosis.fingerprints import (
    Answer,
    agreeing_arrays,
    right_answers,
)
from mha_numpy.teach.diagnosis.relations import PLACES
from mha_numpy.teach.diagnosis.sizes import indices_of, sizes_of
from mha_numpy.teach.diagnosis.wrong import Wrong, arrays_of, have_shapes, names_of, wrong_of
from mha_numpy.teach.task import Inputs, Task
from mha_numpy.teach.tasks import TASKS, find_task

CLOSE = 1e-6  # of the largest number
LARGE = 10  # numbers are far above 1
MOST = 3  # things that inputs share, to be told


def find_clues(task: str, answers: Sequence[Answer], step: str = "") -> list[str]:
    """Return sentences about wrong answers; none if there is nothing to say.

    Where it is known which step of the student's is wrong, that is told instead of the inputs and
    of the results that are wrong.

    Parameters
    ----------
    task : str
        A key of ``TASKS``.
    answers : sequence
        One for each probe; None where the function failed.
    step : str
        What `find_step` returned.

    Returns
    -------
    list of str
        The results, the inputs, and the places in the arrays where they are wrong.

    Examples
    --------
    >>> rights = right_answers("attention_backward")
    >>> wrong = [right._replace(d_v=right.d_v.round(1)) for right in rights]
    >>> find_clues("attention_backward", wrong)
    ['d_q and d_k are right and d_v is wrong']
    """
    right, wrong = right_answers(task), wrong_of(task, answers)
    clues = [
        step or which_are_wrong(task, answers),
        _of_laws(find_task(task), answers),
        "" if step else _of_inputs(task, TASKS[task].probes(), answers, right),
    ]
    clues += map(_of_array, wrong)
    return [clue for clue in clues if clue]


def which_are_wrong(task: str, answers: Sequence[Answer]) -> str:
    """Say which arrays are right and which are wrong; "" if all are."""
    bad = [one.name for one in wrong_of(task, answers)]
    good = [name for name in names_of(task) if name not in bad]
    if not good or not bad:
        return ""
    verbs = "are" if len(good) > 1 else "is", "are" if len(bad) > 1 else "is"
    return f"{listed(good)} {verbs[0]} right and {listed(bad)} {verbs[1]} wrong"


def listed(names: Sequence[str]) -> str:
    """Return names as a list: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _of_laws(task: Task, answers: Sequence[Answer]) -> str:
    for number, (inputs, answer) in enumerate(zip(task.probes(), answers, strict=True)):
        expected = leaves(right_answers(task.name)[number])
        mine = [array for _, array in arrays_of(task.name, answer, number)]
        if not have_shapes(mine, list(map(np.asarray, expected.values()))):
            continue
        arrays = dict(zip(expected, mine, strict=True))
        for law in task.laws:
            if np.abs(law.residual(inputs, arrays)).max(initial=0) > CLOSE:
                return f"your answer breaks a rule that every right answer obeys: {law.statement}"
    return ""


def _of_inputs(
    task: str, probes: Sequence[Inputs], answers: Sequence[Answer], right: Sequence[Answer]
) -> str:
    """Say what the inputs with wrong answers have, and those with right ones do not.

    Where several things go together on our inputs, all are said: only one of them may matter.
    """
    is_right = [
        all(agreeing_arrays(a, b)) for a, b in zip(answers, right, strict=True) if a is not None
    ]
    if len(is_right) != len(probes) or all(is_right) or not any(is_right):
        return ""
    conditions = _properties(probes) | _sizes(task, probes)
    for way, meant in (("right", is_right), ("wrong", [not one for one in is_right])):
        found = [words for words, has in conditions.items() if has == meant]
        if 0 < len(found) <= MOST:
            first, *others = found
            too = f", which are also those where {' and '.join(others)}" if others else ""
            return f"of our inputs, yours is {way} only on those where {first}{too}"
    return ""


def _properties(probes: Sequence[Inputs]) -> dict[str, list[bool]]:
    return {
        words.format(name): [has(probe[name]) for probe in probes]
        for words, has in PROPERTIES.items()
        for name in probes[0]
    }


def shared_by(probes: Sequence[Inputs], are_meant: Sequence[bool]) -> str:
    """Say what the selected inputs have, and the others do not."""
    if len(are_meant) != len(probes) or all(are_meant) or not any(are_meant):
        return ""
    found = _properties(probes).items()
    return next((words for words, has in found if has == list(are_meant)), "")


def rows_of_all(cells: Array, inputs: Inputs) -> str:
    """Name the kind of rows that contains all of these cells of an answer, if one does."""
    for name, value in inputs.items():
        is_array = isinstance(value, np.ndarray) and value.ndim > 1
        if is_array and value.dtype == bool:
            rows = ~value.any(axis=-1)
            is_usual = name == "mask" and not variant_in_force().conventions
            words = f"rows {'that see nothing' if is_usual else f'of {name} without a True'}"
        elif is_array and _is_large(value) and np.isfinite(value).all():
            sizes = np.abs(value).max(axis=-1)
            largest = value.flat[np.abs(value).argmax()]
            way = "as low as" if largest < 0 else "as high as"
            rows, words = sizes > LARGE, f"rows with numbers {way} {largest:.4g} in {name}"
        else:
            continue
        hit = cells if cells.ndim == rows.ndim else cells.any(axis=-1)
        is_fit = rows.ndim <= hit.ndim and all(
            mine in (1, size) for mine, size in zip(rows.shape[::-1], hit.shape[::-1], strict=False)
        )
        if is_fit and not (hit & ~rows).any():
            return words
    return ""


def _is_large(value: Any) -> bool:
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return is_float and LARGE < np.abs(value).max(initial=0) < np.inf


def _hides_a_row(value: Any) -> bool:
    is_mask = isinstance(value, np.ndarray) and value.dtype == bool and value.ndim > 1
    return is_mask and not value.any(axis=-1).all()


PROPERTIES: dict[str, Callable[[Any], bool]] = {  # that inputs with wrong answers may share
    "a row of {} has no True": _hides_a_row,
    "{} is None": lambda value: value is None,
    "{} is not None": lambda value: value is not None,
    "{} has numbers far above 1": _is_large,
}


def _of_array(wrong: Wrong) -> str:
    """Say where an array is wrong, or by how much: on all inputs alike, or else on the first."""
    pairs = [pair for pair in zip(wrong.mine, wrong.right, strict=True) if have_shapes(*zip(pair))]
    each = [(*pair, differing(*pair, largest_of(pair[1]), CLOSE)) for pair in pairs]
    each = [(mine, right, where) for mine, right, where in each if where.any()]
    # zeros say something if some numbers are right, and others are not 0
    if all(not mine[where].any() and not where.all() and mine.dtype != bool
           for mine, _, where in each):  # fmt: skip
        return f"{wrong.name}: every wrong number is 0" if each else ""
    for clue in (_of_places, _of_pattern):
        found = [clue(wrong, *one) for one in each]
        told = next((words for words in found[0] if all(words in other for other in found)), "")
        if told:
            return f"{wrong.name}: {told}"
    return ""


def _of_pattern(wrong: Wrong, mine: Array, right: Array, _: Array) -> list[str]:
    found = find_pattern(mine, right)
    for axis in range(right.ndim):  # in the words of the task
        one, several = indices_of(wrong.task, wrong.name, right.ndim, axis)
        found = found.replace(f"each index of axis {axis} ", f"each {one} ")
        found = found.replace(f"the indices of axis {axis} ", f"the {several} ")
    return [] if not found or found.startswith("all of them at") else [found]


def _of_places(wrong: Wrong, _: Array, right: Array, where: Array) -> list[str]:
    """Say which indices of an axis are wrong, in all ways that fit."""
    told = []
    for axis, size in enumerate(where.shape):
        is_wrong = where.any(axis=tuple(i for i in range(where.ndim) if i != axis))
        if size < 2 or is_wrong.all():
            continue
        one, several = indices_of(wrong.task, wrong.name, right.ndim, axis)
        for words, place in PLACES.items():
            is_plain = "block" not in words and "group" not in words
            if is_plain and np.array_equal(is_wrong, place(size, {})):
                told.append(f"wrong only in {words.format(one=one, all=several)}")
    return told


def _sizes(task: str, probes: Sequence[Inputs]) -> dict[str, list[bool]]:
    """Return what may be said of the sizes of inputs, and where it is true."""
    sizes = [sizes_of(task, probe) for probe in probes]
    names = [name for name in sizes[0] if all(name in one for one in sizes)]
    tests = {f"{name} = {number}": [one[name] == number for one in sizes]
             for number in (1, 0) for name in names}  # fmt: skip
    for one, other in combinations(names, 2):
        pairs = [(each[one], each[other]) for each in sizes]
        if kind_of(one) == kind_of(other):
            tests[f"{one} = {other}"] = [a == b for a, b in pairs]
            tests[f"{one} is larger than {other}"] = [a > b for a, b in pairs]
            tests[f"{one} is smaller than {other}"] = [a < b for a, b in pairs]
    if {"T_k", "block"} <= set(names):
        tests["block divides T_k"] = [each["T_k"] % each["block"] == 0 for each in sizes]
        tests["there is only one block"] = [each["T_k"] <= each["block"] for each in sizes]
    return tests


def kind_of(name: str) -> str:
    """Return the kind of a size: only sizes of one kind are compared."""
    return name.strip("()")[0]
