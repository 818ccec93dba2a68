"""Backend "numba": tiled attention. The Python code before and after the kernels."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.match import FEW
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.tile import BLOCK
from mha_numpy.kernels.tiled_backward import backward_tiles
from mha_numpy.kernels.tiled_few import forward_few
from mha_numpy.kernels.tiled_few_backward import backward_few
from mha_numpy.kernels.tiled_forward import forward_tiles
from mha_numpy.kernels.tiled_jvp import jvp_tiles

Array = npt.NDArray[Any]

CHUNK_NUMBERS = 2**16  # of a chunk's keys: with their gradients they stay in the second-level cache
PART = 4096  # the fewest keys that are worth a part of their own
PARTS = 64  # to share out, where few queries see many keys
ITEM_WORK = 2**11  # products that take as long as an item without cells
ITEMS = 16  # to share out among threads, where there is enough work for that many
NO_CELLS = {  # instead of a missing mask, bias or dropout mask
    np.dtype(dtype): np.empty((0, 0, 0, 0), dtype) for dtype in (bool, np.float32, np.float64)
}
NO_SINK = {dtype: cells.reshape(0, 0) for dtype, cells in NO_CELLS.items()}
NO_MASK = NO_CELLS[np.dtype(bool)]

Kernel = Callable[[int, tuple[Any, ...]], None]  # called with a number of threads and arguments
KERNELS = (forward_tiles, forward_few, backward_tiles, backward_few, jvp_tiles)


@lru_cache
def compiled(kernel: Any, dtype: np.dtype[Any]) -> Kernel:
    """Compile a kernel for float32 or float64, or load it from disk."""
    number, size = from_dtype(dtype), types.intp

    def given(ndim: int, of: Any = number) -> Any:
        return types.Array(of, ndim, "A", readonly=True, aligned=False)

    def made(ndim: int) -> Any:
        return types.Array(number, ndim, "A")

    problem = (
        given(4), given(4), given(4), given(4, types.boolean), given(4), given(4), given(2),
        given(1, types.int64), size, size, number, number,
    )  # fmt: skip
    of_rows = (given(4), given(3), given(4), given(3))
    grads = (made(4), made(4), made(4), made(4), made(3))
    others = {
        forward_tiles: (made(4), made(3)),
        forward_few: (made(4), made(3)),
        backward_tiles: (*of_rows, *grads, size, size),
        backward_few: (*of_rows, *grads),
        jvp_tiles: (
            given(4),
            given(4),
            given(4),
            given(4),
            given(2),
            given(4),
            given(3),
            made(4),
            made(3),
        ),
    }
    return parallel(kernel, types.Tuple((*problem, *others[kernel])))


def attention_forward(q: Array, k: Array, v: Array, *others: Any) -> tuple[Array, Array]:
    """Return heads (B, H, T_q, d_v) and lse (B, H, T_q); `problem_arguments` names the others.

    Where few queries see many keys, these are cut into P parts for threads to share, and the result
    has one more axis in front: (P, B, H, T_q, d_v) and (P, B, H, T_q), to be merged.
    """
    (B, H, T_q, d_k), (_, H_kv, T_k, d_v) = q.shape, v.shape
    rows, parts, items = cut(B * H_kv, H // H_kv, T_q, T_k)
    heads, lse = laid_out_as(q, d_v, parts), np.empty((parts * B, H, T_q), q.dtype)
    run = compiled(forward_few if are_few(rows, k) else forward_tiles, q.dtype)
    threads = min(count_threads(work_of(items, B * H * T_q * T_k, d_k, d_v)), items)
    run(threads, (*problem_arguments(q, k, v, *others), heads, lse))
    if parts > 1:
        return heads.reshape(parts, B, H, T_q, d_v), lse.reshape(parts, B, H, T_q)
    return heads, lse


def attention_backward(
    d_heads: Array, d_lse: Array, heads: Array, lse: Array,
    q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None, *others: Any,
) -> tuple[Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    """Return d_q, d_k and d_v, d_biased (B, H, T_q, T_k) if there is a bias, and a row's means.

    These means of d_weights, less d_lse, are (B, H, T_q), and None without a sink.
    """
    (_, H, T_q, d_k), (B, H_kv, T_k, d_v) = q.shape, v.shape
    rows, parts, items = cut(B * H_kv, H // H_kv, T_q, T_k)
    is_few = are_few(rows, k)
    d_q = laid_out_as(q, d_k, parts if is_few else 1)
    d_k_, d_v_ = laid_out_as(k, d_k), laid_out_as(v, d_v)
    d_biased = NO_CELLS[q.dtype] if bias is None else np.zeros((*q.shape[:3], T_k), q.dtype)
    problem = problem_arguments(q, k, v, mask, bias, *others)
    has_sink = problem[6].size > 0
    row_mean = np.empty(lse.shape if has_sink else (0, 0, 0), q.dtype)
    arrays = (*problem, d_heads, d_lse, heads, lse, d_q, d_k_, d_v_, d_biased, row_mean)
    threads = count_threads(work_of(items, lse.size * T_k, d_k, d_v))
    if is_few:
        compiled(backward_few, q.dtype)(min(threads, B * H_kv * parts), arrays)
        d_q = d_q if parts == 1 else d_q.reshape(parts, *q.shape).sum(axis=0)
    else:
        chunk = chunk_size(T_k, B * H_kv, max(d_k, d_v))
        rounds = chunks = -(-T_k // chunk)
        run, threads = compiled(backward_tiles, q.dtype), min(threads, B * H_kv * chunks)
        for round_number in range(rounds):
            run(threads, (*arrays, round_number, chunk))
    return d_q, d_k_, d_v_, None if bias is None else d_biased, row_mean if has_sink else None


def attention_jvp(
    q_dot: Array, k_dot: Array, v_dot: Array, bias_dot: Array | None, sink_dot: Array | None,
    heads: Array, lse: Array, q: Array, k: Array, v: Array, *others: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """Return heads_dot (B, H, T_q, d_v) and lse_dot (B, H, T_q)."""
    (B, H, T_q, d_k), (_, H_kv, T_k, d_v) = q.shape, v.shape
    heads_dot, lse_dot = laid_out_as(q, d_v), np.empty(lse.shape, q.dtype)
    arrays = (
        *problem_arguments(q, k, v, *others), q_dot, k_dot, v_dot,
        NO_CELLS[q.dtype] if bias_dot is None else bias_dot,
        NO_SINK[q.dtype] if sink_dot is None else sink_dot,
        heads, lse, heads_dot, lse_dot,
    )  # fmt: skip
    _, _, items = cut(B * H_kv, H // H_kv, T_q, T_k)
    threads = count_threads(work_of(items, lse.size * T_k, d_k, d_v))
    compiled(jvp_tiles, q.dtype)(min(threads, items), arrays)
    return heads_dot, lse_dot


def problem_arguments(
    q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None,
    dropout_mask: Array | None, sink: Array | None, q_offset: Array, left: int, right: int,
    scale: float, softcap: float | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the fields of a Problem; an array of size 0 for a missing one."""
    no_cells = NO_CELLS[q.dtype]
    return (
        q, k, v,
        NO_MASK if mask is None else mask,
        no_cells if bias is None else bias,
        no_cells if dropout_mask is None else dropout_mask,
        NO_SINK[q.dtype] if sink is None else sink,
        q_offset, left, right, scale, softcap or 0.0,
    )  # fmt: skip


