"""How the tiled kernel cuts attention: into tiles and blocks, into registers, into rounds."""

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mha_numpy.core.masks import window_mask
from mha_numpy.draw.colors import GREY, HIDDEN, INK, MUTED, fade, hatch_cells, head_color, text_on
from mha_numpy.draw.save import Picture

BLOCK, LANES, ROWS = 64, 16, 4  # keys in a block, queries in a Vector, rows that a product keeps
BLOCKS, WINDOW, CHUNKS = 7, 3, 4  # in the panels; a window of three blocks
SIZE, PANEL, GAP, TOP = (10.4, 4.7), (3.2, 4.3), 0.2, 0.36  # in inches; TOP is a panel's head
SHADE, NOW = fade(head_color(0)), head_color(9)  # NOW: what is being worked on
WHOLE, PART, PALE = SHADE(0.5), SHADE(0.18), SHADE(0.25)

PRODUCT = "Marked: 4 numbers of k meet 4 Vectors of q.T; 16 Vectors of sums stay in registers."
ROUNDS = "The number is the round; 1 is marked. Its squares share no row and no column."


def kernel_blocks() -> Picture:
    """Draw how the tiled kernel works: forward's blocks, one block, backward's rounds.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text. Explained in ``docs/kernels.md``.

    Examples
    --------
    >>> [panel.get_title(loc="left") for panel in kernel_blocks().axes]
    ['Forward: blocks of cells', 'One block: scores, transposed', 'Backward: rounds']
    """
    picture = Picture(figsize=SIZE, facecolor="white")
    picture.set_label(
        "How the tiled kernel cuts attention. Forward: scores in blocks of 64 queries by 64 keys, "
        "causal with a window; blocks are computed whole, masked on the two edges, or skipped; a "
        "tile of queries carries its state along the keys. One block: k times q transposed; four "
        "rows of four Vectors of 16 queries stay in registers; largest, total and factor lie under "
        "their queries. Backward: in each of four rounds every chunk of keys meets another share."
    )
    titles = "Forward: blocks of cells", "One block: scores, transposed", "Backward: rounds"
    for i, draw in enumerate((_draw_forward, _draw_block, _draw_rounds)):
        left, (width, height) = GAP + i * (PANEL[0] + GAP), PANEL
        ax = picture.add_axes((left / SIZE[0], 0.01, width / SIZE[0], height / SIZE[1]))
        ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
        ax.set_axis_off()
        ax.set_title(titles[i], loc="left", fontsize=11, fontweight="bold", color=INK)
        draw(ax)
    return picture


def _draw_forward(ax: Axes) -> None:
    """Draw which blocks are computed, and a tile of queries on its way along the keys."""
    side, left, steps = 0.39, 0.3, 8  # a block is drawn as 8 x 8 cells
    right, bottom = left + BLOCKS * side, TOP + BLOCKS * side
    visible = window_mask(BLOCKS * steps, window=(WINDOW * steps - 1, 0))
    for row, column in np.ndindex(BLOCKS, BLOCKS):
        cells = visible[row * steps :, column * steps :][:steps, :steps]
        x, y = left + column * side, TOP + row * side
        if cells.any():
            _box(ax, x, y, side, side, WHOLE if cells.all() else PART, label="computed")
            hatch_cells(ax, ~cells, HIDDEN, at=(x, y), cell=side / steps)
    _box(ax, left, TOP, right - left, bottom - TOP)
    _write(ax, left, TOP - 0.08, "keys, in blocks of 64", va="bottom")
    _write(ax, left - 0.08, TOP, "queries, in tiles of 64", rotation=90, ha="right", va="top")

    y = TOP + 5.5 * side
    _box(ax, left + 2 * side, y - side / 2, 4 * side, side, edge=NOW, linewidth=2)
    arrow = {"arrowstyle": "-|>", "color": NOW, "linewidth": 2.5, "mutation_scale": 12}
    ax.annotate("", (left + 5.8 * side, y), (left + 2.2 * side, y), arrowprops=arrow)
    turn = right - side / 2
    ax.plot([turn, turn, turn - side / 2], [TOP + 0.85, y, y], color=NOW, linewidth=1)
    state = "a tile carries\nlargest, total, heads:\na number, a number\nand a row for each query"
    _write(ax, right - 0.04, TOP + 0.1, state, ha="right", va="top", color=INK)
    texts = ("computed whole", "computed, then hidden cells masked", "skipped: nobody sees a cell")
    for i, (text, color) in enumerate(zip(texts, (WHOLE, PART, "white"), strict=True)):
        y = bottom + 0.15 + 0.25 * i
        _box(ax, left, y, 0.18, 0.18, color)
        if color is PART:
            hatch_cells(ax, np.triu(np.ones((6, 6), bool), 1), HIDDEN, at=(left, y), cell=0.03)
        _write(ax, left + 0.28, y + 0.09, text)
    _write(ax, left, bottom + 1.05, "The threads share out the rows of blocks.")


