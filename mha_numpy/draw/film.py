"""The shape film: every recorded step as small squares, coloured by the head they belong to."""

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D

from mha_numpy.core.checks import check_count, check_flag, check_integer
from mha_numpy.core.dtypes import Array
from mha_numpy.draw.colors import (
    BROKEN,
    GREY,
    HIDDEN,
    INK,
    MUTED,
    NO_HEAD,
    fade,
    group_color,
    hatch_cells,
    head_color,
)
from mha_numpy.draw.save import DPI, Picture
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.trace import Step, Trace

MAX_STEPS = 300  # in one film
MAX_SIDE = 64  # rows or columns of a block drawn as squares; beyond it is an image
MAX_VECTORS = 800  # squares in a panel that are shapes in an SVG; more are pixels there

# lengths in inches
MAX_WIDTH = 12.8  # of all panels side by side
PIXEL = 1 / DPI
CELL = 22 * PIXEL  # at most; whole pixels, so that all gaps look alike
SMALLEST_SQUARE = 5 * PIXEL  # smaller cells are drawn without gaps
PICTURES = ((2.0, 0.06), (2.9, 0.03))  # largest width or height of a picture; smallest cell
MARGIN, GUTTER = 0.3, 0.28
TITLE, LINE = 0.22, 0.14
TEXT = 1.75  # what a panel's text has at least
AXIS_ROOM, LABEL_ROOM = 0.2, 0.14  # an axis' name; a head's number at its block
MONO = 0.602 / 72  # width of a monospaced character, per point of its size


class _Blocks(NamedTuple):
    """One step, cut into equal blocks that lie on a grid."""

    values: Array  # (blocks, rows, columns)
    colors: Sequence[str]  # of each block
    labels: Sequence[str]  # of each block: its query heads; none without heads
    is_shared: bool  # whether a block serves several query heads
    across: int  # blocks in a row of the grid
    spread: str  # "touching", "in row" (a row is cut into pieces), or "apart"
    row_axis: str
    column_axis: str


class _Layout(NamedTuple):
    """Where the blocks of one step lie, from its picture's upper left corner."""

    cell: float
    pitch: float  # from one row to the next, in cells
    lefts: Array  # (blocks,)
    tops: Array  # (blocks,)
    width: float
    height: float
    label_at: str  # "above", "right", or "" where there is no room
    as_image: bool  # too many or too small cells for gaps


class _Panel(NamedTuple):
    """One step, ready to be drawn."""

    step: Step
    blocks: _Blocks
    layout: _Layout
    facts: list[str]  # axes and memory

    @property
    def title(self) -> str:
        """The step's number and name, and a mark where heads are shared."""
        return f"{self.step.number} {self.step.name}" + " ◆" * self.blocks.is_shared

    @property
    def width(self) -> float:
        """What the picture and its unbroken lines need."""
        lines = max(7 * MONO * len(line) for line in self.facts)
        return max(AXIS_ROOM + self.layout.width, 9 * MONO * len(self.title), lines, TEXT)


class _Grid(NamedTuple):
    """Where the panels lie."""

    across: int
    widths: list[float]  # of each column
    heights: list[float]  # of each row, with its title
    headers: list[list[str]]  # the lines under each panel's title, equally many along a row

    @property
    def width(self) -> float:
        """All columns and the gutters between them."""
        return sum(self.widths) + GUTTER * (len(self.widths) - 1)

    @property
    def height(self) -> float:
        """All rows and the gutters between them."""
        return sum(self.heights) + GUTTER * (len(self.heights) - 1)


