"""Missed: the small edits of a solution that its inputs do not show, and inputs that would."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.diagnosis.fingerprints import Answer, attempt, fits
from mha_numpy.teach.diagnosis.mutants import assembled
from mha_numpy.teach.diagnosis.search import Candidate
from mha_numpy.teach.task import Inputs, Task


class Missed:
    """What shows an edit that the inputs do not: other numbers, or other sizes."""

    def __init__(self, task: Task):
        self.task, self.others = task, list(_others(task))

    def lines(self, edits: Iterable[Candidate]) -> dict[str, list[str]]:
        """Return the edits that other inputs show, in words, by what these inputs have."""
        found: dict[str, list[str]] = {}
        for candidate in edits:
            if change := self._shown_by(candidate):
                wrong, right = (
                    text.replace("\n", "; ") for text in candidate.edited.lines(candidate.edit)
                )
                place = f"in place of `{right}`" if right else "added"
                words = f"with `{wrong}` {place}" if wrong else f"without `{right}`"
                found.setdefault(change, []).append(words)
        return found

    def _shown_by(self, candidate: Candidate) -> str:
        """Return what inputs have that show an edit; "" if none of those tried does."""
        code = candidate.edited.code(candidate.edit)
        if code is None:
            return ""
        function = assembled(self.task.name, {candidate.function: code})
        shown = (
            change
            for change, inputs, right in self.others
            if not fits([right], [attempt(function, inputs, (Exception,))])
        )
        return next(shown, "")


def _others(task: Task) -> Iterator[tuple[str, Inputs, Answer]]:
    """Yield changed inputs on which the solution works, each with what was changed."""
    right = assembled(task.name, {})
    changed = chain.from_iterable(map(_changed, task.probes()))
    for change, inputs in changed:
        answer = attempt(right, inputs, (Exception,))
        is_good = answer is not None and all(
            np.isfinite(np.asarray(leaf, float)).all() and np.size(leaf)
            for leaf in leaves(answer).values()
        )
        if is_good:
            yield change, inputs, answer


def _changed(inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """Yield an input with one argument larger, shifted or smaller, or with one size less."""
    for name, value in inputs.items():
        for change, new in _other_values(value):
            yield change.format(name), {**inputs, name: new}
    arrays = {name: one for name, one in inputs.items() if isinstance(one, np.ndarray)}
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if size > 1:
                change = f"axis {axis} of {name} has another size"
                yield change, {**inputs, name: np.take(array, range(size - 1), axis)}
    for size in {size for array in arrays.values() for size in array.shape if size > 1}:
        yield f"there is no size {size}", {
            **inputs, **{name: _shrunk(array, size) for name, array in arrays.items()}
        }  # fmt: skip


def _shrunk(array: Any, size: int) -> Any:
    return array[tuple(slice(size - 1) if n == size else slice(None) for n in array.shape)]


def _other_values(value: Any) -> Iterator[tuple[str, Any]]:
    is_array = isinstance(value, np.ndarray)
    kind = value.dtype.kind if is_array else type(value).__name__[0]
    if kind == "b":
        yield (
            "{} is the opposite",
            np.logical_not(value) if is_array else not value,
        )
    elif kind == "i":
        yield "{} is 1 more", value + 1
        yield "{} is 1 less", value - 1
    elif kind == "f":
        yield "{} is 1000 times as large", value * 1000
        yield "{} is 100 times smaller", value * 0.01
    if kind == "f" and is_array:  # a number such as eps often has a sign that it needs
        yield "{} has the opposite sign", -value
        yield "{} is 3 more", value + 3
