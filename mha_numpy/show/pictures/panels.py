"""One recorded step as a panel: cut into blocks, laid out, painted. Lengths are in inches."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from mha_numpy.checking.tracing import Step
from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.blocks import Blocks, cut_step, is_broken, is_hidden
from mha_numpy.show.pictures.cells import Point, cell_corners, hatch_cells
from mha_numpy.show.pictures.colors import BROKEN, HIDDEN, INK, MUTED, NO_HEAD, fade, text_on
from mha_numpy.show.pictures.labels import MONO, MONO_WIDTH, printable, write, write_title
from mha_numpy.show.pictures.layout import GUTTER, MAX_WIDTH, PIXEL, Box, head_legend, patch, pixels
from mha_numpy.show.pictures.recorded import check_numbers

MAX_SIDE = 64  # rows or columns of a block drawn as squares; beyond it is an image
CELL = 22 * PIXEL  # at most; whole pixels, so that all gaps look alike
SMALLEST_SQUARE = 5 * PIXEL  # smaller cells are drawn without gaps
SMALLEST_SIGN = 0.03  # a cell, in inches, that has room for a minus
PICTURES = ((2.0, 0.06), (2.9, 0.03))  # largest width or height of a picture; smallest cell
TITLE, LINE = 0.22, 0.14
TEXT = 1.75  # what a panel's text has at least
LEAST_ROW, LONGEST_NAME = 0.1, 9  # of a row with its name: inches; characters of that name
AXIS_ROOM, LABEL_ROOM = 0.2, 0.14  # an axis' name; a head's number at its block
SMALL: dict[str, Any] = {"size": 6, "color": MUTED, **MONO}  # numbers of heads, names of rows
MAX_VECTORS = 800  # squares in a panel that are shapes in an SVG; more are pixels there


class Layout(NamedTuple):
    """Where the blocks of one step lie, from its picture's upper left corner."""

    cell: float
    pitch: float  # from one row to the next, in cells
    lefts: Array  # (blocks,)
    tops: Array  # (blocks,)
    width: float
    height: float
    label_at: str  # "above", "right", or "" where there is no room
    as_image: bool  # too many or too small cells for gaps


class Panel(NamedTuple):
    """One step, ready to be drawn."""

    step: Step
    blocks: Blocks
    layout: Layout
    facts: list[str]  # axes and memory
    mark: str = ""  # behind the title
    row_names: Sequence[str] = ()  # beside the rows of its blocks

    @property
    def title(self) -> str:
        """The step's number and name, and a mark where heads are shared."""
        title = f"{self.step.number} {self.step.name}" + " ◆" * self.blocks.is_shared
        return f"{title} {self.mark}".rstrip()

    @property
    def left(self) -> float:
        """Room for the name of the rows' axis, and for the rows' own names."""
        longest = max(map(len, self.row_names), default=0)
        return AXIS_ROOM + bool(longest) * (6 * MONO_WIDTH * longest + 0.03)

    @property
    def block_size(self) -> tuple[float, float]:
        """Width and height of one block."""
        _, rows, columns = self.blocks.values.shape
        height = max(0.0, (rows - 1) * self.layout.pitch + 1)
        return columns * self.layout.cell, height * self.layout.cell

    @property
    def width(self) -> float:
        """What the picture and its unbroken lines need."""
        lines = max(7 * MONO_WIDTH * len(line) for line in self.facts)
        return max(self.left + self.layout.width, 9 * MONO_WIDTH * len(self.title), lines, TEXT)


