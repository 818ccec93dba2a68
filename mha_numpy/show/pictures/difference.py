"""Gradients beside those of a reference: which differ, where first, and in words."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mha_numpy.checking.differences import differing, largest_of, two_numbers
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

Reference = Trace | Mapping[str, Array]


class Comparison(NamedTuple):
    """What was found out about the gradients; nothing without a reference."""

    marks: Mapping[int, str] = {}  # by the id of a step: = or ≠
    first: Step | None = None  # that leaves the reference
    cell: tuple[int, ...] | None = None  # to light up; None where the shapes differ
    verdict: str = ""


def compare_gradients(gradients: list[Step], reference: Reference, sequence: int) -> Comparison:
    """Compare every gradient that both have, in backward's order; of one name first with first.

    The cell to light up is one of the drawn sequence if there is such.
    """
    pairs = _pairs(gradients, reference)
    n, largest = len(pairs), max(largest_of(expected) for _, expected in pairs)
    marks, wrong = {}, []
    for step, expected in pairs:
        has_shape = step.array.shape == expected.shape
        differs = differing(step.array, expected, largest) if has_shape else None
        marks[id(step)] = "="
        if differs is None or differs.any():
            marks[id(step)] = "≠"
            wrong.append((step, expected, differs))
    if not wrong:
        of = f"all {n}" if n == len(gradients) else f"the {n} of {len(gradients)}"
        both = "" if n == len(gradients) else " that both have"
        return Comparison(marks, verdict=f"Agrees with the reference in {of} gradients{both}")
    step, expected, differs = wrong[0]
    text, cell = f"First difference: {step.name}", None
    if differs is None:
        text += f" has the shape {step.array.shape}, expected {expected.shape}"
    else:
        cells = [tuple(map(int, each)) for each in np.argwhere(differs)]
        cell = next((each for each in cells if is_drawn(step, each, sequence)), cells[0])
        got, wanted = two_numbers(step.array[cell], expected[cell])
        text += f"[{', '.join(map(str, cell))}]" if cell else ""
        text += f" = {got}, expected {wanted}; {len(cells)} of {differs.size} cells differ"
        if not is_drawn(step, cell, sequence):
            other = cell[step.axes.split().index("B")]
            text += f", none of them in sequence {sequence}: draw it with sequence={other}"
    verdict = f"{text}. In all, {len(wrong)} of {n} gradients differ"
    return Comparison(marks, step, cell, verdict)


def _pairs(gradients: list[Step], reference: Reference) -> list[tuple[Step, Array]]:
    """Return each gradient that the reference has, with what it should be."""
    if isinstance(reference, Trace):
        known = [(other.name, other.array) for other in reference]
    elif isinstance(reference, Mapping):
        known = list(reference.items())
    else:
        raise ConfigError(
            "reference: expected a Trace or a mapping of names to arrays; "
            f"got {describe(reference)}"
        )
    pairs: list[tuple[Step, Array]] = []
    for i, step in enumerate(gradients):
        turn = sum(other.name == step.name for other in gradients[:i])
        for given in [array for name, array in known if name == step.name][turn : turn + 1]:
            expected = np.asarray(given)
            if expected.dtype.kind not in "iufc":
                raise ConfigError(
                    f"reference: expected {step.name} as an array of numbers; got {describe(given)}"
                )
            pairs.append((step, expected))
    if not pairs:
        raise ConfigError(
            "reference: expected a gradient of the same name as one of the trace's "
            f"({', '.join(step.name for step in gradients[:5])}, ...); "
            f"got {[name for name, _ in known[:5]]}"
        )
    return pairs


def is_drawn(step: Step, cell: tuple[int, ...], sequence: int) -> bool:
    """Return whether a cell belongs to the drawn sequence, or to all."""
    names = step.axes.split()
    return "B" not in names or cell[names.index("B")] == sequence