def laid_out_as(x: Array, width: int, parts: int = 1) -> Array:
    """Make (parts * B, H, T, width); if x was split from one row, rows of a token are together."""
    B, H, T, _ = x.shape
    _, from_head, from_token, _ = x.strides
    if parts > 1:
        return np.empty((parts * B, H, T, width), x.dtype)
    if from_head < from_token:
        return np.empty((B, T, H, width), x.dtype).swapaxes(1, 2)
    return np.empty((B, H, T, width), x.dtype)


def work_of(items: int, cells: int, d_k: int, d_v: int) -> int:
    """Return how many products of two numbers in a large matrix take as long as these cells.

    A power of e takes as long as 32 of a cell's products. All take twice as long, because fewer of
    them share a number that was loaded. An item takes its time even if it has a single cell.
    """
    return ITEM_WORK * items + 2 * cells * (d_k + d_v + 32)


def are_few(rows: int, k: Array) -> bool:
    """Return whether tiles have so few rows that they have separate kernels."""
    return rows <= FEW and k.strides[3] == k.itemsize


@lru_cache
def cut(kv_heads: int, G: int, T_q: int, T_k: int) -> tuple[int, int, int]:
    """Return the most rows of a tile, queries of one head or of several, and the parts of the keys.

    The third number is that of all items to share out. They are the same for any number of threads.
    """
    queries = min(BLOCK, T_q)
    heads = min(BLOCK // queries, G)
    tiles = kv_heads * -(-G // heads) * -(-T_q // queries)
    parts = max(1, min(PARTS // tiles, T_k // PART))
    return heads * queries, parts, tiles * parts


@lru_cache
def chunk_size(T_k: int, heads: int, d: int) -> int:
    """Return how many keys a chunk has, all or whole blocks: the same for any number of threads."""
    most = max(BLOCK, CHUNK_NUMBERS // max(d, 1))
    blocks = 1 if heads == 1 and T_k <= 3 * BLOCK else 2  # or a thread would have nearly all of it
    least_chunks = min(-(-ITEMS // heads), -(-T_k // (blocks * BLOCK)))
    chunks = max(-(-T_k // most), least_chunks)
    return min(T_k, -(-T_k // (chunks * BLOCK)) * BLOCK)
