"""judge_tests: score a student's tests by how many of the known mistakes they catch."""

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any

import numpy as np

from mha_numpy.teach import conventions, turns
from mha_numpy.teach.diagnosis import BANK, find_task, fingerprints, make
from mha_numpy.teach.diagnosis.fingerprints import attempt, fits
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.exercises.stages import UNWRITTEN, Stage
from mha_numpy.teach.exercises.verdict import Verdict
from mha_numpy.teach.task import Inputs

ENOUGH = 0.9  # of the mistakes
RIGHT = 3  # of the functions make no mistake, so that a guess hardly ever finds them all
CALLS = 200  # of each function
LARGEST = (4, 8, 32, 64)  # axes of what it is called with
NOT_CALLED = Call(None, "", (), 0.0)


def candidates(exercise: Exercise) -> list[str]:
    """Return the mistake of each function to test, "" for a right one, in a shuffled order.

    The seed of the variant in force shuffles them, so the order is secret if the seed is.
    """
    names = [*fingerprints(exercise.task), *[""] * RIGHT]
    order = np.random.default_rng(conventions.variant_in_force().seed).permutation(len(names))
    return [names[place] for place in order]


def candidate_inputs(exercise: Exercise) -> list[dict[str, Any]]:
    """Return the arguments of a student's tests: the functions, one for each call."""
    functions = [make(exercise.task, [name] if name else []) for name in candidates(exercise)]
    return [{"attention": bounded(function)} for function in functions]


def bounded(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return an attention that takes only small arrays, and only a limited number of times.

    It may run in the grader on foreign arguments, so it checks them before it computes anything.
    """
    calls = 0

    def attend(q: Any, k: Any, v: Any, mask: Any, softcap: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > CALLS:
            raise ValueError(f"attention: expected at most {CALLS} calls of each one")
        arrays = [np.asarray(array) for array in (q, k, v, mask)]
        for name, array in zip(("q", "k", "v", "mask"), arrays, strict=True):
            kinds = "b" if name == "mask" else "fiu"
            is_small = array.ndim == len(LARGEST) and np.less_equal(array.shape, LARGEST).all()
            if array.dtype.kind not in kinds or not is_small:
                what = "bool" if name == "mask" else "numbers"
                raise ValueError(
                    f"{name}: expected {what} of shape {LARGEST} or smaller; got {array.shape} of "
                    f"{array.dtype}"
                )
        return attention(*arrays, None if softcap is None else float(softcap))

    return attend


def judge_tests(exercise: Exercise, run: Run) -> Verdict:
    """Count which of the functions a student's tests accept, of a run with `candidate_inputs`.

    Tests are right if they accept right functions and catch nine of ten mistakes.
    """
    names = candidates(exercise)
    calls = [*run.calls, *[NOT_CALLED] * len(names)][: len(names)]
    if run.calls and all(call.answer is ... for call in run.calls):
        stages = [Stage("runs", False, UNWRITTEN)]
        return Verdict(exercise, stages, run.printed, unwritten=UNWRITTEN)
    pairs = list(zip(names, calls, strict=True))
    rejected = [call for name, call in pairs if not name and _fails(call)]
    slipped = [name for name, call in pairs if name and not _fails(call)]
    count = len(names) - RIGHT
    caught, required = count - len(slipped), ceil(ENOUGH * count)
    is_counted = not (rejected or run.ended)
    stages = [
        Stage("runs", not run.ended, run.ended or f"{len(run.calls)} times"),
        Stage(
            "accepts a right function",
            not rejected if rejected or not run.ended else None,
            rejected[0].error if rejected else "",
        ),
        Stage(
            "catches mistakes",
            caught >= required if is_counted else None,
            f"{caught} of {count}; {required} are required" if is_counted else "",
        ),
    ]
    remarks = {}
    if slipped and is_counted:
        slipped.sort(key=list(BANK).index)
        gaps = gaps_of(exercise.task, slipped)
        remarks["slipped through"] = "".join(f"\n- {_told(*gap)}" for gap in gaps.items())
    share = min(1.0, caught / required) if is_counted else 0.0
    return Verdict(exercise, stages, run.printed, remarks, share=share)


def _told(needs: tuple[str, ...], mistakes: list[str]) -> str:
    """Return a gap in words, with one of its mistakes."""
    where = f"with {' and '.join(needs)}" if needs else "on plain inputs"
    if len(mistakes) == 1:
        return f"1 mistake that shows {where}: {BANK[mistakes[0]].verdict}"
    count = f"{len(mistakes)} mistakes that show {where}"
    return f"{count}, such as: {BANK[mistakes[0]].verdict}"


def _fails(call: Call) -> bool:
    """Return whether a test raised an error; NotImplementedError counts too."""
    return bool(call.error) or call.answer is ...


def _with_small_scores(inputs: Inputs) -> Inputs:
    """Return inputs with no number above 1 in q and k."""
    return {**inputs, **{name: inputs[name] / np.abs(inputs[name]).max() for name in "qk"}}


def _sequences(inputs: Inputs) -> list[Inputs]:
    return [
        {n: x[[i]] if isinstance(x, np.ndarray) else x for n, x in inputs.items()}
        for i in range(len(inputs["q"]))
    ]


# what a test may forget, and what is left of inputs without it
WITHOUT: dict[str, Callable[[Inputs], list[Inputs]]] = {
    "a mask that hides keys": lambda i: [{**i, "mask": np.ones_like(i["mask"])}],
    "a query that sees nothing": lambda i: [
        {**i, "mask": i["mask"] | ~i["mask"].any(axis=-1, keepdims=True)}
    ],
    "a softcap": lambda i: [{**i, "softcap": None}],
    "large scores": lambda i: [_with_small_scores(i)],
    "more query heads than key/value heads": lambda i: [{**i, "q": i["q"][:, : i["k"].shape[1]]}],
    "more than one sequence": _sequences,
}


def gaps_of(piece: str, mistakes: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Group mistakes by what a test needs, beyond plain inputs, to see them.

    The piece takes the arguments of `masked_attention`. The needs of a group are keys of
    ``WITHOUT``, none if its mistakes show on plain inputs. The largest group comes first.

    Mistakes that show on all probes of the piece need not have anything in common. So the features
    that a test may forget are removed from the probes one by one, as long as the mistake still
    shows. The features that are left are enough to see it.

    Examples
    --------
    >>> gaps_of("masked_attention", ["scale missing", "softcap ignored", "softcap by clipping"])
    {('a softcap',): ['softcap ignored', 'softcap by clipping'], (): ['scale missing']}
    """
    own, right = conventions.conventions_of(piece), make(piece)
    probes = [turns.take_inputs(piece, own, probe) for probe in find_task(piece).probes()]

    def shows(wrong: Callable[..., Any], usual: list[Inputs]) -> bool:
        """Return whether a function gives other arrays than the right one, or fails."""
        inputs = [turns.give_inputs(piece, own, one) for one in usual]
        answers = [attempt(wrong, one) for one in inputs]
        expected = [right(**one) for one in inputs]
        return any(answer is None for answer in answers) or not fits(answers, expected)

    found: dict[tuple[str, ...], list[str]] = {}
    for name in mistakes:
        wrong, inputs, needs = make(piece, [name]), probes, []
        for thing, without in WITHOUT.items():
            left = [one for given in inputs for one in without(given)]
            if shows(wrong, left):
                inputs = left
            else:
                needs.append(thing)
        found.setdefault(tuple(needs), []).append(name)
    return dict(sorted(found.items(), key=lambda gap: -len(gap[1])))
