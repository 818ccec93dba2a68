"""Painting one panel: squares or an image, axis names, text."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.blocks import is_broken, is_hidden
from mha_numpy.show.pictures.colors import (
    BROKEN,
    HIDDEN,
    INK,
    MUTED,
    NO_HEAD,
    fade,
    hatch_cells,
    head_color,
    text_on,
)
from mha_numpy.show.pictures.layout import patch
from mha_numpy.show.pictures.panels import (
    LABEL_ROOM,
    LINE,
    MONO,
    SMALLEST_SIGN,
    Layout,
    Panel,
    picture_height,
)

MAX_VECTORS = 800  # squares in a panel that are shapes in an SVG; more are pixels there


def legend_entries(panels: list[Panel]) -> dict[str, Rectangle]:
    """Return a patch for everything that has a colour or a hatch of its own."""
    last = [panel.blocks.labels[-1] for panel in panels if panel.blocks.labels]
    H = max((int(label.split("-")[-1]) + 1 for label in last), default=0)
    entries = {f"head {h}": patch(facecolor=head_color(h)) for h in range(min(H, 16))}
    if H > 16:
        entries["16 on: again"] = patch(facecolor="none")
    if any(not panel.blocks.labels for panel in panels):
        entries["no head"] = patch(facecolor=NO_HEAD)
    for text, hatch, is_such in (
        ("-inf: hidden", HIDDEN, is_hidden), ("NaN or +inf", BROKEN, is_broken),
    ):  # fmt: skip
        if any(is_such(panel.blocks.values).any() for panel in panels):
            entries[text] = patch(facecolor="none", hatch=hatch)
    return entries


def paint(ax: Axes, panel: Panel, header: list[str]) -> None:
    """Draw one panel: title, what is known about the step, and the picture."""
    blocks, layout = panel.blocks, panel.layout
    write_header(ax, panel.title, header)
    left, top = panel.left, LINE * len(header)
    _name_axes(ax, panel, left, top)
    if blocks.values.size == 0:
        ax.text(left, top + LABEL_ROOM, "no cells", va="top", color=MUTED, fontsize=7)
        return
    hidden, broken = is_hidden(blocks.values), is_broken(blocks.values)
    shown = np.ma.array(np.abs(blocks.values), mask=hidden | broken)
    largest = float(shown.max()) if shown.count() else 0.0
    shade = (shown > 0) * (0.1 + 0.9 * shown / (largest or 1.0))
    for i, (x, y) in enumerate(block_places(panel, header)):
        draw = _draw_image if layout.as_image else _draw_squares
        draw(ax, shade[i], blocks.colors[i], (x, y), layout)
        if layout.cell >= SMALLEST_SIGN:
            negative = np.asarray(blocks.values[i].real < 0) & ~hidden[i]
            _mark_negative(ax, negative, shade[i], blocks.colors[i], (x, y), layout)
        if layout.lefts[i] == 0:
            _name_rows(ax, panel, y)
        for cells, hatch in ((hidden[i], HIDDEN), (broken[i], BROKEN)):
            hatch_cells(ax, cells, hatch, at=(x, y), cell=layout.cell, pitch=layout.pitch)
        width, height = shade.shape[2] * layout.cell, picture_height(blocks, layout)
        if layout.label_at == "above":
            where, align = (x + width / 2, y - 0.02), ("center", "bottom")
        elif layout.label_at == "right":
            where, align = (x + width + 0.04, y + height / 2), ("left", "center_baseline")
        else:
            continue
        ax.text(
            *where, blocks.labels[i], ha=align[0], va=align[1], color=MUTED, fontsize=6,
            fontfamily="monospace",
        )  # fmt: skip


def write_header(ax: Axes, title: str, header: list[str]) -> None:
    """Write a panel's title, and the lines below it."""
    ax.set_axis_off()
    ax.set_title(
        title, loc="left", y=1.0, pad=4, color=INK, fontsize=9, fontweight="bold",
        fontfamily="monospace", parse_math=False,
    )  # fmt: skip
    for i, line in enumerate(header):
        ax.text(
            0, LINE * i, line, va="top", color=MUTED if i else INK, fontsize=7,
            fontfamily="monospace", parse_math=False,
        )  # fmt: skip