def shape_film(
    trace: Trace, *, backward: bool = False, sequence: int = 0, columns: int | None = None
) -> Picture:
    """Draw every step of a pass in order, left to right and top to bottom, one panel each.

    A small square is a number: its colour is that of the head it belongs to (grey: of none), its
    shade ``|value|`` relative to the panel's largest. So one sees each token's row being cut into
    heads, the heads parting, attending, and lying side by side again.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``.
    backward : bool
        Draw the steps of backward instead of those of forward.
    sequence : int
        Which sequence of the batch; nothing else of axis B is drawn.
    columns : int, optional
        Panels in a row; default 6 where they fit a slide's width, else 3: much comes in threes.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the panels.

    Raises
    ------
    ConfigError
        `trace` has no step of that pass or more than 300, `sequence` is not in the batch, or
        `columns` is not a count.
    ShapeError
        The axes that a step names do not fit its array.

    Notes
    -----
    Only a step's axes are read, never its name. An axis H or H_kv makes blocks; an axis such as
    H*d_k is coloured piece by piece. A key/value head that serves several query heads has the
    colour of the first of them, and its panel a ◆. Cells of -inf are hatched, NaN and +inf
    cross-hatched. Squares are of one size in the whole film where that fits; a panel that is drawn
    smaller says so. Blocks of more than 64 rows or columns are images without gaps.

    Examples
    --------
    >>> from mha_numpy.core import attention_forward
    >>> from mha_numpy.trace import trace
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out, cache = attention_forward(x, x, x)
    >>> film = shape_film(t)
    >>> [panel.get_title(loc="left") for panel in film.axes]
    ['1 q', '2 k', '3 v', '4 scores', '5 weights', '6 heads']
    """
    steps = _chosen(trace, backward=check_flag("backward", backward))
    batch = _check_sequence(steps, sequence)
    panels = _prepare(steps, trace.steps, sequence)
    grid = _arrange(panels, columns)

    heading = f"Shape film of the {'backward' if backward else 'forward'} pass: {len(panels)} steps"
    if batch is not None and batch > 1:
        heading += f", sequence {sequence} of a batch of {batch}"
    width = max(grid.width, 7.0, 0.115 * len(heading))
    notes, legend = _notes(panels, width), _legend(panels)
    entry = 0.42 + 0.062 * max(map(len, legend))
    in_line = max(1, int(width / entry))
    notes_at = MARGIN + 0.32
    legend_at = notes_at + LINE * 1.1 * len(notes) + 0.1
    panels_at = _pixels(legend_at + 0.21 * math.ceil(len(legend) / in_line) + 0.2)
    width, height = _pixels(width + 2 * MARGIN), panels_at + grid.height + MARGIN

    film = Picture(figsize=(width, height), facecolor="white")
    film.set_label(_alt_text(heading, panels))
    inches = Affine2D().scale(1, -1).translate(0, height) + film.dpi_scale_trans  # from upper left
    film.text(
        MARGIN, MARGIN, heading, transform=inches, va="top",
        fontsize=13, fontweight="bold", color=INK, parse_math=False,
    )  # fmt: skip
    film.text(
        MARGIN, notes_at, "\n".join(notes), transform=inches, va="top",
        fontsize=8, color=MUTED, linespacing=1.3, parse_math=False,
    )  # fmt: skip
    for i, (text, patch) in enumerate(legend.items()):
        row, column = divmod(i, in_line)
        left, top = MARGIN + column * entry, legend_at + 0.21 * row
        patch.set(bounds=(left, top, 0.14, 0.14), transform=inches)
        film.add_artist(patch)
        film.text(
            left + 0.2, top + 0.07, text, transform=inches, va="center", fontsize=8, color=INK
        )
    for i, panel in enumerate(panels):
        row, column = divmod(i, grid.across)
        left = MARGIN + sum(grid.widths[:column]) + GUTTER * column
        top = panels_at + sum(grid.heights[:row]) + GUTTER * row + TITLE
        size = grid.widths[column], grid.heights[row] - TITLE
        ax = film.add_axes(
            (left / width, 1 - (top + size[1]) / height, size[0] / width, size[1] / height),
            label=f"step {panel.step.number}",
        )
        _paint(ax, panel, grid.headers[i])
        ax.set(xlim=(0, size[0]), ylim=(size[1], 0))
    return film


