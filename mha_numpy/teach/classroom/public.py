"""Checks for notebooks: public_check before handing in, assert_right for other graders."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mha_numpy.tables import show
from mha_numpy.teach.classroom.wording import error_of, findings_of
from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.exercise import Exercise, exercise_of
from mha_numpy.teach.exercises.judge import (
    advice_on,
    check_callable,
    judge,
    judge_answers,
    probe_inputs,
)
from mha_numpy.teach.exercises.sandbox import LIMITS, run_calls
from mha_numpy.teach.exercises.stages import Evidence, Stage, examine
from mha_numpy.teach.exercises.verdict import stages_table
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Example

PUBLIC = ("runs", "type and dtype", "shape", "inputs left alone")  # stages


def public_check(
    exercise_id: str,
    function: Callable[..., Any],
    conventions: Sequence[str] = (),
    *,
    example: str | None = None,
) -> None:
    """Show whether a function runs, its shapes are right, and one example is right.

    Submissions are graded with different numbers, but with these conventions.

    Parameters
    ----------
    exercise_id : str
    function : callable
    conventions : sequence of str
        The names of the conventions of the student's variant.
    example : str, optional
        Of an exercise that your teacher wrote: a call and its result, from the handout.

    Examples
    --------
    >>> public_check("merge-heads", lambda heads: heads)  # doctest: +ELLIPSIS
    merge-heads, public checks: not right
    ...
    """
    check_callable(function)
    stages = public_stages(exercise_id, function, conventions, example)
    is_right = all(stage.passed for stage in stages)
    state = "right" if is_right else "not right"
    show(stages_table(f"{exercise_id}, public checks: {state}", stages))
    if not stages[0].passed:
        exercise, variant = _asked(exercise_id, conventions, example)
        with using(variant):
            told = advice_on(exercise, lambda: function)
        print(f"likely cause: {told}" * bool(told))


def assert_right(exercise_id: str, function: Callable[..., Any], seed: int | None = None) -> None:
    """Do nothing if a function is right, else raise AssertionError: a test for other graders.

    Parameters
    ----------
    exercise_id : str
    function : callable
    seed : int, optional
        The seed of the full check's numbers. Without it, check the same as `public_check`: shapes,
        and one example.

    Raises
    ------
    AssertionError
        If the function is not right. The text says why, but shows no number of the full check.

    Examples
    --------
    >>> def mine(heads):
    ...     return heads.swapaxes(1, 2).reshape(len(heads), heads.shape[2], -1)
    >>> assert_right("merge-heads", mine, seed=1)
    >>> assert_right("merge-heads", lambda heads: heads, seed=1)
    Traceback (most recent call last):
    AssertionError: merge-heads: a shape is not the one in the task
    """
    exercise = find_exercise(exercise_id)
    check_callable(function)
    if seed is None:
        stages = public_stages(exercise_id, function)
        wrong = [f"{stage.name}: {stage.finding}" for stage in stages if not stage.passed][:1]
    else:
        with using(Variant(seed)):
            verdict = judge(exercise, lambda: function)
        error = next((stage.finding for stage in verdict.stages if stage.passed is False), "")
        wrong = findings_of(verdict, error_of(error))
        wrong = [verdict.unwritten] if verdict.is_unwritten else wrong
    if wrong:
        raise AssertionError(f"{exercise_id}: {'; '.join(wrong)}")


def _asked(
    exercise_id: str, conventions: Sequence[str], example: str | None
) -> tuple[Exercise, Variant]:
    """Return an exercise, which is known by its example if a teacher wrote it, and its variant."""
    own = None if example is None else Example(example)
    exercise = find_exercise(exercise_id) if own is None else exercise_of(load_own(own))
    return exercise, Variant(conventions=tuple(conventions), own=own)


def public_stages(
    exercise_id: str,
    function: Callable[..., Any],
    conventions: Sequence[str] = (),
    example: str | None = None,
) -> list[Stage]:
    """Return the stages that a student may see, the example last."""
    exercise, variant = _asked(exercise_id, conventions, example)
    with using(variant):
        run = run_calls(lambda: function, probe_inputs(exercise), LIMITS)
        if exercise.kind == "tests":  # it has no example, and its functions are in this package
            return judge_answers(exercise, run).stages
        evidence = Evidence(exercise, run)
        with np.errstate(all="ignore"):
            stages = [stage for stage in examine(evidence) if stage.name in PUBLIC]
            return [*stages, _example(evidence)]


def _example(evidence: Evidence) -> Stage:
    """Compare the answers to the first input, and to no other."""
    compared = evidence.comparisons[0] if evidence.comparisons else None
    if compared is None or evidence.is_unwritten:
        return Stage("example", None, "")
    wrong = next((row for row in compared.rows if not row.passed), None)
    found = "as expected, on the first input" if wrong is None else f"{wrong.name}: {wrong.finding}"
    return Stage("example", wrong is None, found)
