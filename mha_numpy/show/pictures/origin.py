"""The origin film: where every cell came from, through reshapes and transposes."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, DTypeError, ShapeError, describe
from mha_numpy.show.pictures.origin_words import Ramp, count_of, mark_of, sentence_of
from mha_numpy.show.pictures.panels import FULL, LINE, TITLE, break_code
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, Drawing, width_of, wrapped

MAX_SIDE, MAX_CELLS = 64, 2000  # rows or columns of a block; cells of the film
TOLERANCE = 1e-9  # what a product with ones and zeros may add to a number
PALEST = 0.22  # strength of token 0; the last token has the full colour

# units
CELL, SMALLEST, GAP = 26, 3, 2  # a cell with its number; the least; between cells
BETWEEN = 14  # blocks


class _Panel(NamedTuple):
    """One array, cut into blocks by its leading axes."""

    name: str
    shape: tuple[int, ...]
    blocks: Array  # (blocks, rows, columns) of the ramp's numbers
    labels: list[str]  # of each block; none where the array is one
    marks: list[list[str]]  # of each block's rows: where they came from; none without room
    pitch: float  # from one cell to the next
    sentence: str

    @property
    def mark_width(self) -> float:
        """What the longest mark needs."""
        longest = max((width_of(mark, "sh") for rows in self.marks for mark in rows), default=0)
        return longest + 6 * bool(longest)

    @property
    def block_size(self) -> tuple[float, float]:
        """Width and height of a block with its marks or its label, without the gap behind it."""
        _, rows, columns = self.blocks.shape
        label = max((width_of(text, "sh") for text in self.labels), default=0)
        width = self.mark_width + max(columns * self.pitch - GAP, label)
        return width, TITLE * bool(self.labels) + rows * self.pitch - GAP

    @property
    def across(self) -> int:
        """How many blocks of an axis are side by side, best without holes."""
        n = self.shape[-3] if len(self.shape) > 2 else 1
        most = max(1, int((FULL + BETWEEN) / (self.block_size[0] + BETWEEN)))
        divisor = max(part for part in range(1, min(n, most) + 1) if n % part == 0)
        return divisor if 2 * divisor > min(n, most) else min(n, most)

    def place(self, i: int) -> tuple[int, int]:
        """Return the line and the place in it of block i; the outer axes begin new lines."""
        n = self.shape[-3] if len(self.shape) > 2 else 1
        outer, inner = divmod(i, n)
        return outer * math.ceil(n / self.across) + inner // self.across, inner % self.across


def origin_film(arrays: Mapping[str, Array], num_heads: int) -> Picture:
    """Draw where every cell came from: its colour is the head, its strength the token of origin.

    The first array is a ramp, so that a number tells its place; the others were made of it by
    reshapes, transposes, copies and slices. A right split then shows blocks of one colour with
    all tokens down their rows; a reshape without the transpose shows blocks of mixed colours.

    Parameters
    ----------
    arrays : mapping of names to arrays
        In order. First ``np.arange(B * T * D).reshape(B, T, D)``, or (T, D); then arrays of rank 1
        to 4 that hold numbers of it. A name is the title, often the code that made the array.
    num_heads : int
        H; must divide D. Columns ``h * d`` to ``(h + 1) * d - 1`` of the ramp are head h.

    Returns
    -------
    Picture
        One panel for each array.

    Notes
    -----
    The last two axes are rows and columns, the leading ones make blocks. A row's mark says what it
    holds: ``t1 h0`` is token 1 of head 0 (``b``: of which sequence). The sentence under a panel is
    measured. Numbers may be off by 1e-9: attention in which every token sees only itself keeps the
    ramp, and can come between the split and the merge.

    Examples
    --------
    >>> x = np.arange(12).reshape(1, 3, 4)
    >>> right = x.reshape(1, 3, 2, 2).transpose(0, 2, 1, 3)
    >>> film = origin_film({"x": x, "right": right, "wrong": x.reshape(1, 2, 3, 2)}, 2)
    >>> for sentence in film.alt.split("; ")[1:]:
    ...     print(sentence)
    right (1, 2, 3, 2): each block: one head, all 3 tokens, one in each row
    wrong (1, 2, 3, 2): blocks mix heads: block [0, 0] holds tokens 0 and 1 of both heads.
    """
    ramp, cells = _check_arrays(arrays, check_count("num_heads", num_heads))
    panels = _prepare(ramp, cells)
    parts = [
        count_of(ramp.H, "head"),
        f"{count_of(ramp.d, 'column')} each",
        count_of(ramp.T, "token"),
    ]
    title = f"Where every cell came from: {', '.join(parts)}"
    told = "; ".join(f"{panel.name} {panel.shape}: {panel.sentence}" for panel in panels)
    drawn = [_draw(panel, ramp) for panel in panels]
    return Picture(drawn, title=title, notes=_notes(ramp), alt=f"{title}. {told}.")


def _check_arrays(arrays: Mapping[str, Array], H: int) -> tuple[Ramp, dict[str, Array]]:
    if not isinstance(arrays, Mapping) or not arrays:
        raise ConfigError(
            f"arrays: expected a mapping of names to arrays, the ramp first; got {describe(arrays)}"
        )
    given = {str(name): _check_array(str(name), array) for name, array in arrays.items()}
    name, first = next(iter(given.items()))
    numbers = np.arange(first.size).reshape(first.shape)
    if first.ndim not in (2, 3) or not np.array_equal(first, numbers):
        raise ConfigError(
            f"{name}: expected the first array to be the ramp np.arange(B * T * D).reshape(B, T, "
            f"D), whose numbers tell where they stand; got {describe(first)}"
        )
    B, T, D = (1, *first.shape)[-3:]
    if D % H:
        raise ConfigError(f"num_heads: expected a divisor of D={D}; got {H}")
    total = sum(array.size for array in given.values())
    if total > MAX_CELLS:
        raise ConfigError(
            f"arrays: expected at most {MAX_CELLS} cells in all; got {total}: show fewer arrays, "
            "or a smaller ramp"
        )
    return Ramp(name, B, T, D, H), {
        name: _whole(name, array, first.size) for name, array in given.items()
    }


def _check_array(name: str, array: Array) -> Array:
    array = as_array(name, array, "an array of real numbers", DTypeError)
    if array.dtype.kind not in "iuf":
        raise DTypeError(f"{name}: expected an array of real numbers; got {describe(array)}")
    if not 1 <= array.ndim <= 4 or array.size == 0:
        raise ShapeError(
            f"{name}: expected an array of rank 1 to 4, no axis empty; got {array.shape}"
        )
    if max(array.shape[-2:]) > MAX_SIDE:
        raise ConfigError(
            f"{name}: expected at most {MAX_SIDE} rows and columns; got {array.shape}: "
            "take a smaller ramp, the mistake is the same"
        )
    return array


def _whole(name: str, array: Array, size: int) -> Array:
    """Return an array's numbers as integers of the ramp, or raise a ConfigError that names one."""
    nearest = np.rint(array)
    with np.errstate(invalid="ignore"):  # inf - inf is no number of the ramp either
        off = ~((np.abs(array - nearest) <= TOLERANCE) & (nearest >= 0) & (nearest < size))
    if off.any():
        at = np.argwhere(off)[0].tolist()
        raise ConfigError(
            f"{name}: expected numbers of the ramp, 0 to {size - 1}; got {array[tuple(at)]:.10g} "
            f"at {at}: this picture follows moved cells; use shape_film for computed ones"
        )
    return nearest.astype(np.int64)


