"""One recorded step as a panel: its name, axes and equation, below them its cells by head."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np

from mha_numpy.checking.tracing import Step
from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.blocks import Blocks, cut_step, is_broken, is_hidden
from mha_numpy.show.pictures.labels import printable
from mha_numpy.show.pictures.recorded import check_numbers
from mha_numpy.show.pictures.svg import MARGIN, PHONE, Drawing, shortened, width_of

# units
PITCHES = (15, 12, 10, 9, 8, 7, 6, 5, 4, 3)  # from one cell to the next, if they are squares
NAMED = 15  # a row's pitch with room for its word
HALF = 157 - 2 * MARGIN  # two panels of this width are side by side on a phone
FULL = PHONE - 2 * MARGIN
LINE, TITLE = 17, 18
LONGEST_NAME = 9  # characters of a row's word


class Layout(NamedTuple):
    """Where the blocks of one step are, from the upper left corner of its cells."""

    pitch: float  # from one cell to the next
    lefts: Array  # (blocks,)
    tops: Array  # (blocks,)
    width: float
    height: float
    label_at: str  # "above", "right", or "" where there is no room

    @property
    def gap(self) -> float:
        """What is left between cells."""
        return 2.0 if self.pitch >= 12 else 1.0 if self.pitch >= 4 else 0.0

    @property
    def cell(self) -> float:
        """The side of a cell."""
        return self.pitch - self.gap


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
        """The step's number and name, a param's name, and a mark where heads are shared."""
        number = f"{self.step.number} " * (not self.step.is_constant)
        title = f"{number}{self.step.name}" + " ◆" * self.blocks.is_shared
        return f"{title} {self.mark}".rstrip()

    @property
    def left(self) -> float:
        """Room for the rows' words."""
        return max((width_of(name, "w") + 6 for name in self.row_names), default=0.0)

    @property
    def width(self) -> float:
        """Half of a phone, or all of it."""
        return HALF if self.left + self.layout.width <= HALF else FULL

    @property
    def lines(self) -> list[str]:
        """Axes, memory and equation, broken into lines."""
        most = int(self.width / width_of("0", "sh"))
        equation = f"= {self.step.equation}" if self.step.equation else ""
        return [line for text in (*self.facts, equation) for line in break_code(text, most) if line]


