"""check_own: whether a teacher's own exercise can be handed out, and what its inputs miss."""

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import children, leaves
from mha_numpy.errors import ConfigError, one_line
from mha_numpy.progress import busy
from mha_numpy.teach.conventions import SEED, Variant, using
from mha_numpy.teach.diagnosis.bank import MISBEHAVIOURS, Function
from mha_numpy.teach.diagnosis.clues import listed
from mha_numpy.teach.diagnosis.fingerprints import (
    Answer,
    answers_with,
    attempt,
    fits,
    right_answers,
)
from mha_numpy.teach.diagnosis.mutants import assembled
from mha_numpy.teach.diagnosis.search import Candidate, candidates, made_edits, packed, table_of
from mha_numpy.teach.diagnosis.wrong import is_even
from mha_numpy.teach.documented import are_allowed, equal_letters, said_of, sizes_of_letters
from mha_numpy.teach.exercises.catalogue import EXERCISES
from mha_numpy.teach.exercises.child.values import pack
from mha_numpy.teach.exercises.exercise import Exercise, exercise_of
from mha_numpy.teach.exercises.judge import judge
from mha_numpy.teach.exercises.mends import Mend, changed
from mha_numpy.teach.exercises.verdict import Verdict
from mha_numpy.teach.load_own import Rule, load_own
from mha_numpy.teach.own import Own, read_own, told_of
from mha_numpy.teach.own_table import settings_of
from mha_numpy.teach.task import Inputs, Task
from mha_numpy.teach.tasks import BUILT_IN

SEEDS = (1, 2)  # of students


class Checked(NamedTuple):
    """An exercise that can be handed out."""

    own: Own
    exercise: Exercise
    inputs: int  # how many
    noticed: int  # small edits of the solution whose results are wrong
    unnoticed: dict[str, list[str]]  # those that only other inputs show, by what these have
    equal: Sequence[list[str]] = ()  # letters of shapes that are always the same size

    def points(self, step: float) -> float:
        """Return the points: as mistakes.toml says, or so many for each step of difficulty."""
        told = settings_of(self.own).get("points", step * self.exercise.difficulty)
        return float(told)

    def __str__(self) -> str:
        count = self.noticed + sum(map(len, self.unnoticed.values()))
        inputs = "1 input shows" if self.inputs == 1 else f"{self.inputs} inputs show"
        lines = [
            f"{self.exercise.id}: your solution passes; your {inputs} {self.noticed} of {count} "
            "small edits of it"
        ]
        lines += [
            f"- {listed(letters)} are equal in every input; choose sizes that differ, because "
            "equal ones hide a transpose"
            for letters in self.equal
        ]
        for change, edits in self.unnoticed.items():
            first = min(edits, key=len)
            others = len(edits) - 1
            more = f", nor {others} other edit{'s' * (others > 1)}" * (others > 0)
            lines.append(
                f"- no input shows {first}{more}. If the task allows it, add an input {change}"
            )
        return "\n".join(lines)