def _prepare(ramp: Ramp, arrays: dict[str, Array]) -> list[_Panel]:
    """Cut the arrays into blocks, with cells of one size that holds the numbers if it can."""
    widest = max(array.shape[-1] for array in arrays.values())
    pitch = max(SMALLEST, min(CELL + GAP, (FULL - 60) / widest))
    panels = []
    for name, array in arrays.items():
        rows, columns = (1, *array.shape)[-2:]
        blocks, leading = array.reshape(-1, rows, columns), array.shape[:-2]
        labels = [str(list(index)) for index in np.ndindex(*leading)] if leading else []
        marks = [[mark_of(ramp, row) for row in block] for block in blocks] if pitch >= 15 else []
        sentence = sentence_of(ramp, array.shape, blocks, labels)
        panel = _Panel(name, array.shape, blocks, labels, marks, pitch, sentence)
        if panel.block_size[0] > FULL:
            panel = panel._replace(marks=[])
        panels.append(panel)
    return panels


def _notes(ramp: Ramp) -> list[str]:
    """Say how to read the film."""
    letters = ["b sequence"] * (ramp.B > 1) + ["t token"] + ["h head"] * (ramp.H > 1)
    return [
        f"A number is a cell of {ramp.name} and goes with it wherever it is moved.",
        "Its colour is the head that its column belongs to, its strength the token, from pale "
        f"(token 0) to strong (token {ramp.T - 1}).",
        f"At each row: where its cells came from ({', '.join(letters)}).",
    ]


