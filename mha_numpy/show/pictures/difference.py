"""Gradients beside those of a reference: which differ, where first, and in words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.differences import differing, largest_of, two_numbers
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

Reference = Trace | Mapping[str, Array]


class ComparedGradient(NamedTuple):
    """One gradient beside the one of the reference."""

    step: Step
    expected: Array
    differs: Array  # of the gradient's shape

    @property
    def has_other_shape(self) -> bool:
        """Whether the cells cannot be compared."""
        return self.step.array.shape != self.expected.shape

    @property
    def mark(self) -> str:
        """What stands behind the title."""
        return "≠" if self.differs.any() or self.has_other_shape else "="


class Difference(NamedTuple):
    """The first gradient that leaves the reference, and the cell to light up."""

    compared: ComparedGradient
    cell: tuple[int, ...] | None  # None where the shapes differ


def compare_gradients(gradients: list[Step], reference: Reference) -> list[ComparedGradient]:
    """Compare every gradient that both have, in backward's order; of one name first with first."""
    if not isinstance(reference, (Trace, Mapping)):
        raise ConfigError(
            "reference: expected a Trace or a mapping of names to arrays; "
            f"got {describe(reference)}"
        )
    pairs: list[tuple[Step, Array]] = []
    for i, step in enumerate(gradients):
        if isinstance(reference, Trace):
            known = [other.array for other in reference if other.name == step.name]
        else:
            known = [reference[step.name]] if step.name in reference else []
        turn = sum(other.name == step.name for other in gradients[:i])
        if turn < len(known):
            pairs.append((step, _check_numbers(step.name, known[turn])))
    if not pairs:
        names = [s.name for s in reference] if isinstance(reference, Trace) else list(reference)
        raise ConfigError(
            "reference: expected a gradient of the same name as one of the trace's "
            f"({', '.join(step.name for step in gradients[:5])}, ...); got {names[:5]}"
        )
    largest = max(largest_of(expected) for _, expected in pairs)
    return [
        ComparedGradient(step, array, _differs(step.array, array, largest)) for step, array in pairs
    ]


def _check_numbers(name: str, array: Array) -> Array:
    expected = np.asarray(array)
    if expected.dtype.kind not in "iufc":
        raise ConfigError(
            f"reference: expected {name} as an array of numbers; got {describe(array)}"
        )
    return expected


def _differs(array: Array, expected: Array, largest: np.floating[Any]) -> Array:
    """Return which cells differ, by the rule of `check.compare`; none where the shapes do."""
    if array.shape != expected.shape:
        return np.zeros(array.shape, bool)
    return differing(array, expected, largest)


def first_difference(compared: list[ComparedGradient], sequence: int) -> Difference | None:
    """Return the first gradient that leaves the reference; its cell of the drawn sequence first."""
    for each in compared:
        if each.has_other_shape:
            return Difference(each, None)
        if each.differs.any():
            cells = [tuple(map(int, cell)) for cell in np.argwhere(each.differs)]
            drawn = (cell for cell in cells if is_drawn(each.step, cell, sequence))
            return Difference(each, next(drawn, cells[0]))
    return None


def is_drawn(step: Step, cell: tuple[int, ...], sequence: int) -> bool:
    """Return whether a cell belongs to the drawn sequence, or to all."""
    names = step.axes.split()
    return "B" not in names or cell[names.index("B")] == sequence


def verdict_of(
    compared: list[ComparedGradient], first: Difference | None, gradients: int, sequence: int
) -> str:
    """Say where the gradients leave the reference, or that they do not."""
    n = len(compared)
    if first is None:
        if n == gradients:
            return f"Agrees with the reference in all {n} gradients"
        return f"Agrees with the reference in the {n} of {gradients} gradients that both have"
    step, expected, differs = first.compared
    if first.cell is None:
        text = f"First difference: {step.name} has the shape {step.array.shape}, "
        text += f"expected {expected.shape}"
    else:
        at = f"[{', '.join(map(str, first.cell))}]" if first.cell else ""
        got, wanted = two_numbers(step.array[first.cell], expected[first.cell])
        text = f"First difference: {step.name}{at} = {got}, expected {wanted}; "
        text += f"{differs.sum()} of {differs.size} cells differ"
        if not is_drawn(step, first.cell, sequence):
            other = first.cell[step.axes.split().index("B")]
            text += f", none of them in sequence {sequence}: draw it with sequence={other}"
    others = sum(c.mark == "≠" for c in compared)
    return f"{text}. In all, {others} of {n} gradients differ"
