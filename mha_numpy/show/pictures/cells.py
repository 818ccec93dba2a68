"""Painting cells in rows and columns: colours, hatches, numbers, labels; and a scale of colours."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.colors import BROKEN, GREY, HIDDEN, INK, text_on
from mha_numpy.show.pictures.labels import MINUS, write
from mha_numpy.show.pictures.layout import Box

Point: TypeAlias = tuple[float, float]  # to the right and downward

MAX_NUMBERS = 12  # rows or columns with a number in each cell
NUMBER_SIZE = 6.5  # in points
LINE = "#E2E2E2"

# lengths in inches
LABEL_PITCH = 0.1  # from one label to the next, at least
SMALLEST_SQUARE = 0.08  # smaller cells have no lines between them
SCALE = Box(2.0, 0.12, below=0.2)


class Labels(NamedTuple):
    """Which rows or columns are labelled, and how."""

    places: list[int]
    texts: list[str]
    size: float = 8.0  # in points

    @property
    def every(self) -> int:
        """How many rows or columns are from one label to the next."""
        return self.places[1] - self.places[0] if len(self.places) > 1 else 1


def fit_labels(labels: list[str], cell: float) -> Labels:
    """Choose every label, or every second, third, ... as far as they fit at cells of a size."""
    every = math.ceil(LABEL_PITCH / cell)
    return Labels(
        list(range(0, len(labels), every)), labels[::every], min(8.0, 72 * cell * every / 1.25)
    )


def cell_corners(
    shape: tuple[int, ...], at: Point, cell: float, *, inset: float, pitch: float = 1.0
) -> Any:
    """Return the corners of (rows, columns) cells whose block begins `at` (x, y): (cells, 4, 2).

    Each is smaller by `inset` of its size on all sides. Rows follow each other by `pitch` cells.
    """
    rows, columns = np.indices(shape).reshape(2, -1, 1)
    x = at[0] + cell * (columns + np.array([inset, 1 - inset, 1 - inset, inset]))
    y = at[1] + cell * (pitch * rows + np.array([inset, inset, 1 - inset, 1 - inset]))
    return np.stack([x, y], axis=-1)


def hatch_cells(
    ax: Axes, hidden: Array, broken: Array, at: Point = (0, 0), cell: float = 1, pitch: float = 1
) -> None:
    """Hatch the True cells of two (rows, columns) arrays that begin `at` (x, y).

    Neighbours in a row become one strip, and all strips one shape, which is drawn fast. Rows follow
    each other by `pitch` cells.
    """
    for cells, hatch, label in ((hidden, HIDDEN, "hidden"), (broken, BROKEN, "broken")):
        edges = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
        rows, first = np.nonzero(edges == 1)
        _, past = np.nonzero(edges == -1)
        x = at[0] + cell * np.stack([first, past, past, first], axis=1)
        y = at[1] + cell * (pitch * rows[:, None] + np.array([0, 0, 1, 1]))
        corners: Any = np.stack([x, y], axis=-1)
        if len(rows):
            strips = Path.make_compound_path(*PolyCollection(corners).get_paths())
            style: dict[str, Any] = {"edgecolor": GREY, "linewidth": 0, "clip_on": False}
            ax.add_patch(PathPatch(strips, hatch=hatch, facecolor="none", label=label, **style))


def paint_cells(
    ax: Axes, colors: Array, numbers: list[str], hidden: Array, broken: Array, cell: float
) -> None:
    """Draw (rows, columns, 4) colours with lines between, numbers row by row, and hatches."""
    rows, columns, _ = colors.shape
    hatch_cells(ax, hidden, broken)
    extent = (0, columns, rows, 0)
    ax.imshow(colors, extent=extent, aspect="auto", interpolation="nearest", zorder=0)
    if cell >= SMALLEST_SQUARE:
        style: dict[str, Any] = {"color": LINE, "linewidth": 0.5, "zorder": 0.5}
        ax.vlines(np.arange(1, columns), 0, rows, **style)
        ax.hlines(np.arange(1, rows), 0, columns, **style)
    for (row, column), text in zip(np.ndindex(rows, columns), numbers, strict=False):
        if text:
            ink = text_on(tuple(colors[row, column]))
            place = (column + 0.5, row + 0.5)
            write(
                ax, *place, text, NUMBER_SIZE, "center center_baseline", color=ink, label="number"
            )


def label_cells(ax: Axes, rows: Labels, columns: Labels, *, is_turned: bool) -> None:
    """Write labels at rows and columns; those of columns stand upright if turned."""
    for labels, set_ticks in ((columns, ax.set_xticks), (rows, ax.set_yticks)):
        places = [place + 0.5 for place in labels.places]
        set_ticks(places, labels.texts, fontsize=labels.size, color=INK, parse_math=False)
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.tick_params(axis="x", rotation=90 if is_turned else 0)


def paint_scale(ax: Axes, colors: Array, texts: list[str]) -> None:
    """Draw strips of colours, (strips, shades, 4), and evenly spaced texts under them."""
    ax.set_label("scale")
    ax.imshow(colors, aspect="auto", extent=(0, 1, 1, 0), interpolation="nearest")
    ax.set(xlim=(0, 1), ylim=(1, 0), yticks=[])
    signed = [text.replace("-", MINUS) for text in texts]
    places = np.linspace(0, 1, len(texts))
    ax.set_xticks(places, signed, fontsize=7, color=INK, parse_math=False)
    ends = ax.get_xticklabels()
    ends[0].set_horizontalalignment("left")
    ends[-1].set_horizontalalignment("right")
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.spines[:].set(edgecolor=GREY, linewidth=0.6)