def check_own(folder: Path | str) -> Checked:
    """Check the folder of a teacher's own exercise, and say which mistakes its inputs do not show.

    The solution has to pass, an untouched stub to fail, every listed mistake to show, and all that
    twice with the same numbers. Small edits of the solution that no input shows are listed, unless
    they change nothing on other inputs either.

    Parameters
    ----------
    folder : path
        With ``solution.py`` and ``inputs.py``, perhaps ``laws.py`` and ``mistakes.toml``.

    Returns
    -------
    Checked
        To be printed.

    Raises
    ------
    ConfigError
        The exercise cannot be handed out; the message says what to write instead.
    """
    own = read_own(folder)
    with told_of(folder):
        task = load_own(own)
        exercise = exercise_of(task)
        _check_name(exercise)
        sizes = list[dict[str, int]]()
        for seed in (Variant().seed, *SEEDS):
            with using(Variant(seed, own=own)):
                _check_inputs(task)
                _check_solution(exercise, task)
                sizes += _checked_shapes(task)
                _check_mistakes(task)
        with using(Variant(own=own)), busy("making small edits"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows, numbers, same = made_edits(task.name)
            edits = candidates(task.name)
            told = unnoticed_of(own, (edits[row] for row in same))
            own = own._replace(edits=packed(task.name, table_of(task.name, rows, numbers)))
        equal = equal_letters(sizes, said_of(task.solution.__doc__ or "")[0])
        return Checked(own, exercise, len(task.probes()), len(rows), told, equal)


def judge_own(folder: Path | str, function: Function, seed: int = Variant().seed) -> Verdict:
    """Judge an answer to a teacher's own exercise, as `grade` does, but without isolation.

    Parameters
    ----------
    folder : path
        As for `check_own`.
    function : callable
        The answer.
    seed : int
        Of the inputs; each student has another one.

    Returns
    -------
    Verdict
        Printed, it quotes lines of your solution and of the answer, and which variable of the
        answer first has other numbers. A student's page has the same causes and clues, but without
        lines and variables of your solution, and without that first variable. The grader looks for
        them with the default `seed`, and counts points on inputs with a different one.
    """
    own = read_own(folder)
    with told_of(folder):
        exercise = exercise_of(load_own(own))
    with using(Variant(seed, own=own)):
        return judge(exercise, lambda: function)


def _check_name(exercise: Exercise) -> None:
    taken = {*BUILT_IN, *(one.function_name for one in EXERCISES)}
    if exercise.function_name in taken or exercise.id in {one.id for one in EXERCISES}:
        raise ConfigError(
            f"solution.py: {exercise.function_name} is the name of an exercise that is here "
            f"already; give yours another name, such as my_{exercise.function_name}"
        )


def _check_inputs(task: Task) -> None:
    """Check that a seed always draws the same, and another one something else."""

    def drawn(seed: int) -> list[Any]:
        found = leaves(task.draw(np.random.default_rng(seed)))
        return [(name, np.shape(one), np.asarray(one).tolist()) for name, one in found.items()]

    try:
        pack(task.probes())
    except TypeError as error:
        raise ConfigError(
            f"inputs.py: expected arrays, numbers, texts, and tuples, lists or dicts of them, "
            f"because nothing else reaches a student's function; {error}"
        ) from error
    if drawn(1) != drawn(1):
        raise ConfigError(
            "inputs.py: draw(rng) returns different numbers when it is called again; draw all of "
            "them with rng, such as rng.normal(size=(2, 3))"
        )
    if drawn(1) == drawn(2):
        raise ConfigError(
            "inputs.py: draw(rng) returns the same numbers for every student; draw them with rng, "
            "such as rng.normal(size=(2, 3))"
        )


def _check_solution(exercise: Exercise, task: Task) -> None:
    right = right_answers(task.name)
    for number, answer in enumerate(right, start=1):
        if not all(np.isfinite(leaf).all() for leaf in leaves(answer).values()):
            raise ConfigError(
                f"solution.py: expected finite numbers; the result of input {number} has NaN or inf"
            )
    _check_laws(task)
    verdict = judge(exercise, lambda: task.solution)
    wrong = next((stage for stage in verdict.stages if stage.passed is False), None)
    if wrong is not None and wrong.name == "invariants":
        raise ConfigError(
            "laws.py: your own solution breaks this rule, so the rule or the solution is wrong, or "
            f"inputs.py draws what the task does not allow: {wrong.finding}"
        )
    if wrong is not None:
        advice = f"; {ADVICE[wrong.name]}" if wrong.name in ADVICE else ""
        raise ConfigError(
            f"solution.py: your own solution does not pass ({wrong.name}): {wrong.finding}{advice}"
        )
    if not judge(exercise, lambda: exercise.stub).is_unwritten:
        raise ConfigError("solution.py: expected a result; a function without a body passes")


ADVICE = {
    "inputs left alone": "write x = x * 2, not x *= 2",
    "the same twice": "expected no random numbers in a solution; draw them in inputs.py",
}


def _checked_shapes(task: Task) -> Iterator[dict[str, int]]:
    """Yield the sizes of each input, after a look at whether the docstring has the right shapes."""
    given, returned = said_of(task.solution.__doc__ or "")
    answers = right_answers(task.name)
    for number, (inputs, answer) in enumerate(zip(task.probes(), answers, strict=True), start=1):
        results = children(answer)
        parts = dict(zip(returned, [answer] if results is None else results.values(), strict=False))
        arrays = [(name, one, given[name]) for name, one in inputs.items() if name in given]
        arrays += [(name, one, returned[name]) for name, one in parts.items()]
        counts = {name: one for name, one in inputs.items() if type(one) is int}
        ways, trouble = sizes_of_letters(arrays, counts)
        if trouble:
            raise ConfigError(f"solution.py: with input {number}, {trouble}; correct one of them")
        yield ways[0]


def _check_laws(task: Task) -> None:
    """Check that no rule fails on right answers."""
    for law in task.laws:
        assert isinstance(law.residual, Rule)
        for inputs, answer in zip(task.probes(), right_answers(task.name), strict=True):
            try:
                law.residual.off(inputs, answer)
            except ConfigError:
                raise
            except Exception as error:
                name = law.residual.function.__name__
                raise ConfigError(
                    f"laws.py: {name} raised {type(error).__name__}: {one_line(error)}"
                ) from error


def _check_mistakes(task: Task) -> None:
    right = right_answers(task.name)
    for mistake in task.mistakes:
        where = f"mistakes.toml, {mistake.name}"
        if mistake.name in {one.name for one in MISBEHAVIOURS}:
            raise ConfigError(f"{where}: there is a mistake of this name; call it something else")
        try:
            made = answers_with(task.name, [mistake.name])
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}; copy it from solution.py") from error
        except Exception as error:
            raise ConfigError(
                f"{where}: with this edit the solution raises {type(error).__name__}: {error}"
            ) from error
        if all(answer is None for answer in made):
            raise ConfigError(
                f"{where}: with this edit the solution fails on every input, and an error needs no "
                "mistake that explains it; leave it out"
            )
        if fits(made, right):
            raise ConfigError(
                f"{where}: the numbers are the same as without it; add an input that shows it, or "
                "leave it out"
            )


