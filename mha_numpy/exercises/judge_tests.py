"""judge_tests: score a student's tests by how many of the known mistakes they catch."""

from collections.abc import Callable
from math import ceil
from typing import Any

from mha_numpy.exercises.exercise import Exercise
from mha_numpy.exercises.runner import Call, Limits
from mha_numpy.exercises.sandbox import LIMITS, run_calls
from mha_numpy.exercises.stages import Stage
from mha_numpy.exercises.verdict import Verdict
from mha_numpy.mistakes import BANK, fingerprints, make

ENOUGH = 0.9  # of the mistakes
TOLD = 5  # of those that slip through
NOT_CALLED = Call(None, "", (), 0.0)


def judge_tests(
    exercise: Exercise, get_function: Callable[[], Callable[..., Any]], limits: Limits = LIMITS
) -> Verdict:
    """Hand a right function to a student's tests, then each known mistake, and count.

    Parameters
    ----------
    exercise : Exercise
        One that asks for tests of its piece.
    get_function : callable
        Called in the child process; returns the function that tests what it is given.
    limits : Limits

    Returns
    -------
    Verdict
        Right if the tests accept the right function and catch nine of ten mistakes.
    """
    mistakes = list(fingerprints(exercise.piece))
    wrong = [make(exercise.piece, [name]) for name in mistakes]
    functions = [make(exercise.piece), *wrong, make(exercise.piece)]
    run = run_calls(get_function, [{"function": function} for function in functions], limits)
    calls = run.calls + [NOT_CALLED] * (len(functions) - len(run.calls))
    first, *others, last = calls
    if first.answer is ...:
        words = "not written yet"
        stages = [Stage("runs", False, words)]
        return Verdict(exercise, stages, {}, frozenset(), None, run.printed, words)
    slipped = [name for name, call in zip(mistakes, others, strict=True) if not _fails(call)]
    caught, count = len(mistakes) - len(slipped), len(mistakes)
    accepts = not (_fails(first) or _fails(last))
    error = first.error or last.error
    is_counted = accepts and not run.ended
    stages = [
        Stage("runs", not run.ended, run.ended or f"{len(run.calls)} times"),
        Stage("accepts a right function", accepts if run.calls else None, error),
        Stage(
            "catches mistakes",
            caught >= ENOUGH * count if is_counted else None,
            f"{caught} of {count}; {ceil(ENOUGH * count)} are required" if is_counted else "",
        ),
    ]
    remarks = {}
    if slipped and stages[-1].passed is not None:
        told = [BANK[name].verdict for name in slipped[:TOLD]]
        more = [f"and {len(slipped) - TOLD} more"] if len(slipped) > TOLD else []
        remarks["slipped through"] = "".join(f"\n- {line}" for line in [*told, *more])
    return Verdict(exercise, stages, remarks, frozenset(), None, run.printed)


def _fails(call: Call) -> bool:
    """Return whether a test raised an error; NotImplementedError is one, too."""
    return bool(call.error) or call.answer is ...
