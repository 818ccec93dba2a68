"""Products of whole matrices, c = a @ b, by the product for tiles; and the linear map.

A strip of b is copied into scratch, where it is aligned and, if necessary, transposed. Then a
thread's rows of a are multiplied by it, a block at a time. NumPy's product comes from a library
whose idle threads wait on the cores that the tiles need, and the other way round, so one pool for
both is faster.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.problem import divide_up, items_of, like_scratch, stretched
from mha_numpy.kernels.product import ROWS, multiply
from mha_numpy.kernels.rows import add_rows, add_sums, copy_rows, fill
from mha_numpy.kernels.scratch import Layout, free
from mha_numpy.kernels.simd import as_written, fetch, lanes, load, store
from mha_numpy.kernels.simd import multiply_add as fused
from mha_numpy.kernels.tile import BLOCK, round_up
from mha_numpy.kernels.transpose import transpose

Array = npt.NDArray[Any]

DEPTH = 6 * BLOCK  # rows of a strip: it stays in the second-level cache
STEP = 2 * BLOCK  # of these rows at a time: BLOCK columns of them stay in the first-level cache
WIDTH = 6 * BLOCK  # columns of a strip, which meet the same rows of a
COPIED = 8  # rows of b that are copied at a time
FEW_ROWS = 8  # of a, for which no strip is loaded
AT_ONCE = 4  # rows of b that meet these
AHEAD = 16  # a row of b is asked for so many rows before it is read
WIDE = 8 * BLOCK  # columns of b that meet a few rows: their sums stay in the first-level cache
HIGH = 8 * ROWS  # rows of a that meet a strip at a time
HEIGHT = 16 * BLOCK  # rows of a that meet a strip before the next one
SHARES = 4  # of long sums, where the result is too small to share out itself
LEAST_DEPTH = 8 * BLOCK  # of such a share
TILES = Layout(
    "strip depth high few wide",  # rows and columns:
    strip="strip block",  # of b: one panel below the other
    square="block block",
    factors="depth high",
    ends="high block",
    few_rows="few wide",  # of c
)
new_tiles = TILES.new_tiles
NO_ROWS = {np.dtype(dtype): np.empty((0, 0), dtype) for dtype in (np.float32, np.float64)}


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
    threads = count_threads(M * K * N)
    reads_in_place = M <= FEW_ROWS and b.strides[1] == b.itemsize and sums is None
    height, width, shares, depth = cut(M, K, N, threads, reads_in_place)
    start = NO_ROWS[c.dtype] if start is None else np.ascontiguousarray(start)[None]
    parts, sums_of_parts = c, NO_ROWS[c.dtype] if sums is None else sums[None]
    sums_of_parts.fill(0.0)
    if shares > 1:
        parts = np.empty((shares * M, N), c.dtype)
        sums_of_parts = np.zeros((shares * len(sums_of_parts), N), c.dtype)
    compiled(c.dtype)(threads, (a, b, start, parts, sums_of_parts, height, width, depth))
    if shares > 1:
        parts.reshape(shares, M, N).sum(axis=0, out=c)
        if sums is not None:
            sums_of_parts.sum(axis=0, out=sums)


@lru_cache(maxsize=1024)  # for a small product these numbers take as long as the product
def cut(M: int, K: int, N: int, threads: int, reads_in_place: bool) -> tuple[int, int, int, int]:
    """Return the height and width of the parts of c, and the shares of a sum and their depth."""
    height, width = cut_result(M, N, threads)
    if reads_in_place:  # no strip is loaded
        width = min(WIDE, max(1, -(-N // (threads * BLOCK))) * BLOCK)
    return height, width, *cut_sum(M, K, N)


def cut_result(M: int, N: int, threads: int) -> tuple[int, int]:
    """Return the height and width of the parts: equal shares of rows, or of columns.

    Who has fewer columns loads fewer strips.
    """
    shares_columns = M <= N and 2 * M <= HEIGHT
    blocks = 1 if shares_columns else threads * -(-M // (threads * HEIGHT))
    height = max(BLOCK, -(-M // (blocks * ROWS)) * ROWS)
    sharing = -(-threads // -(-M // height))  # threads that share the columns of the same rows
    return height, min(WIDTH, N, -(-N // (sharing * BLOCK)) * BLOCK)


def cut_sum(M: int, K: int, N: int) -> tuple[int, int]:
    """Return the number of shares that sums of K numbers are split into, and their length.

    It depends only on the shape, so results are the same for any number of threads.
    """
    shares = min(SHARES // (-(-M // BLOCK) * -(-N // WIDTH)), K // LEAST_DEPTH)
    if shares < 2:
        return 1, K
    depth = -(-K // (shares * BLOCK)) * BLOCK
    return -(-K // depth), depth


@lru_cache
def compiled(dtype: np.dtype[Any]) -> Any:
    """Compile the product for float32 or float64, or load it from disk."""
    number, size = from_dtype(dtype), types.intp
    given = types.Array(number, 2, "A", readonly=True, aligned=False)
    made = types.Array(number, 2, "C")
    return parallel(
        multiply_strips, types.Tuple((given, given, given, made, made, size, size, size))
    )


@kernel
def multiply_strips(thread, threads, arguments):
    """Compute a thread's parts of c, of `height` rows and `width` columns."""
    as_written()
    a, b = like_scratch(arguments[0]), like_scratch(arguments[1])
    start = stretched(arguments[2], (HIGH, b.shape[1]))
    c, sums = like_scratch(arguments[3]), like_scratch(arguments[4])
    height, width, depth = arguments[5:]
    (M, K), N = a.shape, b.shape[1]
    is_few = M <= FEW_ROWS and b.strides[1] == b.itemsize and len(sums) == 0
    sizes = divide_up(width, BLOCK) * DEPTH, DEPTH, HIGH, 0, 0
    if is_few:
        sizes = 0, 0, 0, M, WIDE + BLOCK
    memory, (strip, square, factors, ends, few_rows) = new_tiles(a, sizes)
    strips, blocks = divide_up(N, width), divide_up(M, height)
    for item in items_of(thread, threads, divide_up(K, depth) * blocks, strips):
        share, i = item // strips // blocks, item // strips % blocks * height
        j = item % strips * width
        first, last = share * depth, min((share + 1) * depth, K)
        part = c[share * M + i : share * M + min(i + height, M), j : j + width]
        begins = share == 0 and len(start) > 0
        if is_few:
            before = start[:M, j : j + width] if begins else start[:0]
            columns = b[first:last, j : j + width]
            multiply_few_rows(part, a[:, first:last], columns, before, few_rows)
            continue
        for k in range(first, last, DEPTH):
            columns = b[k : min(k + DEPTH, last), j : j + width]
            load_strip(strip, columns, square)
            if i == 0 and len(sums) > 0:  # where sums are wanted, the first rows of a add them up
                add_sums_of_strip(sums[share : share + 1, j : j + width], strip, len(columns))
            for r in range(0, len(part), HIGH):
                made = part[r : r + HIGH]
                some = a[i + r : i + r + len(made), k : k + len(columns)]
                if some.strides[1] != some.itemsize:
                    # what lies side by side in memory shall do so in scratch
                    copy_rows(factors, some.T)
                    some = factors[: len(columns), : len(made)].T
                before, adds = start[: len(made), j : j + width], begins
                if k > first:
                    before, adds = made, True
                multiply_strip(made, some, strip, before, adds, ends)
    free(memory)


