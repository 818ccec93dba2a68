"""Products of whole matrices, c = a @ b, by the product for tiles.

A strip of b's columns is copied into scratch, where it is aligned and turned over if need be; it
then meets some blocks of a's rows. NumPy has such a product from a library whose idle threads wait
for work on the cores that the tiles need, and theirs on its own: one pool for both is faster.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import from_dtype, types

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.problem import BLOCK, divide_up, like_scratch
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import add_rows, copy_rows
from mha_numpy.kernels.scratch import first_aligned, new_pools, take_tile
from mha_numpy.kernels.simd import as_written
from mha_numpy.kernels.transpose import transpose

DEPTH = 512  # rows of a strip: with what it meets, it stays in the second-level cache
HEIGHT = 4 * BLOCK  # rows of a that meet a strip before the next one


def matmul(a: Any, b: Any) -> Any:
    """Return a @ b: (M, K), (K, N) -> (M, N), all of one dtype."""
    (M, K), N = a.shape, b.shape[1]
    c = np.empty((M, N), a.dtype)
    threads = count_threads(M * K * N)
    pools = new_pools(threads, BLOCK * (min(K, DEPTH) + 2 * BLOCK), a.dtype)  # strip and square
    compiled(a.dtype)(threads, (a, b, c, pools))
    return c


@lru_cache
def compiled(dtype: np.dtype[Any]) -> Any:
    """Compile the product for float32 or float64, or load it from disk."""
    number = from_dtype(dtype)
    given = types.Array(number, 2, "A", readonly=True, aligned=False)
    made = types.Array(number, 2, "C")
    return parallel(multiply_strips, types.Tuple((given, given, made, made)))


@inner
def multiply_strips(thread, threads, arguments):
    """Compute every `threads`-th part of c: a strip of columns, as high as HEIGHT."""
    as_written()
    a, b, c = like_scratch(arguments[0]), like_scratch(arguments[1]), like_scratch(arguments[2])
    (M, K), N = a.shape, b.shape[1]
    pool = arguments[3][thread]
    depth, strips = min(K, DEPTH), divide_up(N, BLOCK)
    strip, at = take_tile(pool, first_aligned(pool), divide_up(depth, BLOCK) * BLOCK, BLOCK)
    square, at = take_tile(pool, at, BLOCK, BLOCK)
    for item in range(thread, divide_up(M, HEIGHT) * strips, threads):
        i, j = item // strips * HEIGHT, item % strips * BLOCK
        for k in range(0, K, depth):
            load_strip(strip, b[k : k + depth, j : j + BLOCK], square)
            for r in range(i, min(i + HEIGHT, M), BLOCK):
                rows = a[r : r + BLOCK, k : k + depth]
                multiply(square[: rows.shape[0]], rows, strip[: rows.shape[1]], beta=0.0)
                part = c[r : r + rows.shape[0], j : j + BLOCK]
                result = square[: rows.shape[0], : part.shape[1]]
                if k == 0:
                    copy_rows(part, result)
                else:
                    add_rows(part, result)


@inner
def load_strip(strip, columns, square):
    """Copy columns of b; turned over on the way, where it is not their rows that are contiguous."""
    if columns.strides[1] == columns.itemsize:
        copy_rows(strip, columns)
        return
    for k in range(0, columns.shape[0], BLOCK):
        copy_rows(square, columns[k : k + BLOCK].T)
        transpose(strip[k : k + BLOCK], square)
