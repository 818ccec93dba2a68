"""Rows and columns of cells with their words: a matrix, or the weights of a head."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.show.pictures.svg import (
    DESK,
    MARGIN,
    NUMBER,
    PHONE,
    SMALL,
    Drawing,
    shortened,
    width_of,
    wrapped,
)  # fmt: skip

MAX_NUMBERS = 12  # rows or columns with a number in each cell
COUNTED = 8  # places of a long axis that are numbered

# units
CELL, GAP, PLAIN, PLAIN_GAP = 40, 3, 19, 2  # a cell with a number and one without, and the gaps
NARROW, LOW = 27, 32  # the least width and height of a cell with a number
SIZES = (NUMBER, GAP, CELL), (SMALL, PLAIN_GAP, NARROW), (SMALL, PLAIN_GAP, PLAIN)  # of digits
TALLEST, THICK = 420, 16  # cells of many rows; an array of one row or column
WORD = {PHONE: 120, DESK: 240}  # the longest word at a row or column
LINE = 18  # from one line of text to the next
PITCH = 16  # from one word to the next, at least
ROW = 18  # from one row with a word to the next
BREAK = 8  # between blocks of rows or columns


class Grid(NamedTuple):
    """What is drawn of one array."""

    name: str
    desc: str
    shares: Array  # (rows, columns), -1 to 1
    head: int | None = None  # whose colour it has
    numbers: Sequence[str] = ()  # of the cells, row by row; none where there are too many
    rows: Sequence[str] | None = None  # words
    columns: Sequence[str] | None = None
    hidden: Array | None = None
    broken: Array | None = None
    blind: Array | None = None  # rows that may attend to nothing
    facts: Sequence[str] = ()  # below, in mono
    is_marked: bool = False  # with the head's shape
    widest: str = "n"  # the number that sets the width of a cell, as in the grids beside it
    blocks: Sequence[int] = ()  # the heads that its columns belong to, block by block
    kind: str = "w"  # of the words at rows and columns: those of a sentence, or names of arrays
    parts: Sequence[str] = ()  # names of equal blocks of columns, above them
    breaks: Sequence[int] = ()  # rows that begin another block

    def draw(self) -> tuple[Drawing, Drawing | None]:
        """Draw it for a phone, and once more where its cells or words need more room than that."""
        narrow, wide = self._layout(PHONE), self._layout(DESK)
        is_better = wide.has_numbers > narrow.has_numbers or wide.wide > 1.2 * narrow.wide
        is_better |= wide.left > narrow.left
        return self._paint(narrow), self._paint(wide) if is_better else None

    def _layout(self, limit: int) -> "_Layout":
        n_rows, n_columns = (max(1, n) for n in self.shares.shape)
        longest = max((width_of(word, self.kind) for word in self.rows or ()), default=0.0)
        is_counted = self.rows is None and n_rows > MAX_NUMBERS
        left = min(longest, WORD[limit]) + 8 if longest else 32 * is_counted
        room = limit - 2 * MARGIN - left - BREAK * max(0, len(self.parts) - 1)
        if self.numbers:
            long = max(width_of(each, "n") for each in (*self.numbers, self.widest))
            for size, gap, wanted in SIZES:
                least = max(wanted, long * size / NUMBER + (10 if wanted == CELL else 4))
                wide = min(max(least, CELL), (room + gap) / n_columns - gap)
                if wide >= least:
                    high = CELL if wide >= CELL else max(LOW, wide)
                    return self._place(left, math.floor(wide), math.floor(high), gap, size)
        gap = PLAIN_GAP
        pitch = min(PLAIN + gap, room / n_columns, TALLEST / n_rows)
        if pitch < 8:
            gap = 1 if pitch >= 5 else 0
        wide, high = (max(pitch - gap, THICK / n) for n in (n_columns, n_rows))
        if self.rows and n_rows * ROW <= TALLEST:
            high = max(high, ROW - gap)
        return self._place(left, wide, high, gap, 0)

    def _place(self, left: float, wide: float, high: float, gap: float, size: int) -> "_Layout":
        """Return where each column and row begins, blocks apart from one another."""
        n_rows, n_columns = self.shares.shape
        of_each = max(1, n_columns // max(1, len(self.parts)))
        across = [(wide + gap) * i + BREAK * (i // of_each) for i in range(n_columns)]
        down = [
            (high + gap) * i + BREAK * sum(row <= i for row in self.breaks) for i in range(n_rows)
        ]
        return _Layout(left, wide, high, gap, size, across, down)

    def _paint(self, at: "_Layout") -> Drawing:
        drawn = Drawing(self.name, self.desc)
        left, top = MARGIN + at.left, float(MARGIN)
        if self.name:
            has_mark = self.is_marked and self.head is not None
            if has_mark:
                drawn.mark(left + 6, top + 9, self.head or 0)
            x = left + 18 * has_mark
            for i, line in enumerate(wrapped(self.name, PHONE - MARGIN - x, "m")):
                drawn.text(x, top + 14 + LINE * i, line, "t" if self.is_marked else "m")
            top += 24 + LINE * i
        across, down = at.across, at.down
        for i, part in enumerate(self.parts):
            drawn.text(left + across[i * len(across) // len(self.parts)], top + 14, part, "m")
        top += 24 if self.parts else 0
        top = self._name_columns(drawn, at, left, top)
        kind, plain = ("fill", "fill-x") if at.has_numbers else ("head", "plain")
        heads: list[int | None] = [*self.blocks] or [self.head]
        colors = np.array([plain if head is None else f"{kind}-{head % 8}" for head in heads])
        colors = colors.repeat(self.shares.shape[1] // len(heads))
        for rows, columns in self._blocks() if self.shares.size else ():
            hidden, broken = (
                None if cells is None else cells[rows, columns]
                for cells in (self.hidden, self.broken)
            )
            drawn.cells(
                (left + across[columns.start], top + down[rows.start]),
                self.shares[rows, columns], colors[columns], (at.wide, at.high), at.gap,
                hidden=hidden, broken=broken,
            )  # fmt: skip
        self._name_rows(drawn, at, left, top)
        if at.has_numbers:
            self._write_numbers(drawn, at, left, top)
        if self.blind is not None:
            self._mark_blind(drawn, at, left, top)
        below = top + (down[-1] + at.high if down else -at.gap)
        for i, fact in enumerate(self.facts):
            drawn.text(left, below + 19 + LINE * i, fact, "sh")
        return drawn

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows and columns of each block of cells."""
        n_rows, n_columns = self.shares.shape
        of_each = n_columns // max(1, len(self.parts))
        for rows, columns in product(
            pairwise([0, *self.breaks, n_rows]), pairwise(range(0, n_columns + 1, of_each))
        ):
            yield slice(*rows), slice(*columns)

    def _name_columns(self, drawn: Drawing, at: "_Layout", left: float, top: float) -> float:
        """Write the columns' words, turned where they do not fit; return where cells begin."""
        pitch, n = at.wide + at.gap, self.shares.shape[1]
        places = [left + x + at.wide / 2 for x in at.across]
        if self.columns is None:
            if n > MAX_NUMBERS:
                every = _every(n, pitch)
                for i in range(0, n, every):
                    drawn.text(places[i], top + 11, str(i), "s", align="middle")
                return top + 18
            return top
        long = [width_of(word, self.kind) for word in self.columns]
        if max(long, default=0) <= pitch - 2:
            for x, word in zip(places, self.columns, strict=True):
                drawn.text(x, top + 14, word, self.kind, align="middle")
            return top + 22
        high = min(WORD[PHONE], max(long))
        for i in range(0, n, math.ceil(PITCH / pitch)):
            word = shortened(self.columns[i], WORD[PHONE], self.kind)
            drawn.text(places[i] + 4.5, top + high, word, self.kind, is_turned=True)
        return top + high + 8

    def _name_rows(self, drawn: Drawing, at: "_Layout", left: float, top: float) -> None:
        pitch, n = at.high + at.gap, self.shares.shape[0]
        every = math.ceil(PITCH / pitch)
        words, kind = self.rows, self.kind
        if words is None and n > MAX_NUMBERS:
            words, kind, every = [str(i) for i in range(n)], "s", _every(n, pitch)
        for i, word in list(enumerate(words or ()))[::every]:
            y = top + at.down[i] + at.high / 2 + 5
            drawn.text(left - 8, y, shortened(word, at.left - 7, kind), kind, align="end")

    def _write_numbers(self, drawn: Drawing, at: "_Layout", left: float, top: float) -> None:
        size = "" if at.size == NUMBER else " s3"
        cells = zip(np.ndindex(*self.shares.shape), self.numbers, strict=True)
        for (row, column), text in cells:
            share = abs(float(self.shares[row, column]))
            weight = " z" if text in ("0", "") else " b" if self.is_marked and share >= 0.1 else ""
            x = left + at.across[column] + at.wide / 2
            y = top + at.down[row] + at.high / 2 + 5
            if text:
                drawn.text(x, y, text, f"n{size}{weight}")

    def _mark_blind(self, drawn: Drawing, at: "_Layout", left: float, top: float) -> None:
        """Write over rows that may attend to nothing, once for neighbours."""
        assert self.blind is not None
        across = at.across[-1] + at.wide
        text = "sees nothing" if across > 96 else "∅"
        long = width_of(text) + 6
        edges = np.diff(np.pad(self.blind.astype(np.int8), 1))
        for first, past in zip(*(np.nonzero(edges == sign)[0] for sign in (1, -1)), strict=True):
            y = top + (at.down[first] + at.down[past - 1] + at.high) / 2
            drawn.box(left + (across - long) / 2, y - 9, long, 18, fill="card", rx=4)
            drawn.text(left + across / 2, y + 5, text, "s", align="middle")


class _Layout(NamedTuple):
    left: float  # room for the rows' words
    wide: float  # of a cell
    high: float
    gap: float
    size: int  # of a number; 0: without
    across: list[float]  # where each column begins
    down: list[float]  # and each row

    @property
    def has_numbers(self) -> bool:
        return self.size > 0


def _every(n: int, pitch: float) -> int:
    """Return a power of two: one place of so many is numbered."""
    least = max(1.0, n / COUNTED, 26 / pitch)
    return int(1 << math.ceil(math.log2(least)))