def prepare(
    steps: list[Step],
    recorded: list[Step],
    sequence: int,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> list[Panel]:
    """Cut every step into blocks and lay them out, with cells of one size where that fits.

    The labels of an axis stand beside the rows that it makes, where they fit.
    """
    check_numbers(steps)
    cut = [cut_step(step, sequence, recorded) for step in steps]
    for limit, smallest in PICTURES:
        cells = [_fit(blocks, limit).cell for blocks in cut]
        cell = min((c for c in cells if c >= smallest), default=smallest)
        if min(cells) >= smallest:
            break
    panels = []
    for step, blocks in zip(steps, cut, strict=True):
        layout = _fit(blocks, limit, cell)
        memory = step.memory + ", drawn smaller" * (layout.cell < cell)
        facts = [f"[{', '.join(named_sizes(step))}]", memory]
        if layout.cell < SMALLEST_SIGN and (blocks.values.real < 0).any():
            facts.append("cells too small for a minus")
        names = (labels or {}).get(blocks.row_axis, ())
        fits = layout.cell * layout.pitch >= LEAST_ROW and blocks.values.shape[1] == len(names)
        names = [printable(name, LONGEST_NAME) for name in names] if fits else ()
        panels.append(Panel(step, blocks, layout, facts, row_names=names))
    return panels


def named_sizes(step: Step) -> list[str]:
    """Return the axes with their sizes: "T_q=5", and "1" for a stretched one."""
    sizes = zip(step.axes.split(), step.array.shape, strict=True)
    return [axis if axis == str(size) else f"{axis}={size}" for axis, size in sizes]


def _lay_out(blocks: Blocks, cell: float) -> Layout:
    """Place the blocks, given the size of a cell."""
    n, rows, columns = blocks.values.shape
    as_image = max(rows, columns) > MAX_SIDE or cell < 0.99 * SMALLEST_SQUARE
    is_striped = blocks.spread == "in row" and not as_image
    pitch = round(1.5 * cell / PIXEL) * PIXEL / cell if is_striped else 1.0
    width, height = columns * cell, max(0.0, (rows - 1) * pitch + 1) * cell
    gaps = {"touching": (0.0, 0.0), "in row": (0.6, 0.04), "apart": (0.8, 0.07)}
    share, least = gaps[blocks.spread]
    most = 0.9 / max(blocks.across, n / blocks.across)  # a hundred heads leave room for cells
    gap = min(pixels(max(share * cell, least)), most)
    label, label_at = 6 * MONO_WIDTH * max(map(len, blocks.labels), default=0), ""
    if label and blocks.across == 1 and blocks.spread == "touching":
        label_at = "right" if height >= 0.085 else ""
    elif label:
        label_at = "above" if width + gap >= label + 0.03 else ""
    gap_y = gap + LABEL_ROOM * (label_at == "above") if blocks.spread == "apart" else 0.0
    down, right = np.divmod(np.arange(n), blocks.across)
    lefts, tops = right * (width + gap), LABEL_ROOM + down * (height + gap_y)
    beside = 0.04 + label if label_at == "right" else 0.0
    total_width = float(lefts.max(initial=0)) + width + beside
    total_height = float(tops.max(initial=0)) + height
    return Layout(cell, pitch, lefts, tops, total_width, total_height, label_at, as_image)


def _fit(blocks: Blocks, limit: float, cell: float = CELL) -> Layout:
    """Lay out with cells of the given size, or of the largest that keeps to the limit."""
    layout = _lay_out(blocks, cell)
    while max(layout.width, layout.height) > limit:
        pixels = round(layout.cell / PIXEL)
        smaller = (pixels - 1) * PIXEL if pixels > 5 else 0.97 * layout.cell
        layout = _lay_out(blocks, smaller)
    return layout


def arrange(
    panels: list[Panel], columns: int | None, choices: tuple[int, ...] = (6, 3, 2, 1)
) -> tuple[list[list[Box]], list[list[str]]]:
    """Choose the number of columns; return rows of boxes, and the lines under each title.

    A column's boxes are of one width, a row's panels have equally many lines.
    """
    for most in choices if columns is None else (check_count("columns", columns),):
        across = min(most, len(panels))
        widths = [pixels(max(panel.width for panel in panels[i::across])) for i in range(across)]
        if sum(widths) + GUTTER * (across - 1) <= MAX_WIDTH:
            break
    rows, headers = [], []
    for first in range(0, len(panels), across):
        row = panels[first : first + across]
        lines = [panel.facts + _equation(panel, widths[i]) for i, panel in enumerate(row)]
        most = max(map(len, lines))
        headers += [own + [""] * (most - len(own)) for own in lines]
        tallest = max(
            max(panel.layout.height, LABEL_ROOM + 6.5 * MONO_WIDTH * len(panel.blocks.row_axis))
            for panel in row
        )
        height = LINE * most + tallest + AXIS_ROOM
        rows.append([Box(width, height, top=TITLE) for width in widths[: len(row)]])
    return rows, headers


def _equation(panel: Panel, width: float) -> list[str]:
    if not panel.step.equation:
        return []
    return break_code(f"= {panel.step.equation}", int(width / (7 * MONO_WIDTH)))


def break_code(code: str, most: int) -> list[str]:
    """Break code into lines: at spaces outside of brackets, and before a method."""
    text = re.sub(
        r"\([^()]*\)",
        lambda found: found[0].replace(" ", "\0") if len(found[0]) < most else found[0],
        code,
    )
    lines = [""]
    for piece in re.split(r"(?<= )|(?<!np)(?=\.\w+\()", text):
        for start in range(0, len(piece), most - 2):  # a piece too long for a line is cut
            part = piece[start : start + most - 2]
            if lines[-1].strip() and len(lines[-1] + part.rstrip()) > most:
                lines.append("  ")
            lines[-1] += part
    return [line.rstrip().replace("\0", " ") for line in lines]


def legend_entries(panels: list[Panel]) -> dict[str, Rectangle]:
    """Return a patch for everything that has a colour or a hatch of its own."""
    last = [panel.blocks.labels[-1] for panel in panels if panel.blocks.labels]
    H = max((int(label.split("-")[-1]) + 1 for label in last), default=0)
    entries = head_legend(H)
    if any(not panel.blocks.labels for panel in panels):
        entries["no head"] = patch(facecolor=NO_HEAD)
    if any(is_hidden(panel.blocks.values).any() for panel in panels):
        entries["-inf: hidden"] = patch(facecolor="none", hatch=HIDDEN)
    if any(is_broken(panel.blocks.values).any() for panel in panels):
        entries["NaN or +inf"] = patch(facecolor="none", hatch=BROKEN)
    return entries


def paint(ax: Axes, panel: Panel, header: list[str]) -> None:
    """Draw one panel: title, what is known about the step, and the picture."""
    blocks, layout = panel.blocks, panel.layout
    write_header(ax, panel.title, header)
    left, top = panel.left, LINE * len(header)
    _name_axes(ax, panel, left, top)
    if blocks.values.size == 0:
        write(ax, left, top + LABEL_ROOM, "no cells", 7, color=MUTED)
        return
    hidden, broken = is_hidden(blocks.values), is_broken(blocks.values)
    shown = np.ma.array(np.abs(blocks.values), mask=hidden | broken)
    largest = float(shown.max()) if shown.count() else 0.0
    shade = (shown > 0) * (0.1 + 0.9 * shown / (largest or 1.0))
    negative = (blocks.values.real < 0) & ~hidden
    width, height = panel.block_size
    for i, (x, y) in enumerate(block_places(panel, header)):
        draw = _draw_image if layout.as_image else _draw_squares
        draw(ax, shade[i], blocks.colors[i], (x, y), layout)
        if layout.cell >= SMALLEST_SIGN and negative[i].any():
            _mark_negative(ax, negative[i], shade[i], blocks.colors[i], (x, y), layout)
        for row, name in enumerate(panel.row_names if layout.lefts[i] == 0 else ()):
            middle = y + layout.cell * (row * layout.pitch + 0.5)
            write(ax, panel.left - 0.04, middle, name, align="right center_baseline", **SMALL)
        hatch_cells(ax, hidden[i], broken[i], (x, y), layout.cell, layout.pitch)
        if layout.label_at == "above":
            write(ax, x + width / 2, y - 0.02, blocks.labels[i], align="center bottom", **SMALL)
        elif layout.label_at == "right":
            style = {"align": "left center_baseline", **SMALL}
            write(ax, x + width + 0.04, y + height / 2, blocks.labels[i], **style)


def reading(panels: list[Panel], shared: str) -> str:
    """Say how cells, blocks and, in a sentence of the caller, shared heads are read."""
    text = (
        "One cell is one number: white is 0, full colour the panel's largest |value|, and a minus "
        "marks a negative one."
    )
    text += " The number at a block is its head's." * any(p.blocks.labels for p in panels)
    return text + f" ◆ {shared}" * any(panel.blocks.is_shared for panel in panels)


def write_header(ax: Axes, title: str, header: list[str]) -> None:
    """Write a panel's title, and the lines below it."""
    ax.set_axis_off()
    write_title(ax, title, 9, 4, y=1.0, **MONO)
    for i, line in enumerate(header):
        write(ax, 0, LINE * i, line, 7, color=MUTED if i else INK, **MONO)


def block_places(panel: Panel, header: list[str]) -> list[Point]:
    """Return where each block's upper left corner lies in its panel."""
    lefts, tops = panel.layout.lefts + panel.left, panel.layout.tops + LINE * len(header)
    return list(zip(lefts.tolist(), tops.tolist(), strict=True))


def _name_axes(ax: Axes, panel: Panel, left: float, top: float) -> None:
    blocks, layout = panel.blocks, panel.layout
    width, height = panel.block_size
    style: dict[str, Any] = {"size": 6.5, "color": MUTED, **MONO}
    if blocks.row_axis:
        long = 6.5 * MONO_WIDTH * len(blocks.row_axis)
        middle = top + LABEL_ROOM + max(height, long) / 2
        write(ax, 0.12, middle, blocks.row_axis, align="right center", rotation=90, **style)
    if blocks.column_axis:
        width = width if blocks.spread == "apart" else layout.width
        middle = left + max(width, 6.5 * MONO_WIDTH * len(blocks.column_axis)) / 2
        below = top + layout.height + 0.04
        write(ax, middle, below, blocks.column_axis, align="center top", **style)


def _draw_squares(ax: Axes, shade: Array, color: str, at: Point, layout: Layout) -> None:
    """Draw a block cell by cell, with gaps."""
    colormap = fade(color)
    squares = PolyCollection(
        cell_corners(shade.shape, at, layout.cell, inset=0.06, pitch=layout.pitch),
        array=shade.ravel(), cmap=colormap, norm=Normalize(0, 1), edgecolors=[colormap(0.4)],
        linewidths=min(0.4, 4 * layout.cell), clip_on=False,
    )  # fmt: skip
    squares.set_rasterized(len(layout.lefts) * shade.size > MAX_VECTORS)  # an SVG stays small
    ax.add_collection(squares, autolim=False)


def _draw_image(ax: Axes, shade: Array, color: str, at: Point, layout: Layout) -> None:
    width, height = shade.shape[1] * layout.cell, shade.shape[0] * layout.cell
    ax.imshow(
        shade, cmap=fade(color), norm=Normalize(0, 1), aspect="auto",
        extent=(at[0], at[0] + width, at[1] + height, at[1]), clip_on=False,
    )  # fmt: skip
    frame = Rectangle(at, width, height, fill=False, edgecolor=color, linewidth=0.5, clip_on=False)
    ax.add_patch(frame)


def _mark_negative(
    ax: Axes, negative: Array, shade: Array, color: str, at: Point, layout: Layout
) -> None:
    """Draw a minus into the negative cells of a block: the colour tells the size alone."""
    rows, columns = np.nonzero(negative)
    x = at[0] + layout.cell * (columns[:, None] + np.array([0.27, 0.73]))
    y = at[1] + layout.cell * (layout.pitch * rows[:, None] + np.array([0.5, 0.5]))
    lines: Any = np.stack([x, y], axis=-1)
    minus = LineCollection(
        lines, colors=[text_on(rgb) for rgb in fade(color)(shade[negative])], label="negative",
        linewidths=min(1.3, 72 * 0.14 * layout.cell), capstyle="butt", clip_on=False,
    )  # fmt: skip
    minus.set_rasterized(len(layout.lefts) * shade.size > MAX_VECTORS)
    ax.add_collection(minus, autolim=False)
