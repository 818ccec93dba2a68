"""The origin film: where every cell came from, through reshapes and transposes."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError, describe
from mha_numpy.show.pictures.labels import named_arrays
from mha_numpy.show.pictures.panels import FULL, LINE, TITLE, break_code
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, Drawing, width_of, wrapped

MAX_SIDE, MAX_CELLS = 64, 2000  # rows or columns of a block; cells of an array
TOLERANCE = 1e-9  # what a product with ones and zeros may add to a number
PALEST = 0.22  # strength of token 0; the last token has the full colour

# units
CELL, SMALLEST, GAP = 26, 3, 2  # a cell with its number; the least; between cells
BETWEEN, MARKED = 14, 15  # blocks; a row with room for its mark


class Ramp(NamedTuple):
    """The array whose numbers tell where they are: number n is column n % D of token n // D."""

    name: str
    B: int
    T: int
    D: int
    H: int

    def came_from(self, cells: Array) -> tuple[Array, Array, Array]:
        """Return the sequence, the token and the head that each number came from."""
        d = self.D // self.H
        return cells // (self.T * self.D), cells // self.D % self.T, cells % self.D // d


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
    >>> for panel in film.panels[1:]:
    ...     print(panel.desc)
    right (1, 2, 3, 2): each block: one head, all 3 tokens; each row: one head, one token.
    wrong (1, 2, 3, 2): each block: both heads, 2 of 3 tokens; each row: one head, one token.
    """
    ramp, cells = _check_arrays(arrays, check_count("num_heads", num_heads))
    widest = max(array.shape[-1] for array in cells.values())
    pitch = max(SMALLEST, min(CELL + GAP, (FULL - 60) / widest))  # cells of one size
    drawn = [_draw(name, array, ramp, pitch) for name, array in cells.items()]
    counts = [(ramp.H, "head"), (ramp.D // ramp.H, "column"), (ramp.T, "token")]
    heads, columns, tokens = (f"{n} {noun}{'s' * (n != 1)}" for n, noun in counts)
    title = f"Where every cell came from: {heads}, {columns} each, {tokens}"
    told = "; ".join(panel.desc.removesuffix(".") for panel in drawn)
    return Picture(drawn, title=title, notes=_notes(ramp), alt=f"{title}. {told}.")


def _check_arrays(arrays: Mapping[str, Array], H: int) -> tuple[Ramp, dict[str, Array]]:
    given = named_arrays("arrays", arrays, "iuf")
    for name, array in given.items():
        if not 1 <= array.ndim <= 4 or array.size == 0:
            raise ShapeError(
                f"{name}: expected an array of rank 1 to 4, no axis empty; got {array.shape}"
            )
        if max(array.shape[-2:]) > MAX_SIDE or array.size > MAX_CELLS:
            raise ConfigError(
                f"{name}: expected at most {MAX_SIDE} rows and columns, and {MAX_CELLS} cells; got "
                f"{array.shape}: take a smaller ramp, the mistake is the same"
            )
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
    whole = {name: _whole(name, array, first.size) for name, array in given.items()}
    return Ramp(name, B, T, D, H), whole


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


def _notes(ramp: Ramp) -> list[str]:
    """Say how to read the film."""
    letters = ["b for sequence"] * (ramp.B > 1) + ["t for token"] + ["h for head"] * (ramp.H > 1)
    return [
        f"Each number names one cell of {ramp.name} and travels with it.",
        "The colour shows which head the cell belongs to; the shade shows its token, from pale (0) "
        f"to strong ({ramp.T - 1}).",
        f"Beside each row you read where its cells came from: {', '.join(letters)}.",
    ]


def _draw(name: str, array: Array, ramp: Ramp, pitch: float) -> Drawing:
    """Draw one array, cut into blocks by its leading axes."""
    rows, columns = (1, *array.shape)[-2:]
    blocks, leading = array.reshape(-1, rows, columns), array.shape[:-2]
    labels = [str(list(index)) for index in np.ndindex(*leading)] if leading else [""]
    marks = [[_mark_of(ramp, row) for row in block] for block in blocks]
    beside = max(width_of(mark, "sh") for names in marks for mark in names) + 6
    wide = max(columns * pitch - GAP, *(width_of(label, "sh") for label in labels))
    if pitch < MARKED or beside + wide > FULL:
        marks, beside = [[]] * len(blocks), 0.0
    wide, high = beside + wide, TITLE * bool(leading) + rows * pitch - GAP

    sentence = _sentence_of(ramp, blocks)
    drawn = Drawing(name, f"{name} {array.shape}: {sentence}.")
    y = float(MARGIN)
    for line in break_code(name, int(FULL / width_of("0", "m"))):
        drawn.text(MARGIN, y + 13, line, "m")
        y += TITLE
    drawn.text(MARGIN, y + 13, str(array.shape), "sh")
    y += 26
    inner = leading[-1] if leading else 1  # an outer axis begins a new line
    across = _side_by_side(inner, int((FULL + BETWEEN) / (wide + BETWEEN)))
    for i, block in enumerate(blocks):
        outer, at = divmod(i, inner)
        row, column = outer * -(-inner // across) + at // across, at % across
        corner = MARGIN + column * (wide + BETWEEN), y + row * (high + BETWEEN)
        _draw_block(drawn, block, ramp, pitch, corner, beside, labels[i], marks[i])
    y = drawn.height + 22
    for part in re.split("(?<=;) ", sentence):
        for words in wrapped(part, max(drawn.width - MARGIN, 220)):
            drawn.text(MARGIN, y, words, "s i")
            y += LINE
    return drawn


def _side_by_side(n: int, most: int) -> int:
    """Return how many of n blocks are in a line, best without holes."""
    most = max(1, min(n, most))
    divisor = max(part for part in range(1, most + 1) if n % part == 0)
    return divisor if 2 * divisor > most else most


def _draw_block(
    drawn: Drawing, numbers: Array, ramp: Ramp, pitch: float, corner: tuple[float, float],
    beside: float, label: str, marks: list[str],
) -> None:  # fmt: skip
    cell = pitch - GAP * (pitch > 6)
    x, y = corner[0] + beside, corner[1] + TITLE * bool(label)
    if label:
        drawn.text(x, y - 5, label, "sh")
    for row, mark in enumerate(marks):
        drawn.text(x - 6, y + row * pitch + cell / 2 + 4, mark, "sh", align="end")
    _, tokens, heads = ramp.came_from(numbers)
    strength = PALEST + (1 - PALEST) * (tokens / (ramp.T - 1) if ramp.T > 1 else tokens + 0.5)
    longest = str(ramp.B * ramp.T * ramp.D - 1)
    has_numbers = cell >= width_of(longest, "sh") + 2 and cell >= 16
    kind = "fill" if has_numbers else "head"
    colors = np.array([f"{kind}-{h}" for h in range(8)])[heads % 8]
    drawn.cells((x, y), strength, colors, (cell, cell), pitch - cell)
    if has_numbers:
        for (row, column), number in np.ndenumerate(numbers):
            at = x + column * pitch + cell / 2, y + row * pitch + cell / 2 + 5
            drawn.text(*at, str(number), "n s3")


def _mark_of(ramp: Ramp, row: Array) -> str:
    """Return what a row holds: "t0-1 h0" is tokens 0 and 1 of head 0."""
    parts = zip("bth", ramp.came_from(row), (ramp.B > 1, True, ramp.H > 1), strict=True)
    return " ".join(letter + _ranges(np.unique(found)) for letter, found, told in parts if told)


def _ranges(numbers: Array) -> str:
    """Return sorted numbers as "0-2,5"; as "0..5" where these are more than two pieces."""
    pieces = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    if len(pieces) > 2:
        return f"{numbers[0]}..{numbers[-1]}"
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in pieces)


def _sentence_of(ramp: Ramp, blocks: Array) -> str:
    """Say what each block and each row holds, as measured."""
    each_row = f"each row: {_held(ramp, blocks.reshape(-1, blocks.shape[-1]))}"
    if len(blocks) == 1:
        return each_row
    return f"each block: {_held(ramp, blocks.reshape(len(blocks), -1))}; {each_row}"


def _held(ramp: Ramp, pieces: Array) -> str:
    """Return how many heads, tokens and sequences a piece holds: "one head, all 4 tokens"."""
    sequences, tokens, heads = ramp.came_from(pieces)
    told = []
    for noun, of, found in (
        ("head", ramp.H, heads), ("token", ramp.T, tokens), ("sequence", ramp.B, sequences),
    ):  # fmt: skip
        counts = [len(np.unique(piece)) for piece in found]
        if of > 1 or noun == "token":
            told.append(_some(min(counts), max(counts), of, noun))
    return ", ".join(told)


def _some(least: int, most: int, of: int, noun: str) -> str:
    """Return "one head", "both heads", "all 4 tokens", "2 of 4 tokens" or "1 to 3 of 4 tokens"."""
    if most == 1:
        return f"one {noun}"
    if least == of:
        return f"both {noun}s" if of == 2 else f"all {of} {noun}s"
    return f"{least}{f' to {most}' if most > least else ''} of {of} {noun}s"
