"""The page of every picture: heading, notes and legend, below them panels in rows."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D, Transform

from mha_numpy.show.pictures.colors import GREY, INK, MUTED, head_color
from mha_numpy.show.pictures.labels import widest
from mha_numpy.show.pictures.save import DPI, Picture

PIXEL = 1 / DPI
NOTE_SIZE = 8  # in points, of notes, legends and ticks
STYLES: tuple[dict[str, Any], ...] = (  # of title, verdict and notes
    {"fontsize": 13, "fontweight": "bold", "color": INK},
    {"fontsize": 9.5, "fontweight": "bold", "color": INK},
    {"fontsize": NOTE_SIZE, "fontweight": "normal", "color": MUTED},
)

# lengths in inches
MARGIN, GUTTER = 0.3, 0.3  # around the page; between panels and between rows
MAX_WIDTH = 9.2  # of panels side by side: text keeps its size in a notebook
LEAST_LINE = 7.0  # a text may be so wide above narrow panels
GAP, LEGEND_LINE = 0.1, 0.21  # below each kind of text; from one line of the legend to the next
HANDLE, COLUMN = 0.25, 0.25  # of the legend: a patch with its gap; the gap between columns


class Box(NamedTuple):
    """A panel: its axes, and the room around them for names and ticks; in inches."""

    width: float
    height: float
    left: float = 0.0
    top: float = 0.0
    right: float = 0.0
    below: float = 0.0

    @property
    def full_width(self) -> float:
        """The axes and the room beside them."""
        return self.left + self.width + self.right

    @property
    def full_height(self) -> float:
        """The axes and the room above and below them."""
        return self.top + self.height + self.below


def pixels(length: float) -> float:
    """Round a length up to whole pixels, for cells of one size to be drawn alike everywhere."""
    return math.ceil(length / PIXEL - 1e-6) * PIXEL


def patch(**style: Any) -> Rectangle:
    """Return a legend's patch."""
    default: dict[str, Any] = {"linewidth": 0, "edgecolor": GREY}
    return Rectangle((0, 0), 1, 1, **default | style)


def head_legend(H: int) -> dict[str, Rectangle]:
    """Return a patch for each of H query heads; colours repeat from the sixteenth on."""
    legend = {f"head {h}": patch(facecolor=head_color(h)) for h in range(min(H, 16))}
    return legend | {"16 on: again": patch(facecolor="none")} if H > 16 else legend


def flow(boxes: Sequence[Box], gutter: float = GUTTER) -> list[list[Box]]:
    """Break panels into as few rows as a notebook's width allows, and make these even."""
    rows: list[list[Box]] = []
    narrower = _fill(boxes, gutter, MAX_WIDTH)
    while not rows or (len(narrower) == len(rows) and narrower != rows):
        rows = narrower
        widest = max(_row_width(row, gutter) for row in rows)
        narrower = _fill(boxes, gutter, widest - PIXEL / 2)
    return rows


def _fill(boxes: Sequence[Box], gutter: float, width: float) -> list[list[Box]]:
    """Put panels side by side, and begin a new row where one would pass the width."""
    rows: list[list[Box]] = [[]]
    for box in boxes:
        if rows[-1] and _row_width([*rows[-1], box], gutter) > width:
            rows.append([])
        rows[-1].append(box)
    return rows


def start_page(
    rows: Sequence[Sequence[Box]],
    title: str,
    notes: Sequence[str],
    *,
    alt: str,
    verdict: str = "",
    legend: Mapping[str, Artist] | None = None,
    gutter: float = GUTTER,
) -> tuple[Picture, list[Axes]]:
    """Return a page with everything above its panels, and the panels' empty axes in order.

    The axes' units are inches from their upper left corner.
    """
    legend = legend or {}
    content = max(_row_width(row, gutter) for row in rows)
    line = max(content, LEAST_LINE)  # the longest that a text may be
    texts, legend_at, longest = _heading(([title], [verdict], notes), line)
    entry = widest(list(legend), NOTE_SIZE) + HANDLE + COLUMN
    columns = min(len(legend), max(1, int(line / entry)))
    lines = math.ceil(len(legend) / max(1, columns))
    top = pixels(legend_at + (LEGEND_LINE * lines + GAP) * bool(legend) + GAP)
    heights = [pixels(max(box.full_height for box in row) + gutter) for row in rows]
    width = pixels(max(content, longest, columns * entry - COLUMN) + 2 * MARGIN)
    height = top + sum(heights) - gutter + MARGIN

    picture = Picture(figsize=(width, height), facecolor="white", label=alt)
    inches = Affine2D().scale(1, -1).translate(0, height) + picture.dpi_scale_trans
    for y, text, style in texts:
        picture.text(MARGIN, y, text, transform=inches, va="top", parse_math=False, **style)
    if legend:
        _add_legend(picture, legend, columns, (MARGIN, legend_at), inches)
    axes = []
    for row, tallest in zip(rows, heights, strict=True):
        left = MARGIN
        for box in row:
            x, y = left + box.left, height - top - box.top - box.height
            ax = picture.add_axes((x / width, y / height, box.width / width, box.height / height))
            ax.set(xlim=(0, box.width), ylim=(box.height, 0))
            axes.append(ax)
            left += box.full_width + gutter
        top += tallest
    return picture, axes


def _heading(
    words: Sequence[Sequence[str]], width: float
) -> tuple[list[tuple[float, str, dict[str, Any]]], float, float]:
    """Break texts of each style into lines; return them with their places, the end, the width."""
    placed, top, longest = [], MARGIN, 0.0
    for texts, style in zip(words, STYLES, strict=True):
        size, weight = style["fontsize"], style["fontweight"]
        lines = [part for text in texts for part in _wrap(text, width, size, weight)]
        for line in lines:
            placed.append((top, line, style))
            top += 1.45 * size / 72
        top += GAP * bool(lines)
        longest = max(longest, widest(lines, size, weight=weight))
    return placed, top, longest


def _add_legend(
    picture: Picture,
    legend: Mapping[str, Artist],
    columns: int,
    corner: tuple[float, float],
    inches: Transform,
) -> None:
    """Draw a legend that is read line by line; matplotlib fills it column by column."""
    order = [i for column in range(columns) for i in range(column, len(legend), columns)]
    names, handles = list(legend), list(legend.values())
    drawn = picture.legend(
        [handles[i] for i in order], [names[i] for i in order], ncols=columns, loc="upper left",
        bbox_to_anchor=corner, bbox_transform=inches, fontsize=NOTE_SIZE, labelcolor=INK,
        frameon=False, borderpad=0, borderaxespad=0, handlelength=1.3, handleheight=1.3,
        handletextpad=0.6, labelspacing=0.5, columnspacing=72 * COLUMN / NOTE_SIZE,
    )  # fmt: skip
    for name in drawn.get_texts():
        name.set_parse_math(False)


def _row_width(row: Sequence[Box], gutter: float) -> float:
    return sum(box.full_width for box in row) + gutter * (len(row) - 1)


def _wrap(text: str, width: float, size: float, weight: str) -> list[str]:
    """Break a text into lines of about a width; none if it is empty."""
    average = widest([text], size, weight=weight) / max(1, len(text)) or 1.0
    return textwrap.wrap(text, max(8, int(0.97 * width / average)))
