"""Painting for `matrices`: an array's cells, the scale of colours, what the other cells are."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Transform

from mha_numpy.draw.blocks import is_broken, is_hidden
from mha_numpy.draw.colors import (
    BROKEN,
    GREY,
    HIDDEN,
    INK,
    MUTED,
    PALETTE,
    fade,
    hatch_cells,
    text_on,
)
from mha_numpy.draw.labels import MINUS, NOTE_SIZE
from mha_numpy.draw.matrix_panels import NAME_SIZE, SIZE, MatrixPanel
from mha_numpy.draw.save import Picture
from mha_numpy.dtypes import Array

SIGNED = LinearSegmentedColormap.from_list(
    "negative, white, positive", [PALETTE[1], "#ffffff", PALETTE[0]], N=257
)
MAY_ATTEND = fade(PALETTE[0])(0.3)
LINE = "#E2E2E2"
MAX_STRIPS = 2000  # hatched one by one
SMALLEST_SQUARE = 0.08  # inches; smaller cells are pixels of an image


def add_matrix_axes(picture: Picture, panel: MatrixPanel, at: tuple[float, float]) -> Axes:
    """Add axes for the cells, their upper left corner at inches from the picture's."""
    width, height = picture.get_figwidth(), picture.get_figheight()
    wide, high = panel.size
    box = at[0] / width, 1 - (at[1] + high) / height, wide / width, high / height
    return picture.add_axes(box, label=f"matrix {panel.name}")


def paint_matrix(ax: Axes, panel: MatrixPanel) -> None:
    """Draw one array: cells, hatches, numbers, labels and facts."""
    values = panel.values
    rows, columns = values.shape
    ax.set_title(
        panel.name, loc="left", fontsize=NAME_SIZE, fontweight="bold", fontfamily="monospace",
        color=INK, pad=5, parse_math=False,
    )  # fmt: skip
    ax.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    ax.spines[:].set(edgecolor=GREY, linewidth=0.8)
    style: dict[str, Any] = {"color": INK, "parse_math": False}
    ax.set_xticks(
        [place + 0.5 for place in panel.columns.places], panel.columns.texts,
        fontsize=panel.columns.size, rotation=90 if panel.is_turned else 0, **style,
    )  # fmt: skip
    ax.set_yticks(
        [place + 0.5 for place in panel.rows.places], panel.rows.texts,
        fontsize=panel.rows.size, **style,
    )  # fmt: skip
    ax.tick_params(length=2, color=GREY, pad=2)
    below = -72 * panel.below
    ax.annotate(
        "\n".join(panel.facts), (0, 0), (0, below), xycoords="axes fraction",
        textcoords="offset points", va="top", fontsize=SIZE, fontfamily="monospace", color=MUTED,
        parse_math=False,
    )  # fmt: skip
    if values.size == 0:
        return
    if panel.is_mask:
        colors: Array = np.broadcast_to(MAY_ATTEND, (rows, columns, 4)).copy()
        colors[~values] = 1.0
        _hatch(ax, ~values, HIDDEN)
    else:
        known = np.where(np.isfinite(values), values, 0.0)
        colors = SIGNED(0.5 + 0.5 * known / (panel.full or 1.0))
        _hatch(ax, is_hidden(values), HIDDEN)
        _hatch(ax, is_broken(values), BROKEN)
    ax.imshow(
        colors, extent=(0, columns, rows, 0), aspect="auto", interpolation="nearest", zorder=0
    )
    if min(panel.cell) >= SMALLEST_SQUARE:
        style = {"color": LINE, "linewidth": 0.5, "zorder": 0.5}
        ax.vlines(np.arange(1, columns), 0, rows, **style)
        ax.hlines(np.arange(1, rows), 0, columns, **style)
    for (row, column), text in zip(np.ndindex(rows, columns), panel.numbers, strict=False):
        ax.text(
            column + 0.5, row + 0.5, text, ha="center", va="center_baseline", fontsize=SIZE,
            color=text_on(tuple(colors[row, column])),
        )  # fmt: skip


def _hatch(ax: Axes, cells: Array, hatch: str) -> None:
    """Hatch the True cells: very many of them as one shape, which is drawn faster."""
    hatch_cells(ax, cells, hatch)
    if np.count_nonzero(np.diff(cells)) > MAX_STRIPS:
        (strips,) = (found for found in ax.collections if found.get_hatch() == hatch)
        strips.remove()
        path = Path.make_compound_path(*strips.get_paths())
        ax.add_patch(
            PathPatch(
                path, hatch=hatch, facecolor="none", edgecolor=GREY, linewidth=0,
                label=strips.get_label(),
            )
        )  # fmt: skip


def paint_scale(ax: Axes, texts: list[str]) -> None:
    """Draw the colours from the first of the texts to the last."""
    lowest = -1 if len(texts) == 3 else 0
    shades = SIGNED(0.5 + 0.5 * np.linspace(lowest, 1, 256))
    ax.imshow(shades[None], aspect="auto", extent=(lowest, 1, 1, 0), interpolation="nearest")
    ax.set_yticks([])
    signed = [text.replace("-", MINUS) for text in texts]
    ax.set_xticks(range(lowest, 2), signed, fontsize=7, color=INK, parse_math=False)
    ends = ax.get_xticklabels()
    ends[0].set_horizontalalignment("left")
    ends[-1].set_horizontalalignment("right")
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.spines[:].set(edgecolor=GREY, linewidth=0.6)


def paint_key(
    picture: Picture, inches: Transform, text: str, style: dict[str, Any], at: tuple[float, float]
) -> None:
    """Draw a cell and say what it is."""
    picture.add_artist(Rectangle(at, 0.14, 0.14, transform=inches, **style))
    picture.text(
        at[0] + 0.2, at[1] + 0.07, text, transform=inches, va="center", fontsize=NOTE_SIZE,
        color=INK,
    )  # fmt: skip
