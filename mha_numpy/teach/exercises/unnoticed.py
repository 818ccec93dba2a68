"""unnoticed: the small edits of a solution that its inputs do not show, and inputs that would."""

import ast
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.conventions import SEED
from mha_numpy.teach.diagnosis.fingerprints import Answer, attempt, fits
from mha_numpy.teach.diagnosis.mutants import assembled
from mha_numpy.teach.diagnosis.search import Candidate
from mha_numpy.teach.exercises.mends import Mend, changed
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Own
from mha_numpy.teach.task import Inputs


def unnoticed_of(own: Own, edits: Iterable[Candidate]) -> dict[str, list[str]]:
    """Return the edits that other inputs show, in words, by what these inputs are."""
    others, found = list(_others(own)), dict[str, list[str]]()
    for candidate in edits:
        if change := _shown_by(candidate, load_own(own).name, others):
            wrong, right = (
                text.replace("\n", "; ") for text in candidate.edited.lines(candidate.edit)
            )
            place = f"in place of `{right}`" if right else "added"
            words = f"with `{wrong}` {place}" if wrong else f"without `{right}`"
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
    for change, inputs in [*_changed(load_own(own).probes()), *_drawn_otherwise(own)]:
        answer = attempt(right, inputs, (Exception,))
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
                if usual.issuperset(_long_axes(inputs)):
                    yield f"such as `{line}` draws", inputs


def _long_axes(inputs: Inputs) -> list[tuple[str, int]]:
    """Return the name of each array, with the number of its axes that are longer than 1."""
    arrays = leaves(inputs).items()
    return [(name, sum(size > 1 for size in np.shape(array))) for name, array in arrays]


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