def unnoticed_of(own: Own, edits: Iterable[Candidate]) -> dict[str, list[str]]:
    """Return the edits that other inputs show, in words, by what these inputs are."""
    others, found = list(_others(own)), dict[str, list[str]]()
    for candidate in edits:
        if change := _shown_by(candidate, load_own(own).name, others):
            wrong, right = (
                text.replace("\n", "; ") for text in candidate.edited.lines(candidate.edit)
            )
            place = f"in place of `{right}`" if right else "as an extra line"
            words = f"`{wrong}` {place}" if wrong else f"a missing `{right}`"
            found.setdefault(change, []).append(words)
    return found


def _shown_by(candidate: Candidate, task: str, others: Iterable[tuple[str, Inputs, Answer]]) -> str:
    """Return what inputs have that show an edit; "" if none of those tried does."""
    code = candidate.edited.code(candidate.edit)
    if code is None:
        return ""
    function = assembled(task, {candidate.function: code})
    shown = (
        change
        for change, inputs, right in others
        if not fits([right], [attempt(function, inputs, (Exception,))])
    )
    return next(shown, "")


def _others(own: Own) -> Iterator[tuple[str, Inputs, Answer]]:
    """Yield other inputs on which the solution works, each with what was changed."""
    right = assembled(load_own(own).name, {})
    said, _ = said_of(load_own(own).solution.__doc__ or "")
    for change, inputs in [*_changed(load_own(own).probes()), *_drawn_otherwise(own)]:
        answer = attempt(right, inputs, (Exception,)) if are_allowed(inputs, said) else None
        is_good = answer is not None and all(
            np.isfinite(np.asarray(leaf, float)).all() and np.size(leaf)
            for leaf in leaves(answer).values()
        )
        if is_good:
            yield change, inputs, answer


def _drawn_otherwise(own: Own) -> Iterator[tuple[str, Inputs]]:
    """Yield what inputs.py draws with a different number in it.

    What goes together, such as an axis and the shape of its gain, still does. An array that could
    always be broadcast along some axes still can.
    """
    usual = {axes for inputs in load_own(own).probes() for axes in _long_axes(inputs)}
    parts = ast.walk(ast.parse(own.inputs))
    for part in (part for part in parts if isinstance(part, ast.Constant)):
        for new in _other_numbers(part.value):
            text = changed(own.inputs, [Mend(part, repr(new))])
            line = text.splitlines()[part.lineno - 1].strip()
            try:
                task = load_own.__wrapped__(own._replace(inputs=text))
                drawn = task.draw(np.random.default_rng(SEED))
            except Exception:  # of the teacher's code, which was not written for this number
                continue
            for inputs in drawn:
                if usual.issuperset(_long_axes(inputs)) and not _has_even(inputs):
                    yield f"that this line would draw: `{line}`", inputs


def _long_axes(inputs: Inputs) -> list[tuple[str, int]]:
    """Return the name of each array, with the number of its axes that are longer than 1."""
    arrays = leaves(inputs).items()
    return [(name, sum(size > 1 for size in np.shape(array))) for name, array in arrays]


def _has_even(inputs: Inputs) -> bool:
    """Return whether all numbers of an array are the same, as where a scale is 0."""
    arrays = (one for one in leaves(inputs).values() if isinstance(one, np.ndarray))
    return any(one.size > 1 and one.dtype.kind == "f" and is_even(one) for one in arrays)


def _other_numbers(number: Any) -> list[Any]:
    if isinstance(number, bool):
        return [not number]
    if isinstance(number, int):
        return [number + 1, number - 1]
    return [number * 1000, number * 0.01] if isinstance(number, float) else []


def _changed(probes: list[Inputs]) -> Iterator[tuple[str, Inputs]]:
    """Yield inputs with one array larger, smaller, shifted or the opposite."""
    for inputs in probes:
        for name, value in inputs.items():
            for change, new in _other_values(value) if isinstance(value, np.ndarray) else ():
                yield f"in which {name} {change}", {**inputs, name: new}


def _other_values(array: Any) -> Iterator[tuple[str, Any]]:
    if array.dtype.kind == "b":
        yield "is the opposite", ~array
    elif array.dtype.kind == "f":
        yield "is 1000 times as large", array * 1000
        yield "is 100 times smaller", array * 0.01
        yield "has the opposite sign", -array
        yield "is 3 more", array + 3