def _draw_block(ax: Axes) -> None:
    """Draw k @ q.T, the registers of its product, and the running state under it."""
    side, d, gap, left, strip = 1.76, 0.72, 0.16, 0.28, 0.13
    x, y, row = left + d + gap, TOP + d + gap, side * ROWS / BLOCK
    parts = [(TOP, d, PALE), (y, side, WHOLE)]
    for i, name in enumerate(("largest", "total", "factor")):
        parts.append((y + side + gap + i * (strip + 0.07), strip, PALE))
        _write(ax, x - 0.08, parts[-1][0] + strip / 2, name, ha="right")
    for top, height, color in parts:
        _box(ax, x, top, side, height, color, edge="white")
        for lines, linewidth in ((np.arange(LANES), 0.3), (np.arange(0, BLOCK, LANES), 1.5)):
            ax.vlines(x + side * lines / BLOCK, top, top + height, "white", linewidth=linewidth)
    ax.hlines(y + row * np.arange(BLOCK // ROWS), x, x + side, PALE, linewidth=0.4)
    _box(ax, left, y, d, side, PALE)
    now = y + 5 * row
    _box(ax, x, now, side, row, edge=NOW, linewidth=2)
    _box(ax, left + 0.6 * d, now, row / 2, row, NOW, edge=NOW)
    _box(ax, x, TOP + 0.6 * d, side, row / 3, NOW, edge=NOW)
    ink: dict[str, Any] = {"ha": "center", "color": INK}
    ground = {"facecolor": WHOLE, "edgecolor": "none", "pad": 2}
    low = y + side * 0.75
    _write(ax, left + d / 2, low, "k\n(64, d_k)", **ink)
    _write(ax, left + d / 2, TOP + d / 2, "scale * q.T\n(d_k, 64)", **ink)
    _write(ax, x + side / 2, low, "scores.T (64, 64)", **ink, bbox=ground)
    _write(ax, left - 0.08, y, "64 keys", rotation=90, ha="right", va="top")
    _write(ax, x + side, TOP - 0.08, "64 queries: 4 Vectors of 16 lanes", ha="right", va="bottom")
    _write(ax, left, y + side + 0.85, fill(PRODUCT, 46), va="top")


def _draw_rounds(ax: Axes) -> None:
    """Draw in which round a chunk of keys meets a share of queries."""
    side, left, top = 0.62, 0.34, TOP + 0.2
    for share, chunk in np.ndindex(CHUNKS, CHUNKS):
        number = (share - chunk) % CHUNKS
        x, y, color = left + chunk * side, top + share * side, SHADE(0.75 - 0.2 * number)
        _box(ax, x, y, side, side, color, edge="white", label=f"round {number}")
        if number == 1:
            _box(ax, x + 0.04, y + 0.04, side - 0.08, side - 0.08, edge=NOW, linewidth=2)
        style = {"ha": "center", "fontsize": 10, "color": text_on(color)}
        _write(ax, x + side / 2, y + side / 2, str(number), **style)
    for i in range(CHUNKS):
        middle = (i + 0.5) * side
        _write(ax, left + middle, top - 0.06, f"chunk {i}", ha="center", va="bottom")
        _write(ax, left - 0.06, top + middle, f"share {i}", rotation=90, ha="right")
    _write(ax, left, TOP - 0.08, "keys in chunks, queries in shares of tiles", va="bottom")
    _write(ax, left, top + CHUNKS * side + 0.15, fill(ROUNDS, 44), va="top")


def _box(
    ax: Axes, x: float, y: float, width: float, height: float, color: Any = "none", *,
    edge: Any = GREY, linewidth: float = 0.8, label: str = "",
) -> None:  # fmt: skip
    """Draw a rectangle from its upper left corner."""
    box = Rectangle((x, y), width, height, facecolor=color, edgecolor=edge, label=label)
    box.set(linewidth=linewidth, zorder=3 if edge is NOW else 1)  # marks lie above lines
    ax.add_patch(box)


def _write(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write small and grey, unless the style says otherwise."""
    default: dict[str, Any] = {"fontsize": 8.5, "color": MUTED, "va": "center"}
    ax.text(x, y, text, **default | style)
