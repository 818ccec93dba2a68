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
from mha_numpy.kernels.problem import BLOCK, divide_up, items_of, like_scratch
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.rows import add_sums, copy_rows, repeat_row
from mha_numpy.kernels.scratch import ALIGNMENT, first_aligned, new_pools, take_tile
from mha_numpy.kernels.simd import as_written, lanes
from mha_numpy.kernels.transpose import transpose

Array = npt.NDArray[Any]

DEPTH = BLOCK  # rows of a strip: BLOCK columns of it stay in the first-level cache
WIDTH = 4 * BLOCK  # columns of a strip, which meet the same rows of a
HEIGHT = 4 * BLOCK  # rows of a that meet a strip before the next one
ITEMS = 4  # for each thread, where there is enough work for that many
SHARES = 4  # of long sums, where the result is too small to share out itself
LEAST_DEPTH = 8 * BLOCK  # of such a share


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
    d_b = np.empty(w.shape[1], w.dtype) if has_bias else None
    multiply_add(d_w, x.reshape(-1, len(w)).T, d_out_rows, sums=d_b)
    multiply_add(d_x.reshape(-1, len(w)), d_out_rows, w.T)
    return d_x, d_w, d_b


def multiply_add(
    c: Array, a: Array, b: Array, *, start: Array | None = None, sums: Array | None = None
) -> None:
    """Fill c with start + a @ b, and sums with the sums of b's columns; all of one dtype."""
    (M, K), N = a.shape, b.shape[1]
    threads, height, width = count_threads(M * K * N), HEIGHT, min(N, WIDTH)
    while height > BLOCK and -(-M // height) * -(-N // width) < ITEMS * threads:
        height //= 2
    shares, depth = cut_sum(M, K, N)
    parts = c if shares == 1 else np.empty((shares * M, N), c.dtype)
    sums_of_parts = np.zeros((0 if sums is None else shares, N), c.dtype)
    start = np.empty((0, N), c.dtype) if start is None else start.reshape(1, N)
    pools = new_pools(threads, pool_numbers(height, width), a.dtype, np.empty)
    arguments = (a, b, start, parts, sums_of_parts, height, width, depth, pools)
    compiled(a.dtype)(threads, arguments)
    if shares > 1:
        parts.reshape(shares, M, N).sum(axis=0, out=c)
    if sums is not None:
        sums_of_parts.sum(axis=0, out=sums)


def cut_sum(M: int, K: int, N: int) -> tuple[int, int]:
    """Return into how many shares the sums of K numbers are cut, and how long a share is.

    It depends on the shape alone, so results are the same for any number of threads.
    """
    shares = min(SHARES // (-(-M // BLOCK) * -(-N // WIDTH)), K // LEAST_DEPTH)
    if shares < 2:
        return 1, K
    depth = -(-K // (shares * DEPTH)) * DEPTH
    return -(-K // depth), depth


def pool_numbers(height: int, width: int) -> int:
    """Return how many numbers the tiles of a thread hold at most."""
    columns = width + ALIGNMENT // 2  # two Vectors of float32 more
    return (DEPTH + height + BLOCK) * columns + DEPTH * BLOCK


@lru_cache
def compiled(dtype: np.dtype[Any]) -> Any:
    """Compile the product for float32 or float64, or load it from disk."""
    number, size = from_dtype(dtype), types.intp
    given = types.Array(number, 2, "A", readonly=True, aligned=False)
    made = types.Array(number, 2, "C")
    return parallel(
        multiply_strips, types.Tuple((given, given, given, made, made, size, size, size, made))
    )


@inner
def multiply_strips(thread, threads, arguments):
    """Compute a thread's parts of c, of `height` rows and `width` columns."""
    as_written()
    a, b, start = like_scratch(arguments[0]), like_scratch(arguments[1]), like_scratch(arguments[2])
    c, sums = like_scratch(arguments[3]), like_scratch(arguments[4])
    height, width, depth, pool = arguments[5], arguments[6], arguments[7], arguments[8][thread]
    (M, K), N = a.shape, b.shape[1]
    # one Vector more than needed, or rows of a power of two would share their places in the cache
    strip, at = take_tile(pool, first_aligned(pool), DEPTH, width + 1)
    result, at = take_tile(pool, at, height, width + 1)
    square, at = take_tile(pool, at, divide_up(width, lanes(pool)) * lanes(pool), BLOCK)
    rows, at = take_tile(pool, at, DEPTH, BLOCK)
    strips, blocks = divide_up(N, width), divide_up(M, height)
    for item in items_of(thread, threads, divide_up(K, depth) * blocks, strips):
        share, i = item // strips // blocks, item // strips % blocks * height
        j = item % strips * width
        first, last = share * depth, min((share + 1) * depth, K)
        part = c[share * M + i : share * M + min(i + height, M), j : j + width]
        whole = divide_up(part.shape[1], lanes(pool)) * lanes(pool)
        # what is summed up at one go needs no scratch
        in_place = last - first <= DEPTH and part.shape[1] == whole
        made = part if in_place else result[: part.shape[0], :whole]
        starts = share == 0 and len(start) > 0
        if starts:
            repeat_row(made, start[:, j : j + width])
        for k in range(first, last, DEPTH):
            columns = b[k : min(k + DEPTH, last), j : j + width]
            load_strip(strip, columns, square)
            if i == 0 and len(sums) > 0:  # where sums are wanted, the first rows of a add them up
                add_sums(sums[share : share + 1, j : j + width], strip[: columns.shape[0]])
            beta = 1.0 if starts or k > first else 0.0
            for r in range(0, part.shape[0], BLOCK):
                block = a[i + r : min(i + r + BLOCK, M), k : min(k + DEPTH, last)]
                if block.strides[1] != block.itemsize:
                    # what lies side by side in memory shall do so in scratch
                    copy_rows(rows, block.T)
                    block = rows[: block.shape[1], : block.shape[0]].T
                multiply(made[r : r + BLOCK], block, strip[: block.shape[1], :whole], beta)
        if not in_place:
            copy_rows(part, made[:, : part.shape[1]])


@inner
def load_strip(strip, columns, square):
    """Copy columns of b; turned over on the way, where it is not their rows that are contiguous."""
    if columns.strides[1] == columns.itemsize:
        copy_rows(strip, columns)
    else:
        copy_rows(square, columns.T)
        transpose(strip, square)
