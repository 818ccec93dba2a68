"""Wrong: one array that is wrong, on all inputs at once, and what its numbers are evidence of.

NaN comes about in many ways, and so does one number everywhere: an explanation that rests on them
alone is none.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.checking.differences import differing, largest_of
from mha_numpy.checking.trees import children, leaves, replaced
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE, Answer, right_answers
from mha_numpy.teach.diagnosis.sizes import sizes_of
from mha_numpy.teach.task import Inputs
from mha_numpy.teach.tasks import TASKS

NONE = np.array(np.nan)  # in place of what is no array of numbers


class Wrong(NamedTuple):
    """One array of a task's results on every input where there is one: a student's, and ours."""

    task: str
    name: str
    mine: list[Array]
    right: list[Array]
    largest: list[float]  # number of all right arrays
    probes: list[Inputs]
    sizes: list[dict[str, float]]
    numbers: list[int]  # of the inputs

    def is_given_by(self, predicted: Sequence[Any]) -> bool:
        """Return whether predicted arrays are the student's, and on some input not ours."""
        return self.are_same(self.mine, predicted) and not self.are_same(self.right, predicted)

    def are_same(self, some: Sequence[Any], others: Sequence[Any]) -> bool:
        """Return whether arrays for all inputs agree in shape, and in numbers up to rounding."""
        return all(map(same, some, others, self.largest))  # as many as there are

    @property
    def fit(self) -> bool:
        """Whether all arrays have the right shapes, and as many axes for all inputs."""
        return have_shapes(self.mine, self.right) and len({one.ndim for one in self.right}) == 1

    @property
    def is_nan_alone(self) -> bool:
        """Whether all numbers that are wrong are NaN or infinite."""
        return all(map(is_nan_alone, self.mine, self.right, self.largest))

    @property
    def is_lost(self) -> bool:
        """Whether on each input the wrong numbers are NaN, or none is finite."""
        filled = [
            np.where(np.isnan(mine), right, mine) if mine.shape == right.shape else mine
            for mine, right in zip(self.mine, self.right, strict=True)
        ]
        is_right = map(same, filled, self.right, self.largest)
        return all(r or not np.isfinite(a).any() for r, a in zip(is_right, self.mine, strict=True))

    def taken_from(self, answers: Sequence[Answer]) -> list[Array]:
        """Return this array of other answers; NaN where there is none."""
        return [
            dict(arrays_of(self.task, answers[n], n)).get(self.name, NONE) for n in self.numbers
        ]

    def as_answers(self, factor: Sequence[float] = ()) -> list[Answer]:
        """Return right answers with this array in its place, times a factor."""
        rights = right_answers(self.task)
        found: list[Answer] = [None] * len(rights)
        for number, mine, c in zip(
            self.numbers, self.mine, factor or [1] * len(rights), strict=False
        ):
            array = mine if c == 1 else mine * c
            is_one = children(rights[number]) is None
            found[number] = array if is_one else replaced(rights[number], {self.name: array})
        return found


def names_of(task: str) -> list[str]:
    """Return the names of a task's results."""
    right = right_answers(task)[0]
    return list(leaves(right)) if children(right) is not None else [TASKS[task].result]


def arrays_of(task: str, answer: Answer, number: int) -> list[tuple[str, Array]]:
    """Return the arrays of an answer to an input by the names of the expected ones."""
    if answer is None:
        return []
    right = right_answers(task)[number]
    found = []
    for name, (_, mine, _) in zip(names_of(task), matched(answer, right), strict=False):
        is_array = isinstance(mine, np.ndarray | np.generic | int | float)
        array = np.asarray(mine) if is_array else NONE
        found.append((name, array if array.dtype.kind in "biuf" else NONE))
    return found


def wrong_of(task: str, answers: Sequence[Answer]) -> list[Wrong]:
    """Return the arrays that are wrong on some input."""
    found: dict[str, Wrong] = {}
    for number, (probe, answer) in enumerate(zip(TASKS[task].probes(), answers, strict=True)):
        rights = dict(arrays_of(task, right_answers(task)[number], number))
        largest = max(float(largest_of(array)) for array in rights.values())
        sizes = sizes_of(task, probe)
        for name, mine in arrays_of(task, answer, number):
            one = found.setdefault(name, Wrong(task, name, [], [], [], [], [], []))
            new = (mine, rights[name], largest, probe, sizes, number)
            for kept, value in zip(one[2:], new, strict=True):
                kept.append(value)  # type: ignore[attr-defined]
    return [one for one in found.values() if not one.are_same(one.mine, one.right)]


def same(one: Any, other: Any, largest: float) -> bool:
    """Return whether two arrays agree in shape, and in numbers up to rounding."""
    one, other = np.asarray(one), np.asarray(other)
    is_fit = one.shape == other.shape
    return is_fit and not differing(one, other, np.float64(largest), TOLERANCE).any()


def have_shapes(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Return whether arrays have the shapes of others."""
    return [one.shape for one in some] == [one.shape for one in others]


def is_nan_alone(mine: Array, right: Array, largest: float) -> bool:
    """Return whether all numbers of an array that are wrong are NaN or infinite."""
    if mine.dtype.kind not in "fc" or mine.shape != right.shape:
        return mine.dtype.kind in "fc" and not np.isfinite(mine).any()
    return same(np.where(np.isfinite(mine), mine, right), right, largest)


def is_even(array: Array) -> bool:
    """Return whether an array has one number everywhere, as zeros do; NaN is none."""
    return array.size == 0 or bool((array == array.flat[0]).all())
