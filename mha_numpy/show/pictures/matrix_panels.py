"""Arrays prepared for `matrices`: the size of their cells, and what is written at them."""

import math
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures.cells import MAX_NUMBERS, NUMBER_SIZE, Labels, fit_labels
from mha_numpy.show.pictures.labels import decimal, printable, widest
from mha_numpy.show.pictures.layout import PIXEL, Box, pixels

COUNTED = 8  # places of a long axis that are numbered
LONGEST_NAME = 40  # characters
NAME_SIZE = 9  # in points

# lengths in inches
CELL, LARGE, THINNEST = 45 * PIXEL, 2.65, 0.16  # LARGE: of a side, at least a pixel a cell
NAME, TICK, FACT = 0.24, 0.08, 0.15


class MatrixPanel(NamedTuple):
    """One array, ready to be drawn."""

    name: str
    values: Array  # (rows, columns)
    full: float  # the |x| that has the full colour; 0 if all numbers are 0
    numbers: list[str]  # of the cells, row by row; none where they do not fit
    cell: tuple[float, float]  # width and height
    rows: Labels
    columns: Labels
    is_turned: bool  # whether column labels stand upright
    facts: list[str]  # under the cells
    left: float  # room for row labels
    below: float  # room for column labels

    @property
    def is_mask(self) -> bool:
        """Whether the cells are bools."""
        return self.values.dtype == bool

    @property
    def box(self) -> Box:
        """The cells, and room for name, labels and facts."""
        (rows, columns), (wide, high) = self.values.shape, self.cell
        words = max(
            widest([self.name], NAME_SIZE, "monospace", "bold"),
            widest(self.facts, NUMBER_SIZE, "monospace"),
        )
        width, height = max(1, columns) * wide, max(1, rows) * high
        right, below = max(0.0, words - width), self.below + FACT * len(self.facts)
        return Box(width, height, self.left, NAME, pixels(right), below)


def prepare_matrix(
    name: str, values: Array, full: float, labels: list[list[str] | None], facts: list[str]
) -> MatrixPanel:
    """Choose the size of the cells, and what is written at them."""
    rows, columns = values.shape
    has_numbers = max(rows, columns) <= MAX_NUMBERS and values.dtype != bool
    numbers = _cell_texts(values) if has_numbers else []
    if max(rows, columns) <= MAX_NUMBERS:
        wide, high = pixels(max(CELL, widest(numbers, NUMBER_SIZE) + 0.08)), CELL
    else:
        side = max(PIXEL, min(CELL, math.floor(LARGE / max(rows, columns) / PIXEL) * PIXEL))
        wide, high = (max(side, pixels(THINNEST / max(1, n))) for n in (columns, rows))
    row_labels = _labels(name, "row", labels[0], rows, high)
    column_labels = _labels(name, "column", labels[1], columns, wide)
    long = widest(column_labels.texts, column_labels.size)
    is_turned = long > wide * column_labels.every - 0.06
    left = TICK + widest(row_labels.texts, row_labels.size) if row_labels.texts else 0.0
    below = TICK + (long if is_turned else 0.12) if column_labels.texts else 0.0
    return MatrixPanel(
        printable(name, LONGEST_NAME), values, full, numbers, (wide, high), row_labels,
        column_labels, is_turned, facts, pixels(left), below + 0.07,
    )  # fmt: skip


def _labels(name: str, axis: str, labels: list[str] | None, size: int, cell: float) -> Labels:
    """Choose labels as far as they fit; a long axis without labels is counted."""
    if labels is None:
        every = 1 << max(0, math.ceil(math.log2(max(1, size / COUNTED))))
        counted = list(range(0, size, every)) if size > MAX_NUMBERS else []
        return Labels(counted, [str(place) for place in counted])
    if size <= 1 < len(labels):
        return Labels([], [])
    if len(labels) != size:
        raise ConfigError(
            f"{axis}_labels: expected {size} of them for arrays[{name!r}]; got {len(labels)}"
        )
    return fit_labels(labels, cell)


def _cell_texts(values: Array) -> list[str]:
    """Return what stands in the cells: few characters, with one number of places for all."""
    known = values[np.isfinite(values)]
    largest = float(np.abs(known).max(initial=0.0))
    is_whole = bool((known == np.round(known)).all())
    limits = [np.inf, 99.5, 9.95, 0.5]  # numbers below have more than 0, 1, 2 places
    places = 0 if is_whole else sum(largest < limit for limit in limits) - 1
    while places > 1 and np.allclose(known, np.round(known, places - 1), 0, 1e-6 * largest):
        places -= 1  # .25, not .250
    if 0.0095 <= largest < 9999.5 or (is_whole and largest < 1e6):
        return [decimal(value, places) if np.isfinite(value) else "" for value in values.flat]
    return [_scientific(value) if np.isfinite(value) else "" for value in values.flat]


def _scientific(value: float) -> str:
    """Return a number as 1.2e-9, and 0 as 0."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{abs(value):.1e}".split("e")
    power = f"e{int(exponent)}" if int(exponent) else ""
    return decimal(math.copysign(float(mantissa), value), 1) + power
