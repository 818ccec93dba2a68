"""Backend "numba": tiled attention. The Python code before and after the kernels."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import from_dtype, types

from mha_numpy.kernels.match import FEW as FEW_ROWS
from mha_numpy.kernels.parallel import count_threads, parallel
from mha_numpy.kernels.scratch import Layout, new_pools, round_up
from mha_numpy.kernels.tile import BLOCK
from mha_numpy.kernels.tiled_backward import BACKWARD, backward_tiles
from mha_numpy.kernels.tiled_few import FEW, forward_few
from mha_numpy.kernels.tiled_forward import FORWARD, forward_tiles

Array = npt.NDArray[Any]

CHUNK_NUMBERS = 2**16  # of a chunk's keys: with their gradients they stay in the second-level cache
PART = 4096  # the fewest keys that are worth a part of their own
PARTS = 64  # to share out, where few queries see many keys
ITEMS = 16  # to share out among threads, where there is enough work for that many
NO_CELLS = {  # instead of a missing mask, bias or dropout mask
    np.dtype(dtype): np.empty((0, 0, 0, 0), dtype) for dtype in (bool, np.float32, np.float64)
}
NO_SINK = {dtype: cells.reshape(0, 0) for dtype, cells in NO_CELLS.items()}
NO_MASK = NO_CELLS[np.dtype(bool)]

Kernel = Callable[[int, tuple[Any, ...]], None]  # called with a number of threads and arguments
KERNELS = (forward_tiles, forward_few, backward_tiles)


@lru_cache
def compiled(kernel: Any, dtype: np.dtype[Any]) -> Kernel:
    """Compile a kernel for float32 or float64, or load it from disk."""
    number, size = from_dtype(dtype), types.intp

    def given(ndim: int, of: Any = number) -> Any:
        return types.Array(of, ndim, "A", readonly=True, aligned=False)

    def made(ndim: int) -> Any:
        return types.Array(number, ndim, "A")

    scratch = (
        types.Array(types.int64, 2, "C"), types.Array(number, 2, "C"),
        types.Array(types.uint64, 3, "C"),
    )  # fmt: skip
    problem = (
        given(4), given(4), given(4), given(4, types.boolean), given(4), given(4), given(2),
        given(1, types.int64), size, size, number, number,
    )  # fmt: skip
    grads = (made(4), made(4), made(4), made(4), made(3))
    others = {
        forward_tiles: (made(5), made(4), *scratch),
        forward_few: (made(5), made(4), *scratch),
        backward_tiles: (given(4), given(3), given(4), given(3), *grads, size, size, *scratch),
    }
    return parallel(kernel, types.Tuple((*problem, *others[kernel])))


def attention_forward(q: Array, k: Array, v: Array, *others: Any) -> tuple[Array, Array]:
    """Return heads (B, H, T_q, d_v) and lse (B, H, T_q); `problem_arguments` names the others.

    Where few queries see many keys, these are cut into P parts for threads to share, and the result
    has one more axis in front: (P, B, H, T_q, d_v) and (P, B, H, T_q), to be merged.
    """
    (B, H, T_q, _), (_, H_kv, T_k, d_v) = q.shape, v.shape
    is_few = rows_of_tile(H // H_kv, T_q) <= FEW_ROWS and k.strides[3] == k.itemsize
    run = compiled(forward_few if is_few else forward_tiles, q.dtype)
    parts = count_parts(B * H_kv, H // H_kv, T_q, T_k)
    heads = laid_out_as(q, d_v)[None] if parts == 1 else np.empty((parts, B, H, T_q, d_v), q.dtype)
    lse = np.empty((parts, B, H, T_q), q.dtype)
    threads = count_threads(B * H * T_q * T_k * d_v)
    problem = problem_arguments(q, k, v, *others)
    run(threads, (*problem, heads, lse, *new_scratch(FEW if is_few else FORWARD, threads, problem)))
    return (heads, lse) if parts > 1 else (heads[0], lse[0])


def attention_backward(
    d_heads: Array, d_lse: Array, heads: Array, lse: Array,
    q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None, *others: Any,
) -> tuple[Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    """Return d_q, d_k and d_v, d_biased (B, H, T_q, T_k) if there is a bias, and a row's means.

    These means of d_weights, less d_lse, are (B, H, T_q), and None without a sink.
    """
    run = compiled(backward_tiles, q.dtype)
    d_k, (B, H_kv, T_k, d_v) = q.shape[3], v.shape
    d_q, d_k_, d_v_ = laid_out_as(q, d_k), laid_out_as(k, d_k), laid_out_as(v, d_v)
    d_biased = NO_CELLS[q.dtype] if bias is None else np.zeros((*q.shape[:3], T_k), q.dtype)
    chunk = chunk_size(T_k, B * H_kv, max(d_k, d_v))
    rounds = chunks = -(-T_k // chunk)
    threads = min(count_threads(heads.size * T_k), B * H_kv * chunks)
    problem = problem_arguments(q, k, v, mask, bias, *others)
    has_sink = problem[6].size > 0
    row_mean = np.empty(lse.shape if has_sink else (0, 0, 0), q.dtype)
    arrays = (*problem, d_heads, d_lse, heads, lse, d_q, d_k_, d_v_, d_biased, row_mean)
    scratch = new_scratch(BACKWARD, threads, problem, chunk)
    for round_number in range(rounds):
        run(threads, (*arrays, round_number, chunk, *scratch))
    return d_q, d_k_, d_v_, None if bias is None else d_biased, row_mean if has_sink else None


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


def laid_out_as(x: Array, width: int) -> Array:
    """Make (B, H, T, width), with the rows of a token together if x was split from one row."""
    B, H, T, _ = x.shape
    if x.strides[1] < x.strides[2]:
        return np.empty((B, T, H, width), x.dtype).swapaxes(1, 2)
    return np.empty((B, H, T, width), x.dtype)


@lru_cache
def count_parts(kv_heads: int, G: int, T_q: int, T_k: int) -> int:
    """Return into how many parts the keys are cut: the same for any number of threads."""
    queries = min(BLOCK, T_q)
    tiles = -(-G // min(BLOCK // queries, G)) * -(-T_q // queries)
    return max(1, min(PARTS // (kv_heads * tiles), T_k // PART))


@lru_cache
def chunk_size(T_k: int, heads: int, d: int) -> int:
    """Return how many keys a chunk has, all or whole blocks: the same for any number of threads."""
    most = max(BLOCK, CHUNK_NUMBERS // max(d, 1))
    least_chunks = min(-(-ITEMS // heads), -(-T_k // (2 * BLOCK)))
    chunks = max(-(-T_k // most), least_chunks)
    return min(T_k, -(-T_k // (chunks * BLOCK)) * BLOCK)


def rows_of_tile(G: int, T_q: int) -> int:
    """Return how many rows a tile has at most: queries of one head, or of several."""
    queries = min(BLOCK, T_q)
    return min(BLOCK // queries, G) * queries


def new_scratch(
    layout: Layout, threads: int, problem: tuple[Any, ...], chunk: int = 0
) -> tuple[Array, Array, Array]:
    """Return the shapes of a kernel's tiles, a pool for each thread, and two blocks of words."""
    q, _, v, _, bias, dropout_mask, *_, softcap = problem
    (_, H, T_q, d_k), (_, H_kv, _, d_v), dtype = q.shape, v.shape, q.dtype
    has_bias, has_dropout = bias.size > 0, dropout_mask.size > 0
    shapes, numbers = tile_shapes(
        layout, dtype, H // H_kv, T_q, d_k, d_v, has_bias, has_dropout, softcap > 0, chunk
    )
    words = np.empty((threads, 2, BLOCK), np.uint64)  # a bit for each query and key of a block
    return shapes, new_pools(threads, numbers, dtype), words


@lru_cache
def tile_shapes(
    layout: Layout, dtype: np.dtype[Any], G: int, T_q: int, d_k: int, d_v: int,
    has_bias: bool, has_dropout: bool, has_softcap: bool, chunk: int,
) -> tuple[Array, int]:  # fmt: skip
    """Return (rows, columns) of a kernel's tiles, and how many numbers all of them hold."""
    rows = rows_of_tile(G, T_q)
    width = round_up(rows, dtype)  # as a rule BLOCK
    return layout.shapes({
        "rows": rows, "width": width,
        "d_k": round_up(d_k, dtype), "d_v": round_up(d_v, dtype), "chunk": chunk,
        "cells": width if has_bias or has_dropout else 0,
        "cells_block": BLOCK if has_bias or has_dropout else 0,
        "dropped": width if has_dropout else 0,
        "slope": width if has_softcap else 0,
    })  # fmt: skip