def prepare(
    steps: list[Step],
    recorded: list[Step],
    sequence: int,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> list[Panel]:
    """Cut every step into blocks and lay them out, with cells of one size where that fits.

    The labels of an axis are beside the rows that it makes, where they fit.
    """
    check_numbers(steps)
    cut = [cut_step(step, sequence, recorded) for step in steps]
    named = [
        [printable(name, LONGEST_NAME) for name in names]
        if len(names := (labels or {}).get(blocks.row_axis, ())) == blocks.values.shape[1]
        else []
        for blocks in cut
    ]
    rooms = [FULL - max((width_of(n, "w") + 6 for n in names), default=0) for names in named]
    fitted = [_fit(blocks, room).pitch for blocks, room in zip(cut, rooms, strict=True)]
    common = min((pitch for pitch in fitted if pitch >= 5), default=min(fitted))
    panels = []
    for step, blocks, names, room in zip(steps, cut, named, rooms, strict=True):
        layout = _fit(blocks, room, common)
        memory = step.memory + ", drawn smaller" * (layout.pitch < common)
        facts = [f"[{', '.join(named_sizes(step))}]", memory]
        shown = names if layout.pitch >= NAMED else ()
        panels.append(Panel(step, blocks, layout, facts, row_names=shown))
    return panels


def named_sizes(step: Step) -> list[str]:
    """Return the axes with their sizes: "T_q=5", and "1" for a stretched one."""
    sizes = zip(step.axes.split(), step.array.shape, strict=True)
    return [axis if axis == str(size) else f"{axis}={size}" for axis, size in sizes]


def _lay_out(blocks: Blocks, pitch: float) -> Layout:
    """Place the blocks, given the distance of cells."""
    n, rows, columns = blocks.values.shape
    width, height = columns * pitch, rows * pitch
    gap = {"touching": 0.0, "in row": 0.6 * pitch, "apart": max(0.8 * pitch, 6.0)}[blocks.spread]
    label = max((width_of(text, "sh") for text in blocks.labels), default=0.0)
    label_at = ""
    if label and blocks.across == 1 and blocks.spread == "touching":
        label_at = "right" if height >= 15 else ""
    elif label:
        label_at = "above" if width + gap >= label + 2 else ""
    above = TITLE * (label_at == "above")
    down, right = np.divmod(np.arange(n), blocks.across)
    gap_y = gap + above if blocks.spread == "apart" else 0.0
    lefts, tops = right * (width + gap), above + down * (height + gap_y)
    beside = 5 + label if label_at == "right" else 0.0
    total = float(lefts.max(initial=0)) + width + beside, float(tops.max(initial=0)) + height
    return Layout(pitch, lefts, tops, *total, label_at)


def _fit(blocks: Blocks, room: float, most: float = PITCHES[0]) -> Layout:
    """Lay out with cells as large as fit, in whole units as far as possible."""
    whole = (pitch for pitch in PITCHES if pitch <= most)
    smaller = (PITCHES[-1] * 0.95**n for n in count())
    layouts = (_lay_out(blocks, pitch) for pitch in chain(whole, smaller))
    return next(layout for layout in layouts if max(layout.width, layout.height) <= room)


def break_code(code: str, most: int) -> list[str]:
    """Break code into lines: at spaces outside of brackets, and before a method."""
    text = re.sub(
        r"\([^()]*\)",
        lambda found: found[0].replace(" ", "\0") if len(found[0]) < most else found[0],
        code,
    )
    lines = [""]
    for piece in re.split(r"(?<= )|(?<!np)(?=\.\w+\()", text):
        for start in range(0, len(piece), most):  # a piece too long for a line is cut
            part = piece[start : start + most]
            if lines[-1].strip() and len(lines[-1] + part.rstrip()) > most:
                lines.append("  " if len(part.rstrip()) + 2 <= most else "")
            lines[-1] += part
    return [line.rstrip().replace("\0", " ") for line in lines]


def paint(drawn: Drawing, panel: Panel, x: float, y: float) -> list[tuple[float, float]]:
    """Draw a panel with its upper left corner at (x, y); return where its blocks are."""
    drawn.text(x, y + 13, shortened(panel.title, panel.width, "m"), "m")
    for i, line in enumerate(panel.lines):
        drawn.text(x, y + 13 + TITLE + LINE * i, line, "sh")
    left, top = x + panel.left, y + 26 + LINE * len(panel.lines)
    blocks, layout = panel.blocks, panel.layout
    drawn.reach(x + panel.width, top)
    if blocks.values.size == 0:
        drawn.text(x, top + 13, "no cells", "s")
        return []
    places = [
        (left + a, top + b)
        for a, b in zip(layout.lefts.tolist(), layout.tops.tolist(), strict=True)
    ]
    hidden, broken = is_hidden(blocks.values), is_broken(blocks.values)
    sizes = np.where(hidden | broken, 0, np.abs(blocks.values))
    shares = sizes / (float(sizes.max()) or 1.0)
    shares = np.where(shares > 0, 0.1 + 0.9 * shares, 0) * np.where(blocks.values.real < 0, -1, 1)
    for i, place in enumerate(places):
        drawn.cells(
            place, shares[i], blocks.colors[i], (layout.cell, layout.cell), layout.gap,
            hidden=hidden[i], broken=broken[i],
        )  # fmt: skip
        _name(drawn, panel, i, place)
    below = top + layout.height + 16
    across, down = blocks.column_axis, blocks.row_axis
    axes = "  ".join(f"{sign} {axis}" for sign, axis in (("↓", down), ("→", across)) if axis)
    drawn.text(x, below, shortened(axes, panel.width, "sh"), "sh")
    return places


def _name(drawn: Drawing, panel: Panel, i: int, place: tuple[float, float]) -> None:
    """Write a block's heads, and words at the rows of those on the left."""
    (x, y), layout = place, panel.layout
    _, rows, columns = panel.blocks.values.shape
    for row, name in enumerate(panel.row_names if layout.lefts[i] == 0 else ()):
        middle = y + layout.pitch * (row + 0.5) + 4
        drawn.text(x - 6, middle, name, "w", align="end")
    if layout.label_at == "above":
        middle = x + (columns * layout.pitch - layout.gap) / 2
        drawn.text(middle, y - 5, panel.blocks.labels[i], "sh", align="middle")
    elif layout.label_at == "right":
        beside = x + columns * layout.pitch + 4, y + rows * layout.pitch / 2 + 4
        drawn.text(*beside, panel.blocks.labels[i], "sh")


def reading(panels: list[Panel]) -> list[str]:
    """Say how cells, blocks and shared heads are read."""
    notes = ["A cell is a number: strong is large, a ring is less than zero."]
    if any(panel.blocks.labels for panel in panels):
        notes.append("The number at a block is its head's.")
    if any(is_hidden(panel.blocks.values).any() for panel in panels):
        notes.append("Hatched: hidden (-inf).")
    if any(is_broken(panel.blocks.values).any() for panel in panels):
        notes.append("Cross-hatched: NaN or +inf.")
    if any(panel.blocks.is_shared for panel in panels):
        notes.append(
            "◆ A key/value head that serves several query heads has the colour of the first and "
            "the numbers of all."
        )
    return notes
