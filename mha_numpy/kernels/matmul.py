"""Products of whole matrices, c = a @ b, by the product for tiles; and the linear map made of them.

A strip of b's columns is copied into scratch, where it is aligned and turned over if need be; it
then meets some blocks of a's rows. NumPy has such a product from a library whose idle threads wait
for work on the cores that the tiles need, and theirs on its own: one pool for both is faster.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.problem import BLOCK, divide_up, like_scratch
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import add_rows, copy_rows
from mha_numpy.kernels.scratch import first_aligned, new_pools, take_tile
from mha_numpy.kernels.simd import as_written
from mha_numpy.kernels.transpose import transpose

Array = npt.NDArray[Any]

DEPTH = 2 * BLOCK  # rows of a strip, which stays in the first-level cache
HEIGHT = 4 * BLOCK  # rows of a that meet a strip before the next one


def linear(x: Array, w: Array, b: Array | None) -> Array:
    """Return x @ w + b: (..., I), (I, O), (O,) -> (..., O)."""
    c = np.empty((x.size // len(w), w.shape[1]), x.dtype)
    multiply_add(c, x.reshape(-1, len(w)), w, start=b)
    return c.reshape(*x.shape[:-1], w.shape[1])


def linear_backward(
    d_out: Array, x: Array, w: Array, has_bias: bool
) -> tuple[Array, Array, Array | None]:
    """Return d_x, d_w and d_b."""
    d_out_rows = d_out.reshape(-1, w.shape[1])
    d_x, d_w = np.empty(x.shape, x.dtype), np.empty_like(w, order="C")
    d_b = np.zeros(w.shape[1], w.dtype) if has_bias else None
    multiply_add(d_w, x.reshape(-1, len(w)).T, d_out_rows, sums=d_b)
    multiply_add(d_x.reshape(-1, len(w)), d_out_rows, w.T)
    return d_x, d_w, d_b


def multiply_add(
    c: Array, a: Array, b: Array, *, start: Array | None = None, sums: Array | None = None
) -> None:
    """Fill c with start + a @ b, and sums with the sums of b's columns; all of one dtype."""
    (M, K), N = a.shape, b.shape[1]
    threads = count_threads(M * K * N)
    pools = new_pools(threads, BLOCK * (2 * DEPTH + HEIGHT + BLOCK), a.dtype)
    row = np.zeros((1, N), c.dtype) if start is None else start.reshape(1, N)
    sums = np.empty((0, N), c.dtype) if sums is None else sums.reshape(1, N)
    compiled(a.dtype)(threads, (a, b, row, c, sums, pools))


@lru_cache
def compiled(dtype: np.dtype[Any]) -> Any:
    """Compile the product for float32 or float64, or load it from disk."""
    number = from_dtype(dtype)
    given = types.Array(number, 2, "A", readonly=True, aligned=False)
    made = types.Array(number, 2, "C")
    return parallel(multiply_strips, types.Tuple((given, given, given, made, made, made)))


@inner
def multiply_strips(thread, threads, arguments):
    """Compute every `threads`-th part of c: a strip of columns, as high as HEIGHT."""
    as_written()
    a, b, start = like_scratch(arguments[0]), like_scratch(arguments[1]), like_scratch(arguments[2])
    c, sums, pool = like_scratch(arguments[3]), like_scratch(arguments[4]), arguments[5][thread]
    (M, K), N = a.shape, b.shape[1]
    strip, at = take_tile(pool, first_aligned(pool), DEPTH, BLOCK)
    turned, at = take_tile(pool, at, DEPTH, BLOCK)
    result, at = take_tile(pool, at, HEIGHT, BLOCK)
    square, at = take_tile(pool, at, BLOCK, BLOCK)
    strips = divide_up(N, BLOCK)
    for item in range(thread, divide_up(M, HEIGHT) * strips, threads):
        i, j = item // strips * HEIGHT, item % strips * BLOCK
        part = c[i : i + HEIGHT, j : j + BLOCK]
        for r in range(part.shape[0]):
            copy_rows(result[r : r + 1], start[:, j : j + BLOCK])
        for k in range(0, K, DEPTH):
            columns = b[k : k + DEPTH, j : j + BLOCK]
            load_strip(strip, columns, square)
            if i < len(sums):  # the first rows of a, where sums are wanted
                for r in range(columns.shape[0]):
                    add_rows(sums[:, j : j + BLOCK], strip[r : r + 1])
            for r in range(0, part.shape[0], BLOCK):
                rows = a[i + r : min(i + r + BLOCK, M), k : k + DEPTH]
                if rows.strides[1] != rows.itemsize:  # many numbers apart, they get in each other's way
                    copy_rows(turned, rows.T)
                    rows = turned[: rows.shape[1], : rows.shape[0]].T
                multiply(result[r : r + rows.shape[0]], rows, strip[: rows.shape[1]], beta=1.0)
        copy_rows(part, result[: part.shape[0], : part.shape[1]])


@inner
def load_strip(strip, columns, square):
    """Copy columns of b; turned over on the way, where it is not their rows that are contiguous."""
    if columns.strides[1] == columns.itemsize:
        copy_rows(strip, columns)
        return
    for k in range(0, columns.shape[0], BLOCK):
        copy_rows(square, columns[k : k + BLOCK].T)
        transpose(strip[k : k + BLOCK], square)