@inner
def multiply_few_rows(c, a, b, start, sums):
    """Do ``c = a @ b``, or ``c = start + a @ b`` if there is a start, for up to FEW_ROWS rows of a.

    Rows of b are contiguous, and read where they are, in the order in which they lie in memory. The
    sums are in scratch, because an x86 processor lets a load wait for a store that is a multiple of
    4096 bytes away, as a row of c may be from a row of b.
    """
    M, columns = c.shape
    whole = columns - columns % lanes(c)
    for first in range(0, len(b), STEP):  # by itself: small numbers meet large sums less often
        stop = min(first + STEP, len(b))
        last = stop - (stop - first) % AT_ONCE
        fill(sums[:M], 0.0)
        if first == 0 and len(start) > 0:
            copy_rows(sums, start)
        for k in range(first, last, AT_ONCE):
            for j in range(0, whole, lanes(c)):
                b_0, b_1 = load(b, k, j), load(b, k + 1, j)
                b_2, b_3 = load(b, k + 2, j), load(b, k + 3, j)
                for t in range(AT_ONCE):
                    fetch(b, k + AHEAD + t, j)
                for i in range(M):
                    total = fused(b_0, a[i, k], load(sums, i, j))
                    total = fused(b_1, a[i, k + 1], total)
                    total = fused(b_2, a[i, k + 2], total)
                    store(sums, i, j, fused(b_3, a[i, k + 3], total))
        for k in range(last, stop):
            for j in range(0, whole, lanes(c)):
                for i in range(M):
                    store(sums, i, j, fused(load(b, k, j), a[i, k], load(sums, i, j)))
        for k in range(first, stop):
            for j in range(whole, columns):
                for i in range(M):
                    sums[i, j] += a[i, k] * b[k, j]
        if first == 0:
            copy_rows(c, sums[:M, :columns])
        else:
            add_rows(c, sums)


