"""public_check: what a student may ask before handing in: shapes, and one example."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mha_numpy.errors import ConfigError, describe
from mha_numpy.exercises import find_exercise
from mha_numpy.exercises.judge import judge_answers, probe_inputs
from mha_numpy.exercises.sandbox import LIMITS, run_calls
from mha_numpy.exercises.stages import Evidence, Stage, examine
from mha_numpy.mistakes import Variant, using
from mha_numpy.tables import Table, show

PUBLIC = ("runs", "type and dtype", "shape", "inputs left alone")  # stages


def public_check(
    exercise_id: str, function: Callable[..., Any], conventions: Sequence[str] = ()
) -> None:
    """Show whether a function runs, whether its shapes are right, and whether one example is.

    The numbers are not those that a submission is graded with; the conventions are.

    Parameters
    ----------
    exercise_id : str
    function : callable
    conventions : sequence of str
        The names of the conventions of the student's variant.

    Raises
    ------
    ConfigError
        There is no such exercise or convention, or `function` cannot be called.

    Examples
    --------
    >>> public_check("merge-heads", lambda heads: heads)  # doctest: +ELLIPSIS
    merge-heads, public checks: not right
    ...
    """
    if not callable(function):
        raise ConfigError(f"function: expected a function; got {describe(function)}")
    stages = public_stages(exercise_id, function, conventions)
    is_right = all(stage.passed for stage in stages)
    marks = {True: "ok", False: "FAIL", None: "-"}
    rows = [[marks[stage.passed], stage.name, stage.finding] for stage in stages]
    bad = frozenset(number for number, stage in enumerate(stages) if stage.passed is False)
    title = f"{exercise_id}, public checks: {'right' if is_right else 'not right'}"
    show(Table(title, ["", "stage", "finding"], rows, bad))


def public_stages(
    exercise_id: str, function: Callable[..., Any], conventions: Sequence[str] = ()
) -> list[Stage]:
    """Return the stages that a student may see, the example last."""
    exercise = find_exercise(exercise_id)
    with using(Variant(conventions=tuple(conventions))):
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
