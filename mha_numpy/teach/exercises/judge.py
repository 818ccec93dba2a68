"""judge: run a student's function within limits, and return a verdict on it.

`probe_inputs` returns the inputs to call it with, and `judge_answers` examines the answers, so the
calls can be made elsewhere.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.errors import ConfigError, describe
from mha_numpy.teach.conventions import conventions_of, variant_in_force
from mha_numpy.teach.diagnosis import find_task
from mha_numpy.teach.diagnosis.bank import FLOAT32
from mha_numpy.teach.diagnosis.variables import traced
from mha_numpy.teach.exercises.causes import (
    CAUSE,
    NO_CAUSES,
    ONLY_ANSWERS,
    AtHand,
    explain,
    failing_probe,
    is_bug_of,
)
from mha_numpy.teach.exercises.child.calls import measured
from mha_numpy.teach.exercises.child.limits import Limits, in_bytes
from mha_numpy.teach.exercises.crashes import explain_crash
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.judge_tests import candidate_inputs, judge_tests
from mha_numpy.teach.exercises.mends import (
    Mended,
    attempting,
    find_mended,
    remade,
    source_of,
)
from mha_numpy.teach.exercises.patches import find_patch, sets_what_is_right
from mha_numpy.teach.exercises.sandbox import LIMITS, Run, can_fork, run_calls
from mha_numpy.teach.exercises.stages import Evidence, Stage, examine
from mha_numpy.teach.exercises.verdict import LIBRARY, Difference, Verdict, find_difference
from mha_numpy.teach.own import Example
from mha_numpy.teach.task import Inputs
from mha_numpy.teach.turns import give_inputs

TRACED = 3.0  # seconds for calls whose every step is noted
TOLD = 3  # names of this package that a verdict shows
FRUGAL = "online_attention"  # the piece that may hold no more than blocks
T_Q, T_K, WIDTH, BLOCK = 32, 2048, 4, 64  # of what its memory is measured with


def check_callable(function: object) -> None:
    """Raise a ConfigError unless it can be called."""
    if not callable(function):
        raise ConfigError(f"function: expected a function; got {describe(function)}")


def judge(
    exercise: Exercise,
    get_function: Callable[[], Callable[..., Any]],
    limits: Limits = LIMITS,
    *,
    strict: bool = False,
) -> Verdict:
    """Run a function on the probes of an exercise, in a child process, and examine the answers.

    Parameters
    ----------
    exercise : Exercise
    get_function : callable
        Called in the child process; returns the function, and may import a student's file.
    limits : Limits
    strict : bool
        Whether a stage "own work" rejects a function that calls this package. Without it there is
        only a remark.

    Returns
    -------
    Verdict

    Notes
    -----
    A function may call parts that compute no answer: NamedTuples, `mha_numpy.checking` and
    `mha_numpy.show`. Calls made while a file is loaded do not count, and neither do other threads.

    Examples
    --------
    >>> from mha_numpy.teach.exercises import find_exercise
    >>> def mine(d_weights, weights):
    ...     return weights * (d_weights - (weights * d_weights).sum(axis=-2, keepdims=True))
    >>> verdict = judge(find_exercise("softmax-backward"), lambda: mine)
    >>> verdict.passed, verdict.summary
    (False, 'the row sum of softmax is taken over the queries')
    """
    start = perf_counter()

    def rerun() -> Run:
        return run_calls(get_function, probe_inputs(exercise), limits)

    run = rerun()

    def trace() -> list[Any]:
        probes, short = find_task(exercise.task).probes(), min(limits.seconds, TRACED)
        again = run_calls(lambda: traced(get_function()), probes, limits._replace(seconds=short))
        return [call.answer if isinstance(call.answer, dict) else None for call in again.calls]

    def attempted() -> Callable[..., Any]:
        function = get_function()
        return attempting(function.__name__, {"np": np, **function.__globals__})

    def attempt(inputs: Inputs) -> Run:
        return run_calls(attempted, [inputs], limits)

    def is_right(text: str) -> bool:
        return _judged_again(exercise, get_function, text, limits).passed

    @cache  # it takes a process
    def text_of() -> str:
        return _text_of(get_function, limits)

    def mend(number: int) -> Mended | None:
        text = text_of()

        def only_cancels(line: int) -> bool:
            return sets_what_is_right(exercise, text, line, attempt)

        return (
            find_mended(exercise, text, number, attempt, is_right, only_cancels) if text else None
        )

    def patch(number: int) -> Mended | None:
        return find_patch(exercise, text_of(), number, attempt) if text_of() else None

    verdict = judge_answers(exercise, run, at_hand=AtHand(trace, mend, patch, rerun))
    if advice := _advice(verdict, run, get_function, limits):
        if CAUSE in verdict.remarks and not verdict.mended:
            verdict.remarks["also"] = verdict.remarks[CAUSE]
        verdict.remarks["also" if verdict.mended else CAUSE] = advice
    if exercise.task == FRUGAL and verdict.passed:
        held = run_calls(lambda: measured(get_function()), memory_inputs(), limits)
        verdict.stages.append(memory_stage(held))
    if strict:  # a stage in place of the remark
        found = verdict.remarks.pop(LIBRARY, "")
        passed = False if found else verdict.stages[0].passed or None
        finding = f"{found}; write it yourself" if found else "" if passed else "not checked"
        verdict.stages.append(Stage("own work", passed, finding))
    return replace(verdict, seconds=round(perf_counter() - start, 3))


def advice_on(
    exercise: Exercise, get_function: Callable[[], Callable[..., Any]], limits: Limits = LIMITS
) -> str:
    """Return what a tutor would say about the error that ends a function; "" if there is none."""
    run = run_calls(get_function, probe_inputs(exercise), limits)
    return _advice(judge_answers(exercise, run, is_explained=False), run, get_function, limits)


def _advice(
    verdict: Verdict, run: Run, get_function: Callable[[], Callable[..., Any]], limits: Limits
) -> str:
    error = next((call.error for call in run.calls if call.error), run.ended)
    if not error or verdict.is_unwritten or verdict.share is not None:
        return ""
    exercise = verdict.exercise
    text = _text_of(get_function, limits) if run.calls else ""

    def works(text: str) -> int:
        return runs_through(_judged_again(exercise, get_function, text, limits))

    return explain_crash(verdict, error, text, works)


def _judged_again(
    exercise: Exercise, get_function: Callable[[], Callable[..., Any]], text: str, limits: Limits
) -> Verdict:
    """Judge a function made from a changed text."""
    again = run_calls(lambda: remade(get_function(), text), probe_inputs(exercise), limits)
    return judge_answers(exercise, again, is_explained=False)


def _text_of(get_function: Callable[[], Callable[..., Any]], limits: Limits) -> str:
    """Return the text of a function; "" if it has none, or would have to run in this process."""
    if not can_fork():
        return ""
    asked = run_calls(lambda: lambda: source_of(get_function()), [{}], limits).calls
    return next((call.answer for call in asked if isinstance(call.answer, str)), "")


def runs_through(verdict: Verdict) -> int:
    """Return 0 if a function fails on an input, 2 if it has the right shapes on all, else 1."""
    passed = {stage.name: stage.passed for stage in verdict.stages}
    return 0 if not passed["runs"] else 2 if passed.get("shape") else 1


def probe_inputs(exercise: Exercise) -> list[Inputs]:
    """Return the inputs of all the calls that judge a function, in their order.

    Each probe comes twice, followed by changed copies of the first probe. If an exercise asks for
    tests, the inputs are the functions to be tested, shuffled by the variant in force.
    """
    if exercise.kind == "tests":
        return candidate_inputs(exercise)
    piece = find_task(exercise.task)
    inputs = [probe for probe in piece.probes() for _ in range(2)]
    return inputs + [reaction.change(piece.probes()[0]) for reaction in piece.reactions]


def judge_answers(
    exercise: Exercise,
    run: Run,
    *,
    is_explained: bool = True,
    is_thorough: bool = True,
    at_hand: AtHand = ONLY_ANSWERS,
) -> Verdict:
    """Examine what a function returned for `probe_inputs`, wherever the calls were made.

    Unless `is_explained`, it says what is wrong and not why, which is faster. Unless `is_thorough`,
    a verdict has no remarks on why, and only a mistake that is quickly found. More is found out
    where the function is `at_hand`. The run is of `run_calls` or of a `Sandbox`. The verdict lacks
    the stage "memory", for which a function has to be called once more.
    """
    is_of_tests = exercise.kind == "tests"
    verdict = (
        judge_tests(exercise, run)
        if is_of_tests
        else _judge_arrays(exercise, run, is_explained, is_thorough, at_hand)
    )
    called = list(dict.fromkeys(name for call in run.calls for name in call.called))
    if called:
        more = f" and {len(called) - TOLD} more" if len(called) > TOLD else ""
        verdict.remarks[LIBRARY] = f"calls {', '.join(called[:TOLD])}{more}"
    return verdict


def _judge_arrays(
    exercise: Exercise,
    run: Run,
    is_explained: bool,
    is_thorough: bool,
    at_hand: AtHand,
) -> Verdict:
    evidence = Evidence(exercise, run)
    with np.errstate(all="ignore"):  # a student's numbers may be anything
        stages = examine(evidence)
    if not is_explained or evidence.is_unwritten or all(stage.passed for stage in stages):
        unwritten = stages[0].finding if evidence.is_unwritten else ""
        return Verdict(exercise, stages, run.printed, unwritten=unwritten)
    is_example = isinstance(variant_in_force().own, Example)  # there is no solution here to edit
    with np.errstate(all="ignore"):
        causes = (
            NO_CAUSES if is_example else explain(evidence, stages, at_hand, is_thorough=is_thorough)
        )
    # numbers that differ only by float32 rounding look the same
    drawn = None if causes.mistakes == {FLOAT32} else _difference(evidence, failing_probe(stages))
    return Verdict(
        exercise, stages, run.printed, causes.remarks, causes.mistakes, drawn,
        unwritten="the bug is still there" if is_bug_of(exercise, causes.mistakes) else "",
        edit=causes.edit, mended=causes.mended,
    )  # fmt: skip


def _difference(evidence: Evidence, first: int | None) -> Difference | None:
    """Return an array whose numbers differ, if any can be drawn, preferably of the given input."""
    numbered = enumerate(evidence.comparisons)
    for number, compared in sorted(numbered, key=lambda pair: pair[0] != first):
        if compared is None:
            continue
        arrays = matched(evidence.first[number].answer, evidence.expected[number], evidence.name)
        for row, (name, actual, expected) in zip(compared.rows, arrays, strict=True):
            if row.trouble in ("values", "finite"):
                which = f"{name}, input {number + 1}" if len(evidence.probes) > 1 else name
                return find_difference(which, actual, expected)
    return None


def memory_inputs() -> list[dict[str, Any]]:
    """Return a few keys, to load everything that does not count, and then many."""
    rng = np.random.default_rng(0)
    shapes = {"q": (T_Q, WIDTH), "k": (T_K, WIDTH), "v": (T_K, WIDTH)}
    many: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    few = {name: array[:BLOCK] for name, array in many.items()}
    conventions = conventions_of(FRUGAL)
    return [give_inputs(FRUGAL, conventions, {**some, "block": BLOCK}) for some in (few, many)]


def memory_stage(run: Run) -> Stage:
    """Judge the calls, each of which returned the most bytes that it held."""
    errors = [run.ended, *(call.error for call in run.calls)]
    if any(errors):
        return Stage("memory", False, next(filter(None, errors)))
    answer, all_scores = run.calls[-1].answer, 8 * T_Q * T_K
    if not isinstance(answer, int) or not 0 <= answer < 2**63:
        return Stage("memory", False, "cannot be measured")
    found = (
        f"it held {in_bytes(answer)} at most; the limit is {in_bytes(all_scores)}, the size of all "
        f"scores of {T_K} keys"
    )
    passed = answer < all_scores
    return Stage(
        "memory",
        passed,
        found if passed else f"{found}: keep the scores of only one block of keys",
    )