def _chosen(trace: Trace, *, backward: bool) -> list[Step]:
    """Return the steps of one pass, or raise a ConfigError."""
    if not isinstance(trace, Trace):
        raise ConfigError(
            f"trace: expected the Trace of `with trace() as t:`; got {type(trace).__name__}"
        )
    steps = [step for step in trace if step.is_backward == backward]
    if not steps:
        wanted, other = ("backward", "forward") if backward else ("forward", "backward")
        raise ConfigError(
            f"trace: expected at least one {wanted} step; got {len(trace)} {other} steps: "
            f"call {wanted} inside `with trace() as t:`"
        )
    if len(steps) > MAX_STEPS:
        raise ConfigError(
            f"trace: expected at most {MAX_STEPS} steps for one film; got {len(steps)}: "
            "record fewer calls"
        )
    return steps


def _check_sequence(steps: list[Step], sequence: int) -> int | None:
    """Return the size of the batch, None without one, or raise an error that names the step."""
    batch = None
    for step in steps:
        names, shape = step.axes.split(), step.array.shape
        if len(names) != len(shape):
            raise ShapeError(
                f"{step.name}: expected one axis name per axis of shape {shape}; got {step.axes!r}"
            )
        if "B" in names:
            batch = shape[names.index("B")]
            if not 0 <= check_integer("sequence", sequence) < batch:
                raise ConfigError(
                    f"sequence: expected an index into the batch, 0 <= sequence < B={batch} "
                    f"({step.name}); got {sequence}"
                )
    if batch is None and check_integer("sequence", sequence) != 0:
        raise ConfigError(f"sequence: expected 0, as no step has an axis B; got {sequence}")
    return batch


def _prepare(steps: list[Step], recorded: list[Step], sequence: int) -> list[_Panel]:
    """Cut every step into blocks and lay them out, with cells of one size where that fits."""
    cut = [_cut(step, sequence, recorded) for step in steps]
    for limit, smallest in PICTURES:
        cells = [_fit(blocks, limit).cell for blocks in cut]
        cell = min((c for c in cells if c >= smallest), default=smallest)
        if min(cells) >= smallest:
            break
    panels = []
    for step, blocks in zip(steps, cut, strict=True):
        layout = _fit(blocks, limit, cell)
        sizes = zip(step.axes.split(), step.array.shape, strict=True)
        parts = [axis if axis == str(size) else f"{axis}={size}" for axis, size in sizes]
        axes = f"[{', '.join(parts)}]"
        memory = step.memory + ", drawn smaller" * (layout.cell < cell)
        panels.append(_Panel(step, blocks, layout, [axes, memory]))
    return panels


def _cut(step: Step, sequence: int, recorded: list[Step]) -> _Blocks:
    """Cut one sequence's array into one block per head, by the names of its axes."""
    names = step.axes.split()
    array = step.array.astype(np.result_type(step.array, np.float64), copy=False)
    if "B" in names:
        array = np.take(array, sequence, axis=names.index("B"))
        names.remove("B")
    stretched = tuple(i for i, axis in enumerate(names) if axis == "1" and array.shape[i] == 1)
    array = array.squeeze(stretched)
    names = [axis for i, axis in enumerate(names) if i not in stretched]
    if array.size == 0:
        return _Blocks(np.empty((1, 0, 0)), [NO_HEAD], [], False, 1, "touching", "", "")
    if not names:
        array, names = array.reshape(1), [""]
    heads = [
        (i, axis, *_heads_of(step, array.shape[i], axis, recorded)) for i, axis in enumerate(names)
    ]
    at, axis, H, group = max(heads, key=lambda head: (head[2] > 0, "*" not in head[1], head[0]))
    if H == 0:  # no head axis: one grey block
        rest = " ".join(names[:-1])
        values = array.reshape(1, math.prod(array.shape[:-1]), array.shape[-1])
        return _Blocks(values, [NO_HEAD], [], False, 1, "touching", rest, names[-1])

    others = names[:at] + names[at + 1 :]
    rest, last = " ".join(others[:-1]), others[-1] if others else ""
    inner = array.shape[at] // H
    if at == len(names) - 1:  # the columns belong to heads
        values = np.moveaxis(array.reshape(math.prod(array.shape[:-1]), H, inner), 1, 0)
        across, spread, row_axis, column_axis = H, "touching", " ".join(others), axis
    else:
        moved = np.moveaxis(array, at, 0)
        values = moved.reshape(H, inner * math.prod(moved.shape[1:-1]), moved.shape[-1])
        if "*" in axis or len(names) == 2:  # the rows belong to heads
            across, spread, row_axis, column_axis = 1, "touching", f"{axis} {rest}".strip(), last
        elif at == len(names) - 2:  # every row is cut into pieces, one for each head
            across, spread, row_axis, column_axis = H, "in row", rest, f"{axis}, {last}"
        else:
            across, spread, row_axis, column_axis = _blocks_across(values), "apart", rest, last
    colors = [group_color(g, group) for g in range(H)]
    labels = [f"{g * group}-{(g + 1) * group - 1}" if group > 1 else str(g) for g in range(H)]
    return _Blocks(values, colors, labels, group > 1, across, spread, row_axis, column_axis)


