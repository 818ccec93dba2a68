"""Where the blocks of a step, and the steps of a film, lie. Lengths are in inches."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mha_numpy.checking.tracing import Step
from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.blocks import Blocks, cut_step
from mha_numpy.show.pictures.labels import printable
from mha_numpy.show.pictures.layout import GUTTER, MAX_WIDTH, PIXEL, Box, pixels
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
MONO = 0.602 / 72  # width of a monospaced character, per point of its size


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
        return AXIS_ROOM + bool(longest) * (6 * MONO * longest + 0.03)

    @property
    def width(self) -> float:
        """What the picture and its unbroken lines need."""
        lines = max(7 * MONO * len(line) for line in self.facts)
        return max(self.left + self.layout.width, 9 * MONO * len(self.title), lines, TEXT)


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
        sizes = zip(step.axes.split(), step.array.shape, strict=True)
        parts = [axis if axis == str(size) else f"{axis}={size}" for axis, size in sizes]
        axes = f"[{', '.join(parts)}]"
        memory = step.memory + ", drawn smaller" * (layout.cell < cell)
        facts = [axes, memory]
        if layout.cell < SMALLEST_SIGN and (blocks.values.real < 0).any():
            facts.append("cells too small for a minus")
        names = (labels or {}).get(blocks.row_axis, ())
        fits = layout.cell * layout.pitch >= LEAST_ROW and blocks.values.shape[1] == len(names)
        names = [printable(name, LONGEST_NAME) for name in names] if fits else ()
        panels.append(Panel(step, blocks, layout, facts, row_names=names))
    return panels


def _lay_out(blocks: Blocks, cell: float) -> Layout:
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
    gap = min(pixels(max(share * cell, least)), most)
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
            max(panel.layout.height, LABEL_ROOM + 6.5 * MONO * len(panel.blocks.row_axis))
            for panel in row
        )
        height = LINE * most + tallest + AXIS_ROOM
        rows.append([Box(width, height, top=TITLE) for width in widths[: len(row)]])
    return rows, headers


def _equation(panel: Panel, width: float) -> list[str]:
    if not panel.step.equation:
        return []
    return break_code(f"= {panel.step.equation}", int(width / (7 * MONO)))


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


def picture_height(blocks: Blocks, layout: Layout) -> float:
    """Return the height of one block."""
    return max(0.0, (blocks.values.shape[1] - 1) * layout.pitch + 1) * layout.cell
