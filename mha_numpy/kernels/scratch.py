"""Scratch: the tiles that a thread works on, cut from the pool that it gets.

The rows of a tile are whole registers, aligned to registers.
"""

from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.simd import emit_pointer
from mha_numpy.kernels.tile import BLOCK

ALIGNMENT = HOST.register_bytes


class Layout:
    """A kernel's tiles by their names, with the names of their sizes: "rows columns".

    In a kernel ``layout.cut(pool, shapes)`` returns the tiles by their names; the method `shapes`
    computes its argument. "block" is BLOCK, other names are the kernel's own.
    """

    def __init__(self, **tiles: str) -> None:
        self.sizes = [axes.split() for axes in tiles.values()]
        self.cut = _cutter(namedtuple("Tiles", tiles))

    def shapes(self, sizes: dict[str, int]) -> tuple[npt.NDArray[np.int64], int]:
        """Return (rows, columns) of each tile, and how many numbers all hold."""
        known = {"block": BLOCK, "1": 1, **sizes}
        shapes = np.array([[known[axis] for axis in axes] for axes in self.sizes], np.int64)
        return shapes, int(shapes.prod(axis=1).sum())


def round_up(n: int, dtype: np.dtype[Any]) -> int:
    """Return n as a multiple of a register's numbers."""
    lanes = ALIGNMENT // dtype.itemsize
    return -(-n // lanes) * lanes


def new_pools(
    threads: int, numbers: int, dtype: np.dtype[Any], make: Any = np.zeros
) -> npt.NDArray[Any]:
    """Return a pool of zeros for each thread, with room for this many aligned numbers."""
    keep_freed_memory()
    return make((threads, numbers + ALIGNMENT // dtype.itemsize), dtype)


@cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next call, by freeing a large array once.

    glibc keeps unused memory up to twice the largest array that was ever freed, at most 64 MiB. The
    rest goes back to the system, and is fetched page by page at the next call.
    """
    np.empty(2**25 - 2**13, np.uint8)  # nothing is written, so this costs nothing


def _cutter(named: Any) -> Any:
    """Return a function that cuts a pool into tiles, named by a namedtuple."""

    @inner
    def cut(pool, shapes):
        at = -pool.ctypes.data % ALIGNMENT // pool.itemsize
        after = at
        for n in range(len(shapes)):
            after += shapes[n, 0] * shapes[n, 1]
        if after > pool.size:
            raise MemoryError("scratch: the pool is too small")
        return tiles_at(pool, at, shapes)

    @intrinsic
    def tiles_at(typingctx, pool, at, shapes):
        tile_type = types.Array(pool.dtype, 2, "A")
        tiles_type = types.NamedUniTuple(tile_type, len(named._fields), named)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pool_, at, shapes_ = args
            size, tiles = pool.dtype.bitwidth // 8, []
            for n in range(len(named._fields)):
                rows, columns = (
                    builder.load(
                        emit_pointer(context, builder, shapes, shapes_, at.type(n), at.type(axis))
                    )
                    for axis in (0, 1)
                )
                tile = context.make_array(tile_type)(context, builder)
                populate_array(
                    tile,
                    data=emit_pointer(context, builder, pool, pool_, at),
                    shape=(rows, columns),
                    strides=(builder.mul(columns, at.type(size)), at.type(size)),
                    itemsize=at.type(size),
                    meminfo=None,
                )
                tiles.append(tile._getvalue())
                at = builder.add(at, builder.mul(rows, columns))
            return context.make_tuple(builder, tiles_type, tiles)

        return tiles_type(pool, types.intp, shapes), codegen

    return cut
