"""Which indices of an axis a cell reads, and what operations on arrays make of that."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array


class NotKnownError(Exception):
    """The cells cannot be derived."""


class Read(NamedTuple):
    """Which indices of one axis a cell reads: `length` of them, from a start on.

    The start is a sum of look-ups, one for each axis of the cell that matters: `starts` holds
    (axis, what each index along it adds).
    """

    starts: tuple[tuple[int, tuple[int, ...]], ...]
    length: int
    size: int  # of the source's axis

    @property
    def is_whole(self) -> bool:
        """Whether the axis is read from end to end."""
        return self.length == self.size

    def at(self, index: Sequence[int]) -> range:
        """Return the indices that the cell at `index` reads."""
        start = sum(table[index[axis]] for axis, table in self.starts)
        return range(start, start + self.length)


Reads = tuple[Read, ...]  # one for each axis


def same(axis: int, size: int) -> Read:
    """Read an axis at the cell's own index."""
    return Read(((axis, tuple(range(size))),), 1, size)


def whole(size: int) -> Read:
    """Read all of an axis."""
    return Read((), size, size)


def broadcast(reads: Reads, shape: tuple[int, ...]) -> Reads:
    """Read an array of another shape that is broadcast, aligned at the right."""
    tail = reads[len(reads) - len(shape) :]
    return tuple(
        read if read.size == size else Read((), 1, 1)
        for read, size in zip(tail, shape, strict=True)
    )


def mapped(read: Read, indices: Array, size: int) -> Read:
    """Read at ``indices[i]`` where the cell's index was i."""
    if read.length > 1 or len(read.starts) != 1:
        raise NotKnownError
    ((axis, table),) = read.starts
    return Read(((axis, tuple(int(indices[i]) for i in table)),), 1, size)


def unreduced(reads: Reads, shape: tuple[int, ...], options: dict[Any, Any]) -> Reads:
    """Read those axes whole that a sum goes over."""
    axis = options.get("axis", tuple(range(len(shape))))
    summed = {n % len(shape) for n in (axis if isinstance(axis, tuple) else (axis,))}
    rest = iter(reads)
    found = []
    for n, size in enumerate(shape):
        if n not in summed:
            found.append(next(rest))
            continue
        found.append(whole(size))
        if options.get("keepdims"):
            next(rest)
    return tuple(found)


def unreshaped(reads: Reads, before: tuple[int, ...]) -> Reads:
    """Read an array of the shape `before` of which a reshape made that of `reads`."""
    after = tuple(read.size for read in reads)
    if 0 in before:
        raise NotKnownError
    found: list[Read] = []
    i = j = 0
    while i < len(before) or j < len(after):  # the next axes on both sides with the same product
        first_i, first_j = i, j
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while (n := math.prod(before[first_i:i])) != (m := math.prod(after[first_j:j])):
            i, j = (i + 1, j) if n < m else (i, j + 1)
        found += _regrouped(reads[first_j:j], before[first_i:i])
    return tuple(found)


def _regrouped(reads: Reads, sizes: tuple[int, ...]) -> list[Read]:
    """Read some neighbouring axes that were split or merged."""
    if tuple(read.size for read in reads) == sizes:
        return list(reads)
    if all(read.is_whole for read in reads):
        return [whole(size) for size in sizes]
    if len(sizes) == 1:
        return [_merged(reads, sizes[0])]
    if len(reads) == 1:
        return _split(reads[0], sizes)
    raise NotKnownError


def _merged(reads: Reads, size: int) -> Read:
    """Read one axis that a reshape took apart: h and c are h * d + c."""
    is_free = [read.length > 1 for read in reads]
    if any(read.length not in (1, read.size) for read in reads) or any(
        before and not after for before, after in pairwise(is_free)
    ):
        raise NotKnownError  # no range in one piece
    tables: dict[int, Array] = {}
    weight = size
    for read in reads:
        weight //= read.size
        for axis, table in read.starts:
            tables[axis] = tables.get(axis, 0) + weight * np.array(table)
    starts = tuple((axis, tuple(table.tolist())) for axis, table in tables.items())
    return Read(starts, math.prod(read.length for read in reads), size)


def _split(read: Read, sizes: tuple[int, ...]) -> list[Read]:
    """Read several axes that a reshape made one of: h * d + c is h and c."""
    found = []
    weight = math.prod(sizes)
    for size in sizes:
        weight //= size
        found.append(mapped(read, np.arange(read.size) // weight % size, size))
    return found
