"""grade_one: run and judge one student's submission."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from mha_numpy.errors import ConfigError, SandboxError
from mha_numpy.teach.classroom.attempts import attempts_of
from mha_numpy.teach.classroom.follow import PAIRS, follows
from mha_numpy.teach.classroom.intake import Source, take_in
from mha_numpy.teach.classroom.marks import Values, count_values, groups_of, points_of
from mha_numpy.teach.classroom.pieces import broken_line
from mha_numpy.teach.classroom.results import Function, Result, Task
from mha_numpy.teach.classroom.told import Told, tell
from mha_numpy.teach.classroom.wording import FAILED, error_of, findings_of, hint_of
from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.exercises.child.calls import load, measured
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.isolation import Sandbox
from mha_numpy.teach.exercises.judge import (
    FRUGAL,
    judge_answers,
    memory_inputs,
    memory_stage,
    probe_inputs,
)
from mha_numpy.teach.exercises.sandbox import Run, run_calls
from mha_numpy.teach.exercises.stages import NO_RETURN
from mha_numpy.teach.exercises.verdict import Verdict

MOST_CODE = 100_000  # characters of a function that are kept, to be compared with others
SLOTS = 5000  # users that runs may be: few, as a container may know no more than 65536
MISSPELT = "there is a function `{found}`, and none called `{name}`: is it the same?"
FOLLOWED = (FAILED["values"], FAILED["gradients"])
ABOUT_VALUES = (*FOLLOWED, "it breaks this rule")  # how findings begin that right values leave out
Caller = Callable[..., Run]  # of an exercise, a source and the inputs
NEARLY = "the numbers are right, but not to the precision of float64"


def grade_one(task: Task) -> Result:
    """Grade one student; only the task goes in, and nothing is written anywhere.

    A SandboxError says that a function could not be run, through no fault of the student.
    """
    *earlier, last = map(_grade_attempt, attempts_of(task))
    return replace(last, earlier=earlier)


def _grade_attempt(task: Task) -> Result:
    exercises = task.assignment.catalogue
    names = [exercise.function_name for exercise in exercises]
    stubs = [exercise.stub_source for exercise in exercises]
    sources, broken, runs, misspelt = take_in(task.files, names, stubs)
    variants = task.assignment.variant(task.student)
    by_id = {exercise.id: sources.get(exercise.function_name) for exercise in exercises}
    with _callers(task) as (hidden, shown):
        functions = []
        for one in exercises:
            variant = variants[one.id]
            with using(variant):
                functions.append(_grade_function(one, by_id[one.id], variant, task, hidden, shown))
        functions = [
            _not_there(function, exercise.function_name, misspelt, has_any=bool(sources))
            for function, exercise in zip(functions, exercises, strict=True)
        ]
        for number, function in enumerate(functions):
            with using(variants[function.exercise]):
                functions[number] = _followed(function, functions, by_id, task, hidden)
    codes = {name: source.text[:MOST_CODE] for name, source in sources.items()}
    return task.result(functions, *broken, fingerprint=runs, codes=codes)


def _grade_function(
    exercise: Exercise,
    source: Source | None,
    variant: Variant,
    task: Task,
    hidden: Caller,
    shown: Caller,
) -> Function:
    out_of = task.assignment.exercises[exercise.id]
    graded = Function(exercise.id, 0.0, out_of, "not there", hint=hint_of(exercise, variant))
    if source is None:
        return graded
    run = hidden(exercise, source, probe_inputs(exercise))
    graded = replace(graded, file=source.file, seconds=round(run.seconds, 2))
    try:
        # whether a backward follows depends on all that can be known of its forward
        is_thorough = any(PAIRS.get(one) == exercise.id for one in task.assignment.exercises)
        verdict = judge_answers(exercise, run, is_thorough=is_thorough)
        values = count_values(exercise, run, verdict)
    except Exception:  # an unforeseen answer costs only this function
        return replace(graded, state="failed", findings=["its answers could not be judged"])
    if verdict.is_unwritten:
        findings = [verdict.unwritten] if verdict.unwritten == NO_RETURN else []
        return replace(graded, state="not written", findings=findings)
    if exercise.task == FRUGAL and _has_run(verdict):
        held = shown(exercise, source, memory_inputs(), is_measured=True)
        verdict.stages.append(memory_stage(held))
    groups = groups_of(verdict.stages, values)
    points = points_of(values, groups, out_of, task.assignment.marks)
    if verdict.share is not None:
        points = round(out_of * verdict.share, 2)
    has_run = _has_run(verdict)
    graded = replace(
        graded,
        points=points,
        state="right" if verdict.passed else "wrong" if has_run or values.right else "failed",
        groups=groups,
        counted=values.told,
        hint="",
    )
    if verdict.passed:
        return graded

    def run_text(text: str, inputs: Sequence[dict[str, Any]]) -> Run:
        return shown(exercise, source._replace(text=text), inputs)

    try:
        told = tell(verdict, run.ended, exercise, source, variant, run_text)
    except SandboxError:
        raise
    except Exception:  # an unforeseen answer costs only the words
        told = Told(findings_of(verdict, error_of("")))
    findings = list(told.findings)
    if values.right and not has_run:
        findings = [text.replace("it does not run", "it does not always run") for text in findings]
    if values.are_right:
        findings = [text for text in findings if not text.startswith(ABOUT_VALUES)]
        findings += [NEARLY] * values.is_coarse
    hint = hint_of(exercise, variant) if broken_line(source.text) is None else ""
    mistakes = verdict.mistakes if is_thorough else verdict.mistakes or told.mistakes
    return replace(
        graded,
        findings=findings,
        cause=told.cause,
        mistakes=sorted(mistakes),
        kind=told.kind,
        hint=hint,
    )


def _not_there(
    function: Function, name: str, misspelt: Mapping[str, str], *, has_any: bool
) -> Function:
    """Return a function that is missing with what is known of it: no hint where all are missing."""
    if function.state != "not there":
        return function
    findings = [MISSPELT.format(name=name, found=misspelt[name])] if name in misspelt else []
    return replace(function, findings=findings, hint=function.hint * (has_any and not findings))


def _followed(
    function: Function,
    functions: list[Function],
    sources: dict[str, Source | None],
    task: Task,
    hidden: Caller,
) -> Function:
    """Return a backward with credit for its values if it fits the student's own wrong forward.

    The forward's mistake has to be a known one, because a forward that returns only zeros would
    have an easy backward.
    """
    forward = next((one for one in functions if one.exercise == PAIRS.get(function.exercise)), None)
    if forward is None or not forward.mistakes or not forward.groups.get("shape"):
        return function
    if function.state != "wrong" or not function.groups.get("shape") or function.groups["values"]:
        return function

    def call(exercise_id: str, inputs: Sequence[dict[str, Any]]) -> Run:
        source = sources[exercise_id]
        if source is None:
            raise KeyError(exercise_id)
        return hidden(task.assignment.find(exercise_id), source, inputs)

    if not follows(function.exercise, call):
        return function
    groups = {
        group: passed or group in ("values", "gradients")
        for group, passed in function.groups.items()
    }
    findings = [text for text in function.findings if text not in FOLLOWED]
    name = task.assignment.find(forward.exercise).function_name
    findings.append(f"it is right for your own {name}, so its values count as right")
    points = points_of(Values(1, 1), groups, function.out_of, task.assignment.marks)
    return replace(
        function, counted="", state="follows", groups=groups, findings=findings, points=points
    )


@contextmanager
def _callers(task: Task) -> Iterator[tuple[Caller, Caller]]:
    """Yield how to call functions with hidden inputs, and how with open ones: in two sandboxes."""
    slot = 2 * threading.get_native_id() % SLOTS  # of this machine
    hidden, shown = (Sandbox(task.limits, slot=slot + i) for i in range(2))
    with hidden, shown:
        yield partial(_call, task, hidden), partial(_call, task, shown)


def _call(
    task: Task,
    sandbox: Sandbox,
    exercise: Exercise,
    source: Source,
    inputs: Sequence[dict[str, Any]],
    *,
    is_measured: bool = False,
) -> Run:
    """Make the calls: in a sandbox, or only within limits."""
    name = exercise.function_name
    try:
        if task.is_isolated:
            return sandbox.run(source.text, source.file, name, inputs, is_measured=is_measured)
        wrap = measured if is_measured else lambda function: function
        return run_calls(lambda: wrap(load(source.text, source.file, name)), inputs, task.limits)
    except (ConfigError, SandboxError, OSError) as error:
        raise SandboxError(
            f"{name} of {task.student} could not be run and has no points yet: {error}; grade "
            "again: what has been graded is kept"
        ) from error


def _has_run(verdict: Verdict) -> bool:
    return all(stage.passed for stage in verdict.stages if stage.name == "runs")
