"""Where the cells of an array came from, measured and told in words."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array


class Ramp(NamedTuple):
    """The array whose numbers tell where they stand: number n is column n % D of token n // D."""

    name: str
    B: int
    T: int
    D: int
    H: int

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.B * self.T * self.D

    @property
    def d(self) -> int:
        """The columns of a head."""
        return self.D // self.H

    def came_from(self, cells: Array) -> tuple[Array, Array, Array]:
        """Return the sequence, the token and the head that each number came from."""
        return cells // (self.T * self.D), cells // self.D % self.T, cells % self.D // self.d

    def tokens(self, cells: Array) -> Array:
        """Return the token that each number came from."""
        return self.came_from(cells)[1]


def mark_of(ramp: Ramp, row: Array) -> str:
    """Return what a row holds: "t0-1 h0" is tokens 0 and 1 of head 0."""
    parts = zip("bth", ramp.came_from(row), (ramp.B > 1, True, ramp.H > 1), strict=True)
    return " ".join(letter + _ranges(np.unique(found)) for letter, found, told in parts if told)


def _ranges(numbers: Array) -> str:
    """Return sorted numbers as "0-2,5"; as "0..5" where these are more than two pieces."""
    pieces: list[list[int]] = []
    for number in numbers.tolist():
        if pieces and number == pieces[-1][-1] + 1:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    if len(pieces) > 2:
        return f"{numbers[0]}..{numbers[-1]}"
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in pieces)


def sentence_of(ramp: Ramp, shape: tuple[int, ...], blocks: Array, labels: list[str]) -> str:
    """Say what the blocks of an array hold, as measured."""
    each = "each block: " if len(blocks) > 1 else ""
    rows, columns = list(blocks.reshape(-1, shape[-1])), list(np.concatenate(blocks, axis=1).T)
    for lines, word in ((rows, "row"), (columns, "column")):
        if all(_is_whole_token(ramp, line) for line in lines):
            return f"each {word}: one token, {_all(ramp.H, 'head')}"
    held = [tuple(map(np.unique, ramp.came_from(block))) for block in blocks]
    mixing = next((i for i, (sequences, _, _) in enumerate(held) if len(sequences) > 1), None)
    if mixing is not None:
        return _mix("sequences", ramp, blocks, labels, mixing)
    if all(len(heads) == 1 for _, _, heads in held):
        counts = {len(tokens) for _, tokens, _ in held}
        return f"{each}one head, {_some(counts, ramp.T, 'token')}{_direction(ramp, blocks)}"
    if all(len(tokens) == 1 and len(heads) == ramp.H for _, tokens, heads in held):
        return f"{each}one token, {_all(ramp.H, 'head')}"
    is_whole = all(np.unique(block).size == ramp.T * ramp.D for block in blocks)
    if len(blocks) > 1 and not is_whole:
        mixing = next(i for i, (_, _, heads) in enumerate(held) if len(heads) > 1)
        return _mix("heads", ramp, blocks, labels, mixing)
    mixing = next((i for i, row in enumerate(rows) if np.unique(ramp.tokens(row)).size > 1), None)
    if mixing is None:
        return f"rows part tokens: row 0 holds {_holding(ramp, rows[0])}"
    block, row = divmod(mixing, blocks.shape[1])
    where = f"row {row} of block {labels[block]}" if len(blocks) > 1 else f"row {row}"
    return f"rows mix tokens: {where} holds {_holding(ramp, rows[mixing])}"


def _is_whole_token(ramp: Ramp, line: Array) -> bool:
    return np.array_equal(line, line[0] + np.arange(ramp.D)) and line[0] % ramp.D == 0


def _mix(what: str, ramp: Ramp, blocks: Array, labels: list[str], mixing: int) -> str:
    if len(blocks) == 1:
        return f"mixes {what}: {_holding(ramp, blocks[0])}"
    return f"blocks mix {what}: block {labels[mixing]} holds {_holding(ramp, blocks[mixing])}"


def _direction(ramp: Ramp, blocks: Array) -> str:
    """Say how the tokens of one head lie in a block, if they lie one by one."""
    for axis, word in ((2, "row"), (1, "column")):
        tokens = ramp.tokens(blocks)
        first = tokens.min(axis=axis)  # (blocks, rows)
        if (first != tokens.max(axis=axis)).any():
            continue
        if (np.diff(first, axis=1) > 0).all():
            return f", one in each {word}"
        if all(len(np.unique(line)) == len(line) for line in first):
            return f", one in each {word}, in another order"
    return ", mixed" if max(blocks.shape[1:]) > 1 else ""


def _holding(ramp: Ramp, cells: Array) -> str:
    """Return "tokens 0 and 1 of both heads"."""
    sequences, tokens, heads = map(np.unique, ramp.came_from(cells))
    text = _named(tokens, ramp.T, "token")
    if ramp.H > 1:
        text += f" of {_named(heads, ramp.H, 'head')}"
    if ramp.B > 1:
        text += f" of {_named(sequences, ramp.B, 'sequence')}"
    return text


def _named(numbers: Array, of: int, noun: str) -> str:
    """Return "both heads", "token 1", "tokens 0 and 1", or "3 of 8 tokens"."""
    n = len(numbers)
    if n == 1:
        return f"{noun} {numbers[0]}"
    if n == of:
        return _all(n, noun)
    if n == 2:
        return f"{noun}s {numbers[0]} and {numbers[1]}"
    if all(b == a + 1 for a, b in pairwise(numbers.tolist())):
        return f"{noun}s {numbers[0]} to {numbers[-1]}"
    return f"{n} of {of} {noun}s"


def _all(n: int, noun: str) -> str:
    """Return "the one head", "both heads" or "all 4 heads"."""
    return f"the one {noun}" if n == 1 else f"both {noun}s" if n == 2 else f"all {n} {noun}s"


def _some(counts: set[int], of: int, noun: str) -> str:
    """Return "all 4 tokens", "2 of 4 tokens", or "1 to 3 of 4 tokens" where blocks differ."""
    least, most = min(counts), max(counts)
    if least == of:
        return _all(of, noun)
    return f"{least if least == most else f'{least} to {most}'} of {of} {noun}s"


def count_of(n: int, noun: str) -> str:
    """Return "1 head" or "2 heads"."""
    return f"{n} {noun}{'s' * (n != 1)}"