def block_places(panel: Panel, header: list[str]) -> list[tuple[float, float]]:
    """Return where each block's upper left corner lies in its panel."""
    lefts, tops = panel.layout.lefts + panel.left, panel.layout.tops + LINE * len(header)
    return list(zip(lefts.tolist(), tops.tolist(), strict=True))


def _name_axes(ax: Axes, panel: Panel, left: float, top: float) -> None:
    blocks, layout = panel.blocks, panel.layout
    style: dict[str, Any] = {
        "color": MUTED,
        "fontsize": 6.5,
        "fontfamily": "monospace",
        "parse_math": False,
    }
    if blocks.row_axis:
        long = 6.5 * MONO * len(blocks.row_axis)
        middle = top + LABEL_ROOM + max(picture_height(blocks, layout), long) / 2
        ax.text(0.12, middle, blocks.row_axis, rotation=90, ha="right", va="center", **style)
    if blocks.column_axis:
        width = blocks.values.shape[2] * layout.cell if blocks.spread == "apart" else layout.width
        middle = left + max(width, 6.5 * MONO * len(blocks.column_axis)) / 2
        below = top + layout.height + 0.04
        ax.text(middle, below, blocks.column_axis, ha="center", va="top", **style)


def _name_rows(ax: Axes, panel: Panel, top: float) -> None:
    for row, name in enumerate(panel.row_names):
        y = top + panel.layout.cell * (row * panel.layout.pitch + 0.5)
        ax.text(
            panel.left - 0.04, y, name, ha="right", va="center_baseline", color=MUTED, fontsize=6,
            fontfamily="monospace", parse_math=False,
        )  # fmt: skip


def _draw_squares(
    ax: Axes, shade: Array, color: str, at: tuple[float, float], layout: Layout
) -> None:
    """Draw a block cell by cell, with gaps."""
    rows, columns = np.indices(shade.shape).reshape(2, -1, 1)
    inset = 0.06
    x = at[0] + layout.cell * (columns + np.array([inset, 1 - inset, 1 - inset, inset]))
    y = at[1] + layout.cell * (layout.pitch * rows + np.array([inset, inset, 1 - inset, 1 - inset]))
    colormap = fade(color)
    corners: Any = np.stack([x, y], axis=-1)
    squares = PolyCollection(
        corners, array=shade.ravel(), cmap=colormap, norm=Normalize(0, 1),
        edgecolors=[colormap(0.4)], linewidths=min(0.4, 4 * layout.cell), clip_on=False,
    )  # fmt: skip
    squares.set_rasterized(len(layout.lefts) * shade.size > MAX_VECTORS)  # an SVG stays small
    ax.add_collection(squares, autolim=False)


def _draw_image(
    ax: Axes, shade: Array, color: str, at: tuple[float, float], layout: Layout
) -> None:
    width, height = shade.shape[1] * layout.cell, shade.shape[0] * layout.cell
    ax.imshow(
        shade, cmap=fade(color), norm=Normalize(0, 1), aspect="auto",
        extent=(at[0], at[0] + width, at[1] + height, at[1]), clip_on=False,
    )  # fmt: skip
    frame = Rectangle(at, width, height, fill=False, edgecolor=color, linewidth=0.5, clip_on=False)
    ax.add_patch(frame)


def _mark_negative(
    ax: Axes,
    negative: Array,
    shade: Array,
    color: str,
    at: tuple[float, float],
    layout: Layout,
) -> None:
    """Draw a minus into the negative cells of a block: the colour tells the size alone."""
    rows, columns = np.nonzero(negative)
    if not len(rows):
        return
    x = at[0] + layout.cell * (columns[:, None] + np.array([0.27, 0.73]))
    y = at[1] + layout.cell * (layout.pitch * rows[:, None] + np.array([0.5, 0.5]))
    lines: Any = np.stack([x, y], axis=-1)
    minus = LineCollection(
        lines, colors=[text_on(rgb) for rgb in fade(color)(shade[negative])], label="negative",
        linewidths=min(1.3, 72 * 0.14 * layout.cell), capstyle="butt", clip_on=False,
    )  # fmt: skip
    minus.set_rasterized(len(layout.lefts) * shade.size > MAX_VECTORS)
    ax.add_collection(minus, autolim=False)
