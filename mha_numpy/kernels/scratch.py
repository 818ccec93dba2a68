"""Scratch: tiles and words cut from a pool that a thread is given.

The rows of a tile are whole registers, and begin where a register may.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.problem import BLOCK, divide_up
from mha_numpy.kernels.simd import emit_pointer, lanes

ALIGNMENT = HOST.register_bytes


def new_pools(
    threads: int, numbers: int, dtype: np.dtype[Any], make: Any = np.zeros
) -> npt.NDArray[Any]:
    """Return a pool of zeros for each thread: room for its tiles and two blocks of words."""
    keep_freed_memory()
    return make((threads, numbers + (ALIGNMENT + 16 * BLOCK) // dtype.itemsize), dtype)


@cache
def keep_freed_memory() -> None:
    """Make glibc keep what is freed for the next call, by freeing a large array once.

    glibc keeps unused memory of twice the largest array that was ever freed, at most 64 MiB; the
    rest goes back to the system, and is fetched page by page at the next call.
    """
    np.empty(2**25 - 2**13, np.uint8)  # nothing is written, so this costs nothing


@inner
def first_aligned(pool):
    """Return the first element of a pool of numbers at which a tile may begin."""
    return -pool.ctypes.data % ALIGNMENT // pool.itemsize


@inner
def take_tile(pool, at, rows, columns):
    """Return a (rows, columns) tile from element `at` of a pool on, and the element after it.

    Columns are rounded up to whole Vectors.
    """
    columns = divide_up(columns, lanes(pool)) * lanes(pool)
    after = at + rows * columns
    if after > pool.size:
        raise MemoryError("scratch: the pool is too small")
    return tile_at(pool, at, rows, columns), after


@inner
def take_words(pool, at):
    """Return BLOCK words of 64 bits from element `at` of a pool on, and the element after them."""
    after = at + BLOCK * 8 // pool.itemsize
    if after > pool.size:
        raise MemoryError("scratch: the pool is too small")
    return words_at(pool, at), after


@intrinsic
def words_at(typingctx, pool, at):
    """Return part of a pool as BLOCK words."""
    words_type = types.Array(types.uint64, 1, "C")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = context.make_array(words_type)(context, builder)
        pointer = emit_pointer(context, builder, pool, *args)
        populate_array(
            words,
            data=builder.bitcast(pointer, words.data.type),
            shape=(args[1].type(BLOCK),),
            strides=(args[1].type(8),),
            itemsize=args[1].type(8),
            meminfo=None,
        )
        return words._getvalue()

    return words_type(pool, types.intp), codegen


@intrinsic
def tile_at(typingctx, pool, at, rows, columns):
    """Return part of a pool as a matrix."""
    tile_type = types.Array(pool.dtype, 2, "A")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pool_, at, rows, columns = args
        size = pool.dtype.bitwidth // 8
        tile = context.make_array(tile_type)(context, builder)
        populate_array(
            tile,
            data=emit_pointer(context, builder, pool, pool_, at),
            shape=(rows, columns),
            strides=(builder.mul(columns, columns.type(size)), columns.type(size)),
            itemsize=columns.type(size),
            meminfo=None,
        )
        return tile._getvalue()

    return tile_type(pool, types.intp, types.intp, types.intp), codegen