@inner
def multiply_strip(c, a, strip, start, adds, ends):
    """Do ``c = a @ strip``, or ``c = start + a @ strip``, for up to HIGH rows of a."""
    for k in range(0, a.shape[1], STEP):
        factors, before = a[:, k : k + STEP], (c if k > 0 else start)
        for j in range(0, c.shape[1], BLOCK):
            panel, made = strip[j // BLOCK * DEPTH + k :], c[:, j : j + BLOCK]
            multiply_panel(made, factors, panel, before[:, j : j + BLOCK], adds or k > 0, ends)


@inner
def multiply_panel(c, a, panel, start, adds, ends):
    """Do the same for up to BLOCK columns of c."""
    columns = c.shape[1]
    whole = round_up(columns, ends)
    if whole == columns:
        multiply(c, a, panel[:, :whole], start, adds)
    else:  # the last Vector of a row would reach over its end
        sums = ends[: len(a), :whole]
        if adds:
            copy_rows(sums, start)
        multiply(sums, a, panel[:, :whole], sums, adds)
        copy_rows(c, sums[:, :columns])


@inner
def load_strip(strip, columns, square):
    """Copy columns of b into panels, transposed if their rows are not contiguous."""
    if columns.strides[1] == columns.itemsize:
        for k in range(0, len(columns), COPIED):  # in the order in which they lie in memory
            for j in range(0, columns.shape[1], BLOCK):
                panel = strip[j // BLOCK * DEPTH + k :]
                copy_rows(panel, columns[k : k + COPIED, j : j + BLOCK])
    else:
        for j in range(0, columns.shape[1], BLOCK):
            panel = strip[j // BLOCK * DEPTH :]
            for k in range(0, len(columns), BLOCK):
                copy_rows(square, columns[k : k + BLOCK, j : j + BLOCK].T)
                transpose(panel[k : k + BLOCK], square)


@inner
def add_sums_of_strip(sums, strip, depth):
    """Add up the columns of a strip."""
    for j in range(0, sums.shape[1], BLOCK):
        panel = strip[j // BLOCK * DEPTH :]
        for k in range(0, depth, BLOCK):
            add_sums(sums[:, j : j + BLOCK], panel[k : min(k + BLOCK, depth)])