def _heads_of(step: Step, size: int, axis: str, recorded: list[Step]) -> tuple[int, int]:
    """Return how many heads an axis holds, 0 if none, and how many query heads each serves."""
    first, *factors = axis.split("*")
    if first not in ("H", "H_kv"):
        return 0, 1
    H = _size_near(step, first, recorded) if factors else size
    if H == 0 or size % H:
        return 0, 1
    queries = _size_near(step, "H", recorded) if first == "H_kv" else H
    return H, queries // H if queries and queries % H == 0 else 1


def _size_near(step: Step, axis: str, recorded: list[Step]) -> int:
    """Return the size of an axis in the nearest step that has it, or 0."""
    near = sorted(recorded, key=lambda other: abs(other.number - step.number))
    sizes = (dict(zip(s.axes.split(), s.array.shape, strict=False)) for s in near)
    return next((found[axis] for found in sizes if axis in found), 0)


def _blocks_across(values: Array) -> int:
    """Choose how many blocks stand side by side: about a square, without holes if possible."""
    H, rows, columns = values.shape
    divisors = [n for n in range(1, H) if H % n == 0]
    if H > 3 and divisors == [1]:
        return math.ceil(math.sqrt(H))
    return min(divisors, default=1, key=lambda n: (max(n * (columns + 1), H // n * (rows + 1)), -n))


def _lay_out(blocks: _Blocks, cell: float) -> _Layout:
    """Place the blocks, given the size of a cell."""
    n, rows, columns = blocks.values.shape
    as_image = max(rows, columns) > MAX_SIDE or cell < 0.99 * SMALLEST_SQUARE
    is_striped = blocks.spread == "in row" and not as_image
    pitch = round(1.5 * cell / PIXEL) * PIXEL / cell if is_striped else 1.0
    width, height = columns * cell, max(0.0, (rows - 1) * pitch + 1) * cell
    share, least = {"touching": (0.0, 0.0), "in row": (0.6, 0.04), "apart": (0.8, 0.07)}[
        blocks.spread
    ]
    most = 0.9 / max(blocks.across, n / blocks.across)  # a hundred heads leave room for cells
    gap = min(_pixels(max(share * cell, least)), most)
    label, label_at = 6 * MONO * max(map(len, blocks.labels), default=0), ""
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
    return _Layout(cell, pitch, lefts, tops, total_width, total_height, label_at, as_image)


def _fit(blocks: _Blocks, limit: float, cell: float = CELL) -> _Layout:
    """Lay out with cells of the given size, or of the largest that keeps to the limit."""
    layout = _lay_out(blocks, cell)
    while max(layout.width, layout.height) > limit:
        pixels = round(layout.cell / PIXEL)
        smaller = (pixels - 1) * PIXEL if pixels > 5 else 0.97 * layout.cell
        layout = _lay_out(blocks, smaller)
    return layout


def _arrange(panels: list[_Panel], columns: int | None) -> _Grid:
    """Choose the number of columns, and the size of each column and row."""
    for most in (6, 3, 2, 1) if columns is None else (check_count("columns", columns),):
        across = min(most, len(panels))
        widths = [_pixels(max(panel.width for panel in panels[i::across])) for i in range(across)]
        if sum(widths) + GUTTER * (across - 1) <= MAX_WIDTH:
            break
    heights, headers = [], []
    for first in range(0, len(panels), across):
        row = panels[first : first + across]
        lines = [panel.facts + _equation(panel, widths[i]) for i, panel in enumerate(row)]
        most = max(map(len, lines))
        headers += [own + [""] * (most - len(own)) for own in lines]
        tallest = max(
            max(panel.layout.height, LABEL_ROOM + 6.5 * MONO * len(panel.blocks.row_axis))
            for panel in row
        )
        heights.append(_pixels(TITLE + LINE * most + tallest + AXIS_ROOM))
    return _Grid(across, widths, heights, headers)


def _pixels(length: float) -> float:
    """Round a length up to whole pixels, for cells of one size to be drawn alike everywhere."""
    return math.ceil(length / PIXEL - 1e-6) * PIXEL


def _equation(panel: _Panel, width: float) -> list[str]:
    """Break the step's equation into lines: at spaces outside of brackets, and before a method."""
    if not panel.step.equation:
        return []
    most = int(width / (7 * MONO))
    text = re.sub(
        r"\([^()]*\)",
        lambda found: found[0].replace(" ", "\0") if len(found[0]) < most else found[0],
        f"= {panel.step.equation}",
    )
    lines = [""]
    for piece in re.split(r"(?<= )|(?=\.\w+\()", text):
        for start in range(0, len(piece), most - 2):  # a piece too long for a line is cut
            part = piece[start : start + most - 2]
            if lines[-1].strip() and len(lines[-1] + part.rstrip()) > most:
                lines.append("  ")
            lines[-1] += part
    return [line.rstrip().replace("\0", " ") for line in lines]


def _notes(panels: list[_Panel], width: float) -> list[str]:
    """Say how to read the film, in lines of a width."""
    text = "One cell is one number: white is 0, full colour the panel's largest |value|."
    if any(panel.blocks.labels for panel in panels):
        text += " The number at a block is its head's."
    if any(panel.blocks.is_shared for panel in panels):
        text += (
            " ◆ A key/value head that serves several query heads has the colour of the first "
            "and the numbers of all."
        )
    return textwrap.wrap(text, int(width / 0.062))


def _legend(panels: list[_Panel]) -> dict[str, Rectangle]:
    """Return a patch for everything that has a colour or a hatch of its own."""
    last = [panel.blocks.labels[-1] for panel in panels if panel.blocks.labels]
    H = max((int(label.split("-")[-1]) + 1 for label in last), default=0)
    styles: dict[str, dict[str, Any]] = {
        f"head {h}": {"facecolor": head_color(h)} for h in range(min(H, 16))
    }
    if H > 16:
        styles["16 on: again"] = {"facecolor": "none"}
    if any(not panel.blocks.labels for panel in panels):
        styles["no head"] = {"facecolor": NO_HEAD}
    for text, hatch, is_such in (
        ("-inf: hidden", HIDDEN, _is_hidden), ("NaN or +inf", BROKEN, _is_broken),
    ):  # fmt: skip
        if any(is_such(panel.blocks.values).any() for panel in panels):
            styles[text] = {"facecolor": "none", "edgecolor": GREY, "hatch": hatch}
    return {
        text: Rectangle((0, 0), 0, 0, linewidth=0, label=text, **style)
        for text, style in styles.items()
    }


def _is_hidden(values: Array) -> Array:
    """Return where the values are -inf."""
    return np.isneginf(values.real)


def _is_broken(values: Array) -> Array:
    """Return where the values are NaN or +inf."""
    return ~np.isfinite(values) & ~_is_hidden(values)


def _alt_text(heading: str, panels: list[_Panel]) -> str:
    """Return the film in words."""
    told = "; ".join(f"{panel.title} {' '.join(panel.facts)}" for panel in panels)
    return f"{heading}. One panel for each, its cells coloured by head: {told}."


def _paint(ax: Axes, panel: _Panel, header: list[str]) -> None:
    """Draw one panel: title, what is known about the step, and the picture."""
    _, blocks, layout, _ = panel
    ax.set_axis_off()
    ax.set_title(
        panel.title, loc="left", y=1.0, pad=4, color=INK, fontsize=9, fontweight="bold",
        fontfamily="monospace", parse_math=False,
    )  # fmt: skip
    for i, line in enumerate(header):
        ax.text(
            0, LINE * i, line, va="top", color=MUTED if i else INK, fontsize=7,
            fontfamily="monospace", parse_math=False,
        )  # fmt: skip
    left, top = AXIS_ROOM, LINE * len(header)
    _name_axes(ax, panel, left, top)
    if blocks.values.size == 0:
        ax.text(left, top + LABEL_ROOM, "no cells", va="top", color=MUTED, fontsize=7)
        return
    hidden, broken = _is_hidden(blocks.values), _is_broken(blocks.values)
    shown = np.ma.array(np.abs(blocks.values), mask=hidden | broken)
    largest = float(shown.max()) if shown.count() else 0.0
    shade = (shown > 0) * (0.1 + 0.9 * shown / (largest or 1.0))
    for i, (x, y) in enumerate(zip(left + layout.lefts, top + layout.tops, strict=True)):
        draw = _draw_image if layout.as_image else _draw_squares
        draw(ax, shade[i], blocks.colors[i], (x, y), layout)
        for cells, hatch in ((hidden[i], HIDDEN), (broken[i], BROKEN)):
            hatch_cells(ax, cells, hatch, at=(x, y), cell=layout.cell, pitch=layout.pitch)
        width, height = shade.shape[2] * layout.cell, _height(blocks, layout)
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


def _height(blocks: _Blocks, layout: _Layout) -> float:
    """Return the height of one block."""
    return max(0.0, (blocks.values.shape[1] - 1) * layout.pitch + 1) * layout.cell


def _name_axes(ax: Axes, panel: _Panel, left: float, top: float) -> None:
    """Write what the rows and the columns are."""
    _, blocks, layout, _ = panel
    style: dict[str, Any] = {
        "color": MUTED,
        "fontsize": 6.5,
        "fontfamily": "monospace",
        "parse_math": False,
    }
    if blocks.row_axis:
        long = 6.5 * MONO * len(blocks.row_axis)
        middle = top + LABEL_ROOM + max(_height(blocks, layout), long) / 2
        ax.text(0.12, middle, blocks.row_axis, rotation=90, ha="right", va="center", **style)
    if blocks.column_axis:
        width = blocks.values.shape[2] * layout.cell if blocks.spread == "apart" else layout.width
        middle = left + max(width, 6.5 * MONO * len(blocks.column_axis)) / 2
        below = top + layout.height + 0.04
        ax.text(middle, below, blocks.column_axis, ha="center", va="top", **style)


def _draw_squares(
    ax: Axes, shade: Array, color: str, at: tuple[float, float], layout: _Layout
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
    ax: Axes, shade: Array, color: str, at: tuple[float, float], layout: _Layout
) -> None:
    """Draw a block as an image in a frame."""
    width, height = shade.shape[1] * layout.cell, shade.shape[0] * layout.cell
    ax.imshow(
        shade, cmap=fade(color), norm=Normalize(0, 1), aspect="auto",
        extent=(at[0], at[0] + width, at[1] + height, at[1]), clip_on=False,
    )  # fmt: skip
    frame = Rectangle(at, width, height, fill=False, edgecolor=color, linewidth=0.5, clip_on=False)
    ax.add_patch(frame)
