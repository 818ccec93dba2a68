"""tell: what a student reads about a function, from a run on inputs that everybody may know.

The hidden inputs decide the points, and nothing else. What went wrong, where and why, is found out
in a second run, on the inputs of `mha-numpy check`. A function that never sees a hidden input in
that run cannot reveal one through it, whatever it does.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mha_numpy.teach.classroom.intake import Source
from mha_numpy.teach.classroom.wording import (
    FAILED,
    cause_of,
    error_of,
    findings_of,
    has_own_words,
)
from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.diagnosis.clues import which_are_wrong
from mha_numpy.teach.exercises.causes import AtHand
from mha_numpy.teach.exercises.crashes import explain_crash
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.judge import judge_answers, probe_inputs, runs_through
from mha_numpy.teach.exercises.mends import (
    NUMPY,
    Mended,
    attempting_source,
    find_mended,
)
from mha_numpy.teach.exercises.patches import find_patch, sets_what_is_right
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.exercises.stages import Evidence
from mha_numpy.teach.exercises.verdict import Verdict
from mha_numpy.teach.task import Inputs

MEMORY = ("memory", False)  # a stage that failed, on inputs that are the same for all
RunText = Callable[[str, Sequence[dict[str, Any]]], Run]  # of a source text, on some inputs
ELSEWHERE = (
    "it is right on our inputs, but not on the hidden ones; are the numbers or sizes of "
    "one example hard-coded in it?"
)


class Told(NamedTuple):
    """What a student reads."""

    findings: list[str]
    cause: str = ""
    mistakes: frozenset[str] = frozenset()  # that explain it on these inputs
    kind: str = ""  # of the slip, also where no known mistake explains it


def tell(
    verdict: Verdict, ended: str, exercise: Exercise, source: Source, variant: Variant, run: RunText
) -> Told:
    """Return what to tell about a function that is not right.

    `verdict` is that on the hidden inputs, from a run that ended for the reason `ended`, "" if all
    calls were made.
    """
    if exercise.kind == "tests" or has_own_words(ended):
        return Told(findings_of(verdict, error_of(ended)))
    memory = [FAILED["memory"] for one in verdict.stages if (one.name, one.passed) == MEMORY]
    with using(Variant(conventions=variant.conventions)):
        shown_run = run(source.text, probe_inputs(exercise))

        def judged(text: str) -> Verdict:
            again = run(text, probe_inputs(exercise))
            return judge_answers(exercise, again, is_explained=False)

        def attempt(inputs: Inputs) -> Run:
            return run(attempting_source(exercise.function_name), [inputs])

        def mend(number: int) -> Mended | None:
            text, is_right = source.text, lambda text: judged(NUMPY + text).passed

            def only_cancels(line: int) -> bool:
                return sets_what_is_right(exercise, text, line, attempt)

            return find_mended(exercise, text, number, attempt, is_right, only_cancels)

        def patch(number: int) -> Mended | None:
            return find_patch(exercise, source.text, number, attempt)

        def rerun() -> Run:
            return run(source.text, probe_inputs(exercise))

        shown = judge_answers(
            exercise, shown_run, at_hand=AtHand(mend=mend, patch=patch, rerun=rerun)
        )
        if shown.passed:
            return Told(memory or [ELSEWHERE])
        errors = (call.error for call in shown_run.calls if call.error)
        error, advice = next(errors, shown_run.ended), ""
        if error and not shown.mended:
            advice = explain_crash(
                shown, error, source.text, lambda text: runs_through(judged(text))
            )
        findings = findings_of(shown, error_of(error, source)) + memory
        cause = f"likely cause: {advice}" if advice else cause_of(shown)
        which = which_are_wrong(exercise.task, Evidence(exercise, shown_run).answers)
        if cause and which not in cause:
            cause = f"{cause}; {which}"
    return Told(findings, cause, shown.mistakes, shown.kind or _kind_of(cause))


def _kind_of(cause: str) -> str:
    """Return the first clause of a likely cause, which also names the slip in one of the arrays.

    Examples
    --------
    >>> _kind_of("likely cause: load: a wrong sign, in one step of a right function, gives exactly")
    'load: a wrong sign'
    """
    label, _, told = cause.partition(": ")
    return re.split(r", in |; |\. ", told)[0] if label == "likely cause" else ""
