"""Tiled attention, forward: 64 queries meet 64 keys at a time, with an online softmax.

Scores lie transposed, a row a key and a column a query: one Vector holds neighbouring queries, so
each line of the softmax serves a whole register of them. A tile of queries keeps the largest score
so far and the sum of powers; when a much larger one comes, all that was summed up is scaled down.
Sources: Milakov and Gimelshein 2018; Dao et al. 2022, *FlashAttention*, algorithm 1.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp, log, tanh
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.match import FEW, is_in_vectors, match, suits_few
from mha_numpy.kernels.problem import (
    BLOCK,
    NUM_INPUTS,
    items_of,
    problem_of,
)
from mha_numpy.kernels.rows import (
    add_rows,
    copy_rows,
    fill,
    multiply_rows,
    scale_each_row,
    scale_rows,
)
from mha_numpy.kernels.scratch import (
    first_aligned,
    take_tile,
    take_words,
)
from mha_numpy.kernels.simd import (
    as_written,
    full,
    lanes,
    lanes_from_bits,
    load,
    maximum,
    multiply_add,
    select,
    store,
)
from mha_numpy.kernels.tile import (
    count_tiles,
    keys_in_sight,
    load_cells,
    load_queries,
    store_queries,
    tile_of,
    tile_width,
)
from mha_numpy.kernels.transpose import transpose
from mha_numpy.kernels.visible import (
    EVERYTHING,
    NONE_SET,
    NOTHING,
    add_product_T,
    find_visible,
    hide,
)

MARGIN = 8.0  # a score larger by less is no new maximum: its power is e^8 at most


class Scratch(NamedTuple):
    """All that a thread needs: a few tiles, however long the sequences are."""

    q: Any  # (width, d_k)
    q_T: Any  # (d_k, width)
    v: Any  # (BLOCK, d_v)
    cells: Any  # (BLOCK, width) scores, then weights: a row a key
    heads: Any  # (width, d_v) sum of weights * v so far
    largest: Any  # (1, width) score so far, but for MARGIN
    total: Any  # (1, width) sum of powers so far
    factor: Any  # (1, width) by which heads are scaled: down after a block, by 1 / total at last
    by_query: Any  # (width, BLOCK) bias or dropout mask as they come: a row a query
    by_key: Any  # (BLOCK, width) the same turned over
    seen_by_key: Any  # (BLOCK,) words: a word a key, a bit a query
    seen_by_query: Any  # (BLOCK,) words: a word a query, a bit a key


@kernel
def forward_tiles(thread, threads, arguments):
    """Attend with a thread's tiles of queries."""
    as_written()
    problem = problem_of(arguments)
    heads, lse, pools = arguments[NUM_INPUTS:]
    (B, H_kv, T_k, _), tiles = problem.k.shape, count_tiles(problem)
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    s = forward_scratch(problem, pools[thread])
    for item in items_of(thread, threads, B * H_kv, tiles):
        tile = tile_of(problem, item // tiles // H_kv, item // tiles % H_kv, item % tiles)
        k, v = problem.k[tile.b, tile.kv_head], problem.v[tile.b, tile.kv_head]
        rows = tile.num_heads * tile.num_queries
        along_rows = suits_few(k, rows)
        # a copy begins where a line of the cache does, which few queries do not pay back
        in_place = is_in_vectors(v) and (HOST.straddles or rows <= FEW)
        start(problem, tile, s)
        sees_any = NONE_SET
        first, last = keys_in_sight(problem, tile, 0, T_k)
        for j in range(first, last, BLOCK):
            n = min(BLOCK, T_k - j)
            if has_bias:
                load_cells(s.by_key, s.by_query, problem.bias, tile, j, n)
            visible = find_visible(
                s.seen_by_key, s.seen_by_query, problem, tile, s.by_query, j, rows
            )
            if visible == NOTHING:
                continue
            sees_any |= seen_by(s.seen_by_key, visible, n)
            cells = s.cells[:n]

            # 1. match
            match(cells, k[j : j + n], s.q, s.q_T, rows, along_rows)
            # 2. softcap
            if problem.softcap > 0:
                cap(cells, problem.softcap)
            # 3. bias
            if has_bias:
                add_rows(cells, s.by_key)
            # 4. mask and softmax, as far as the keys so far tell
            hide(cells, s.seen_by_key, visible, -np.inf)
            online_softmax(cells, s)
            # 5. dropout
            if has_dropout:
                load_cells(s.by_key, s.by_query, problem.dropout_mask, tile, j, n)
                multiply_rows(cells, s.by_key)
                hide(cells, s.seen_by_key, visible, 0.0)
            # 6. mix
            v_block = v[j : j + n]
            if not in_place:
                copy_rows(s.v, v_block)
                v_block = s.v[:n]
            add_product_T(s.heads[:rows], cells[:, :rows], v_block, s.seen_by_key, visible)
        finish(tile, s, sees_any, heads, lse)


@inner
def forward_scratch(problem, pool):
    """Cut a pool of zeros into tiles."""
    d_k, d_v = problem.k.shape[3], problem.v.shape[3]
    width = tile_width(problem)
    cells_width = width if problem.bias.size + problem.dropout_mask.size > 0 else 0
    q, at = take_tile(pool, first_aligned(pool), width, d_k)
    q_T, at = take_tile(pool, at, q.shape[1], width)
    v, at = take_tile(pool, at, BLOCK, d_v)
    cells, at = take_tile(pool, at, BLOCK, width)
    heads, at = take_tile(pool, at, width, d_v)
    largest, at = take_tile(pool, at, 1, width)
    total, at = take_tile(pool, at, 1, width)
    factor, at = take_tile(pool, at, 1, width)
    by_query, at = take_tile(pool, at, cells_width, BLOCK)
    by_key, at = take_tile(pool, at, BLOCK, cells_width)
    seen_by_key, at = take_words(pool, at)
    seen_by_query, at = take_words(pool, at)
    return Scratch(
        q, q_T, v, cells, heads, largest, total, factor, by_query, by_key,
        seen_by_key, seen_by_query,
    )  # fmt: skip


@inner(in_place=True)
def start(problem, tile, s):
    """Load a tile's queries; nothing is seen yet."""
    load_queries(s.q, problem.q, tile)
    scale_rows(s.q, problem.scale)
    transpose(s.q_T, s.q)
    fill(s.heads, 0.0)
    fill(s.largest, -np.inf)
    fill(s.total, 0.0)


@inner(in_place=True)
def online_softmax(cells, s):
    """Turn scores into powers of e, relative to a score that no other is far above."""
    for c in range(0, cells.shape[1], lanes(cells)):
        before = load(s.largest, 0, c)
        largest = other = before
        for j in range(0, cells.shape[0] - 1, 2):  # two at a time: each waits for the one before
            largest = maximum(load(cells, j, c), largest)  # passes NaN by
            other = maximum(load(cells, j + 1, c), other)
        largest = maximum(load(cells, cells.shape[0] - 1, c), maximum(largest, other))
        largest = select(before + MARGIN < largest, largest, before)
        shift = select(largest == -np.inf, 0.0, largest)  # nothing seen yet
        powers = full(cells, 0.0)
        for j in range(cells.shape[0]):
            power = exp(load(cells, j, c) - shift)
            store(cells, j, c, power)
            powers = powers + power
        factor = exp(before - shift)
        store(s.largest, 0, c, largest)
        store(s.factor, 0, c, factor)
        store(s.total, 0, c, multiply_add(load(s.total, 0, c), factor, powers))
    scale_each_row(s.heads, s.factor)


@inner
def seen_by(seen_by_key, visible, n):
    """Return a bit for each query, whether it sees any of a block's n keys."""
    some = NONE_SET
    for key in range(n):
        some |= seen_by_key[key]
    return ~NONE_SET if visible == EVERYTHING else some


@inner
def cap(cells, softcap):
    """Do ``cells = softcap * tanh(cells / softcap)``."""
    for j in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            store(cells, j, c, tanh(load(cells, j, c) / softcap) * softcap)


@inner(in_place=True)
def finish(tile, s, sees_any, heads, lse):
    """Divide by the sums, and hand over heads and lse."""
    for c in range(0, s.total.shape[1], lanes(s.total)):
        total = load(s.total, 0, c)
        total = select(total == 0.0, np.nan, total)  # scores of -inf alone: 0 / 0
        # who sees nothing has heads 0 / 1, lse -inf + log 1
        total = select(lanes_from_bits(s.total, sees_any, c), total, 1.0)
        store(s.factor, 0, c, 1.0 / total)
        store(s.total, 0, c, load(s.largest, 0, c) + log(total))
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            log_sum = s.total[0, g * tile.num_queries + i]
            lse[tile.b, tile.first_head + g, tile.first_query + i] = log_sum
    scale_each_row(s.heads, s.factor)
    store_queries(heads, s.heads, tile)
