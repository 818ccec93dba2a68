"""judge: run a student's function within limits, and say what is known about it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.exercises.causes import explain, is_bug_of
from mha_numpy.exercises.exercise import Exercise
from mha_numpy.exercises.judge_memory import FRUGAL, judge_memory
from mha_numpy.exercises.judge_tests import judge_tests
from mha_numpy.exercises.runner import Limits
from mha_numpy.exercises.sandbox import LIMITS, run_calls
from mha_numpy.exercises.stages import Evidence, examine
from mha_numpy.exercises.verdict import Difference, Verdict, find_difference
from mha_numpy.mistakes import PIECES


def judge(
    exercise: Exercise, get_function: Callable[[], Callable[..., Any]], limits: Limits = LIMITS
) -> Verdict:
    """Run a function on the probes of an exercise, in a child process, and examine the answers.

    Parameters
    ----------
    exercise : Exercise
    get_function : callable
        Called in the child process; returns the function: it may import a student's file.
    limits : Limits

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from mha_numpy.exercises import find_exercise
    >>> def mine(d_weights, weights):
    ...     return weights * (d_weights - (weights * d_weights).sum(axis=-2, keepdims=True))
    >>> verdict = judge(find_exercise("softmax-backward"), lambda: mine)
    >>> verdict.passed, verdict.summary
    (False, "softmax's sum is taken over the queries")
    """
    if exercise.kind == "tests":
        return judge_tests(exercise, get_function, limits)
    piece = PIECES[exercise.piece]
    inputs = [probe for probe in piece.probes() for _ in range(2)]
    inputs += [reaction.change(piece.probes()[0]) for reaction in piece.reactions]
    run = run_calls(get_function, inputs, limits)
    evidence = Evidence(exercise, run)
    with np.errstate(all="ignore"):  # a student's numbers may be anything
        stages = examine(evidence)
    if exercise.piece == FRUGAL and all(stage.passed for stage in stages):
        stages.append(judge_memory(get_function, limits))
    if evidence.is_unwritten or all(stage.passed for stage in stages):
        unwritten = stages[0].finding if evidence.is_unwritten else ""
        return Verdict(exercise, stages, {}, frozenset(), None, run.printed, unwritten)
    with np.errstate(all="ignore"):
        mistakes, remarks = explain(evidence, stages)
    unwritten = "the bug is still there" if is_bug_of(exercise, mistakes) else ""
    difference = _difference(evidence)
    return Verdict(exercise, stages, remarks, mistakes, difference, run.printed, unwritten)


def _difference(evidence: Evidence) -> Difference | None:
    """Return the first array whose numbers differ, if any can be drawn."""
    for number, compared in enumerate(evidence.comparisons):
        if compared is None:
            continue
        arrays = matched(evidence.first[number].answer, evidence.expected[number], evidence.name)
        for row, (name, actual, expected) in zip(compared.rows, arrays, strict=True):
            if row.trouble in ("values", "finite"):
                which = f"{name}, input {number + 1}" if len(evidence.probes) > 1 else name
                return find_difference(which, actual, expected)
    return None
