"""Tiled attention, backward: the weights are computed anew, block by block, from scores and lse.

The keys are cut into chunks and the queries into as many groups. In each round every chunk meets
one group, in the next round another: so chunks run side by side, and no two of them ever add to
the same number. Sources: Dao et al. 2022, *FlashAttention*, algorithm 4; Dao 2023,
*FlashAttention-2*, section 3.1.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.exponential import exp, tanh
from mha_numpy.kernels.problem import (
    BLOCK,
    INPUTS,
    count_tiles,
    divide_up,
    keys_in_sight,
    problem_of,
    same_type,
    tile_of,
)
from mha_numpy.kernels.product import multiply
from mha_numpy.kernels.simd import lanes, load, store
from mha_numpy.kernels.tile import (
    add_queries,
    add_rows,
    column_dots,
    copy_rows,
    fill,
    first_aligned,
    load_cells,
    load_queries,
    multiply_rows,
    scale_rows,
    store_cells,
    take_tile,
    take_words,
    tile_width,
)
from mha_numpy.kernels.transpose import transpose
from mha_numpy.kernels.visible import (
    NOTHING,
    add_product,
    find_visible,
    hide,
)


class Scratch(NamedTuple):
    """All that a thread needs."""

    q: Any  # (width, d_k) scale * q
    q_T: Any  # (d_k, width)
    heads: Any  # (width, d_v)
    heads_T: Any  # (d_v, width)
    d_heads: Any  # (width, d_v)
    d_heads_T: Any  # (d_v, width)
    d_q: Any  # (width, d_k)
    lse: Any  # (1, width)
    dots: Any  # (1, width) d_heads . heads, which is sum_j d_weights_j weights_j
    k: Any  # (chunk, d_k)
    d_k: Any  # (chunk, d_k)
    d_v: Any  # (chunk, d_v)
    weights: Any  # (BLOCK, width): a row a key, as all that follow
    d_cells: Any  # the gradient of weights, then of scores
    dropped: Any
    slope: Any  # of the softcap
    by_key: Any
    by_query: Any  # (width, BLOCK) bias, dropout mask or d_biased: a row a query
    seen: Any  # (BLOCK,) words: a word a key, a bit a query
    rows: Any  # (BLOCK,) words: a word a query, a bit a key


@inner
def backward_tiles(thread, threads, arguments):
    """Let every `threads`-th chunk of keys meet its group of queries of this round."""
    problem = problem_of(arguments)
    d_heads, heads, lse, d_q, d_k, d_v, d_biased, round_, chunk, pools = arguments[INPUTS:]
    (B, H_kv, T_k, width_k), width_v = problem.k.shape, problem.v.shape[3]
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    chunks, tiles = divide_up(T_k, chunk), count_tiles(problem)
    tiles_of_group = divide_up(tiles, chunks)
    s = backward_scratch(problem, chunk, pools[thread])
    for number in range(thread, chunks * B * H_kv, threads):
        c, b, kv_head = number // H_kv // B, number // H_kv % B, number % H_kv
        group, keys = (c + round_) % chunks, slice(c * chunk, min(T_k, (c + 1) * chunk))
        v = problem.v[b, kv_head]
        copy_rows(s.k, problem.k[b, kv_head, keys])
        copy_rows(s.d_k, d_k[b, kv_head, keys])
        copy_rows(s.d_v, d_v[b, kv_head, keys])
        for t in range(group * tiles_of_group, min(tiles, (group + 1) * tiles_of_group)):
            tile = tile_of(problem, b, kv_head, t)
            first, last = keys_in_sight(problem, tile, keys.start, keys.stop)
            if first >= last:
                continue
            start(problem, tile, s, same_type(d_heads), same_type(heads), lse)
            for j in range(first, last, BLOCK):
                n = min(BLOCK, keys.stop - j)
                if has_bias:
                    load_cells(s.by_key, s.by_query, problem.bias, tile, j, n)
                visible = find_visible(s.seen, s.rows, problem, tile, s.by_query, j, n)
                if visible == NOTHING:
                    continue
                block = slice(j - keys.start, j - keys.start + n)
                k, d_k_block, d_v_block = s.k[block], s.d_k[block], s.d_v[block]
                weights, d_cells = s.weights[:n], s.d_cells[:n]

                # forward once more
                multiply(weights, k[:, :width_k], s.q_T[:width_k], 0.0)
                if problem.softcap > 0:
                    cap(weights, s.slope, problem.softcap)
                if has_bias:
                    add_rows(weights, s.by_key)
                exp_from_lse(weights, s.lse)
                hide(weights, s.seen, visible, 0.0)
                dropped = weights
                if has_dropout:
                    load_cells(s.by_key, s.by_query, problem.dropout_mask, tile, j, n)
                    dropped = s.dropped[:n]
                    copy_rows(dropped, weights)
                    multiply_rows(dropped, s.by_key)
                    hide(dropped, s.seen, visible, 0.0)

                # 6. heads = dropped @ v
                multiply(d_cells, v[j : j + n], s.d_heads_T[:width_v], 0.0)
                add_product(d_v_block, dropped, s.d_heads, s.seen, visible, True)
                # 5. dropped = weights * dropout_mask
                if has_dropout:
                    multiply_rows(d_cells, s.by_key)
                # 4. weights = softmax(biased)
                softmax_backward(d_cells, weights, s.dots)
                hide(d_cells, s.seen, visible, 0.0)
                # 3. biased = capped + bias
                if has_bias:
                    store_cells(d_biased, s.d_cells, s.by_query, tile, j)
                # 2. capped = softcap * tanh(scores / softcap)
                if problem.softcap > 0:
                    multiply_rows(d_cells, s.slope)
                    hide(d_cells, s.seen, visible, 0.0)
                # 1. scores = (scale * q) @ k^T
                add_product(d_k_block, d_cells, s.q, s.seen, visible, True)
                add_product(s.d_q, d_cells.T, k, s.seen, visible, False)
            scale_rows(s.d_q, problem.scale)
            add_queries(d_q, s.d_q, tile)
        copy_rows(d_k[b, kv_head, keys], s.d_k[: keys.stop - keys.start, :width_k])
        copy_rows(d_v[b, kv_head, keys], s.d_v[: keys.stop - keys.start, :width_v])


@inner
def backward_scratch(problem, chunk, pool):
    """Cut a pool of zeros into tiles."""
    d_k, d_v = problem.k.shape[3], problem.v.shape[3]
    width = tile_width(problem)
    turned = width if problem.bias.size + problem.dropout_mask.size > 0 else 0
    dropped_width = width if problem.dropout_mask.size > 0 else 0
    capped = width if problem.softcap > 0 else 0
    q, at = take_tile(pool, first_aligned(pool), width, d_k)
    q_T, at = take_tile(pool, at, q.shape[1], width)
    heads, at = take_tile(pool, at, width, d_v)
    heads_T, at = take_tile(pool, at, heads.shape[1], width)
    d_heads, at = take_tile(pool, at, width, d_v)
    d_heads_T, at = take_tile(pool, at, heads.shape[1], width)
    d_q, at = take_tile(pool, at, width, d_k)
    lse, at = take_tile(pool, at, 1, width)
    dots, at = take_tile(pool, at, 1, width)
    k, at = take_tile(pool, at, chunk, d_k)
    d_k_, at = take_tile(pool, at, chunk, d_k)
    d_v_, at = take_tile(pool, at, chunk, d_v)
    weights, at = take_tile(pool, at, BLOCK, width)
    d_cells, at = take_tile(pool, at, BLOCK, width)
    dropped, at = take_tile(pool, at, BLOCK, dropped_width)
    slope, at = take_tile(pool, at, BLOCK, capped)
    by_key, at = take_tile(pool, at, BLOCK, turned)
    by_query, at = take_tile(pool, at, turned, BLOCK)
    seen, at = take_words(pool, at)
    rows, at = take_words(pool, at)
    return Scratch(
        q, q_T, heads, heads_T, d_heads, d_heads_T, d_q, lse, dots, k, d_k_, d_v_,
        weights, d_cells, dropped, slope, by_key, by_query, seen, rows,
    )  # fmt: skip


@inner
def start(problem, tile, s, d_heads, heads, lse):
    """Load what belongs to a tile's queries; rows beyond them have weight e^-inf."""
    fill(s.q, 0.0)
    fill(s.d_heads, 0.0)
    fill(s.heads, 0.0)
    fill(s.lse, np.inf)
    fill(s.d_q, 0.0)
    load_queries(s.q, problem.q, tile)
    scale_rows(s.q, problem.scale)
    transpose(s.q_T, s.q)
    load_queries(s.d_heads, d_heads, tile)
    transpose(s.d_heads_T, s.d_heads)
    load_queries(s.heads, heads, tile)
    transpose(s.heads_T, s.heads)
    column_dots(s.dots, s.d_heads_T, s.heads_T)
    for g in range(tile.heads):
        for i in range(tile.queries):
            s.lse[0, g * tile.queries + i] = lse[tile.b, tile.head + g, tile.query + i]


@inner
def exp_from_lse(cells, lse):
    """Do ``cells = exp(cells - lse)``."""
    for c in range(0, cells.shape[1], lanes(cells)):
        for j in range(cells.shape[0]):
            store(cells, j, c, exp(load(cells, j, c) - load(lse, 0, c)))


@inner
def softmax_backward(d_cells, weights, dots):
    """Do ``d_cells = weights * (d_cells - dots)``: from those of the weights to the scores'."""
    for j in range(weights.shape[0]):
        for c in range(0, weights.shape[1], lanes(weights)):
            above_mean = load(d_cells, j, c) - load(dots, 0, c)
            store(d_cells, j, c, load(weights, j, c) * above_mean)


@inner
def cap(cells, slope, softcap):
    """Do ``cells = softcap * tanh(cells / softcap)``, and keep the derivative."""
    for j in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            bent = tanh(load(cells, j, c) / softcap)
            store(cells, j, c, bent * softcap)
            store(slope, j, c, 1.0 - bent * bent)
