"""judge: run a student's function within limits, and say what is known about it.

`probe_inputs` says what to call it with, and `judge_answers` what came of the calls, so that
somebody else may make them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.exercises.causes import explain, is_bug_of
from mha_numpy.exercises.exercise import Exercise
from mha_numpy.exercises.judge_memory import FRUGAL, judge_memory
from mha_numpy.exercises.judge_tests import candidate_inputs, judge_tests
from mha_numpy.exercises.runner import Limits
from mha_numpy.exercises.sandbox import LIMITS, Run, run_calls
from mha_numpy.exercises.stages import Evidence, examine
from mha_numpy.exercises.verdict import Difference, Verdict, find_difference
from mha_numpy.mistakes import find_piece
from mha_numpy.mistakes.piece import Inputs


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
    verdict = judge_answers(exercise, run_calls(get_function, probe_inputs(exercise), limits))
    if exercise.piece == FRUGAL and verdict.passed:
        verdict.stages.append(judge_memory(get_function, limits))
    return verdict


def probe_inputs(exercise: Exercise) -> list[Inputs]:
    """Return the inputs of all calls that are made to judge a function, in their order.

    Parameters
    ----------
    exercise : Exercise

    Returns
    -------
    list of dict
        Each probe twice, then what its changes make of the first probe. Of an exercise that asks
        for tests, the functions to be tested, in an order that the variant in force shuffles.

    Examples
    --------
    >>> from mha_numpy.exercises import find_exercise
    >>> [list(inputs) for inputs in probe_inputs(find_exercise("merge-heads"))[3:]]
    [['heads'], ['heads']]
    """
    if exercise.kind == "tests":
        return candidate_inputs(exercise)
    piece = find_piece(exercise.piece)
    inputs = [probe for probe in piece.probes() for _ in range(2)]
    return inputs + [reaction.change(piece.probes()[0]) for reaction in piece.reactions]


def judge_answers(exercise: Exercise, run: Run) -> Verdict:
    """Examine what a function returned for `probe_inputs`, whoever made the calls.

    Parameters
    ----------
    exercise : Exercise
    run : Run
        Of `run_calls` or of `run_isolated`.

    Returns
    -------
    Verdict
        Without the stage "memory", for which a function has to be called once more.

    Examples
    --------
    >>> from mha_numpy.exercises import find_exercise
    >>> exercise = find_exercise("merge-heads")
    >>> mine = lambda heads: heads.reshape(len(heads), heads.shape[2], -1)
    >>> run = run_calls(lambda: mine, probe_inputs(exercise), LIMITS)
    >>> judge_answers(exercise, run).summary
    'heads are merged by reshape alone, which mixes the tokens'
    """
    if exercise.kind == "tests":
        return judge_tests(exercise, run)
    evidence = Evidence(exercise, run)
    with np.errstate(all="ignore"):  # a student's numbers may be anything
        stages = examine(evidence)
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