def _strength(ramp: Ramp, tokens: Array) -> Array:
    """Return the strength of tokens, from pale to full."""
    return PALEST + (1 - PALEST) * (tokens / (ramp.T - 1) if ramp.T > 1 else tokens + 0.5)


def _draw(panel: _Panel, ramp: Ramp) -> Drawing:
    drawn = Drawing(panel.name, f"{panel.name} {panel.shape}: {panel.sentence}.")
    y = float(MARGIN)
    for name in break_code(panel.name, int(FULL / width_of("0", "m"))):
        drawn.text(MARGIN, y + 13, name, "m")
        y += TITLE
    drawn.text(MARGIN, y + 13, str(panel.shape), "sh")
    y += 26
    width, height = panel.block_size
    for i in range(len(panel.blocks)):
        line, column = panel.place(i)
        left, top = MARGIN + column * (width + BETWEEN), y + line * (height + BETWEEN)
        _draw_block(drawn, panel, i, ramp, left, top)
    y = drawn.height + 22
    for words in wrapped(panel.sentence, max(drawn.width - MARGIN, 200)):
        drawn.text(MARGIN, y, words, "s i")
        y += LINE
    return drawn


def _draw_block(drawn: Drawing, panel: _Panel, i: int, ramp: Ramp, left: float, top: float) -> None:
    numbers, cell = panel.blocks[i], panel.pitch - GAP * (panel.pitch > 6)
    x, y = left + panel.mark_width, top + TITLE * bool(panel.labels)
    if panel.labels:
        drawn.text(x, y - 5, panel.labels[i], "sh")
    for row, mark in enumerate(panel.marks[i] if panel.marks else []):
        drawn.text(x - 6, y + row * panel.pitch + cell / 2 + 4, mark, "sh", align="end")
    _, tokens, heads = ramp.came_from(numbers)
    strength = _strength(ramp, tokens)
    has_numbers = cell >= width_of(str(ramp.size - 1), "sh") + 2 and cell >= 16
    for head in np.unique(heads).tolist():
        color = f"fill-{head % 8}" if has_numbers else f"head-{head % 8}"
        drawn.cells(
            (x, y), np.where(heads == head, strength, 0), color, (cell, cell), panel.pitch - cell,
            only=heads == head,
        )  # fmt: skip
    if has_numbers:
        for (row, column), number in np.ndenumerate(numbers):
            at = x + column * panel.pitch + cell / 2, y + row * panel.pitch + cell / 2 + 5
            drawn.text(*at, str(number), "n s3")
