"""Tiled attention, forward: 64 queries meet 64 keys at a time, with an online softmax.

Scores are transposed, with one row per key and one column per query. One Vector holds neighbouring
queries, so each line of the softmax serves a whole register of them. A tile of queries keeps the
largest score so far and the sum of powers. When a much larger score comes, these sums are scaled
down.
Sources: Milakov and Gimelshein 2018; Dao et al. 2022, *FlashAttention*, algorithm 1.
"""

import numpy as np

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp, log
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.match import cap, is_in_vectors, load_scaled, match
from mha_numpy.kernels.problem import NUM_INPUTS, items_of, problem_of
from mha_numpy.kernels.rows import add_rows, copy_rows, fill, multiply_rows, scale_each_row
from mha_numpy.kernels.scratch import Layout, clear, free, new_words
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
    BLOCK,
    SIZES,
    count_tiles,
    load_cells,
    part_in_sight,
    sizes_of,
    store_queries,
    tile_of,
)
from mha_numpy.kernels.visible import (
    EVERYTHING,
    NONE_SET,
    NOTHING,
    ONE,
    add_product,
    find_visible,
    hide,
)

MARGIN = 8.0  # a score larger by less is no new maximum: its power is e^8 at most
FORWARD = Layout(  # a few tiles, however long the sequences are
    SIZES,  # rows and columns:
    q="width d_k",
    q_T="d_k width",
    v="block d_v",
    cells="block width",  # scores, then weights: a row a key
    heads="width d_v",  # sum of weights * v so far
    largest="1 width",  # score so far, but for MARGIN
    total="1 width",  # sum of powers so far
    factor="1 width",  # by which heads are scaled: down after a block, by 1 / total at last
    by_query="cells block",  # bias or dropout mask as they come: a row a query
    by_key="block cells",  # the same turned over
)
new_tiles = FORWARD.new_tiles


@kernel
def forward_tiles(thread, threads, arguments):
    """Attend with a thread's tiles of queries, each to one part of the keys."""
    as_written()
    problem = problem_of(arguments)
    heads, lse = arguments[NUM_INPUTS:]
    (B, H_kv, T_k, _), tiles = problem.k.shape, count_tiles(problem)
    parts = len(heads) // B
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    memory, s = new_tiles(problem.q, sizes_of(problem, 0))
    clear(s)
    seen_by_key, seen_by_query = new_words(), new_words()
    for item_of_part in items_of(thread, threads, B * H_kv, tiles * parts):
        item, part = item_of_part // parts, item_of_part % parts
        tile = tile_of(problem, item // tiles // H_kv, item // tiles % H_kv, item % tiles)
        k, v = problem.k[tile.b, tile.kv_head], problem.v[tile.b, tile.kv_head]
        rows = tile.num_heads * tile.num_queries
        in_place = is_in_vectors(v) and HOST.straddles  # a copy begins where a cache line does
        load_scaled(s.q, s.q_T, problem, tile)
        begin(s, problem, tile, part)
        sees_any = NONE_SET
        first, last = part_in_sight(problem, tile, part, parts)
        for j in range(first, last, BLOCK):
            n = min(BLOCK, T_k - j)
            if has_bias:
                load_cells(s.by_key, s.by_query, problem.bias, tile, j, n)
            visible = find_visible(seen_by_key, seen_by_query, problem, tile, s.by_query, j, rows)
            if visible == NOTHING:
                continue
            sees_any |= seen_by(seen_by_key, visible, n)
            cells = s.cells[:n]

            # 1. match
            match(cells, k[j : j + n], s.q_T)
            # 2. softcap
            if problem.softcap > 0:
                cap(cells, cells[:0], problem.softcap)
            # 3. bias
            if has_bias:
                add_rows(cells, s.by_key)
            # 4. mask and softmax, as far as the keys so far tell
            hide(cells, seen_by_key, visible, -np.inf)
            online_softmax(cells, s)
            # 5. dropout
            if has_dropout:
                load_cells(s.by_key, s.by_query, problem.dropout_mask, tile, j, n)
                multiply_rows(cells, s.by_key)
                hide(cells, seen_by_key, visible, 0.0)
            # 6. mix
            v_block = v[j : j + n]
            if not in_place:
                copy_rows(s.v, v_block)
                v_block = s.v[:n]
            add_product(s.heads[:rows], cells[:, :rows], v_block, seen_by_key, visible, True)
        finish(tile, s, sees_any, problem.sink.size > 0, heads[part * B :], lse[part * B :])
    free(memory)


@inner(in_place=True)
def begin(s, problem, tile, part):
    """Let a tile begin without any keys; the first part also has the sink."""
    fill(s.heads, 0.0)
    fill(s.largest, -np.inf)
    fill(s.total, 0.0)
    if problem.sink.size > 0 and part == 0:
        begin_with_sink(s, problem.sink, tile)


@inner(in_place=True)
def begin_with_sink(s, sink, tile):
    """Let each row's softmax begin with the sink of its head, a score without a value."""
    for g in range(tile.num_heads):
        score = sink[tile.b, tile.first_head + g]
        if score != -np.inf:
            for i in range(tile.num_queries):
                s.largest[0, g * tile.num_queries + i] = score
                s.total[0, g * tile.num_queries + i] = np.exp(score - score)  # 1, or NaN


@inner(in_place=True)
def online_softmax(cells, s):
    """Turn scores into powers of e, relative to a score that none exceeds by much."""
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
    """Return a bit for each query: whether it sees any of a block's n keys."""
    some = NONE_SET
    for key in range(n):
        some |= seen_by_key[key]
    return ~NONE_SET if visible == EVERYTHING else some


@inner(in_place=True)
def finish(tile, s, sees_any, has_sink, heads, lse):
    """Divide by the sums, and store heads and lse."""
    for c in range(0, s.total.shape[1], lanes(s.total)):
        total = load(s.total, 0, c)
        # only scores of -inf: 0 / 0; who sees nothing has heads 0 / 1, lse -inf + log 1
        empty = select(lanes_from_bits(s.total, sees_any, c), np.nan, full(s.total, 1.0))
        total = select(total == 0.0, empty, total)
        store(s.factor, 0, c, 1.0 / total)
        store(s.total, 0, c, load(s.largest, 0, c) + log(total))
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            log_sum = s.total[0, g * tile.num_queries + i]
            lse[tile.b, tile.first_head + g, tile.first_query + i] = log_sum
    scale_each_row(s.heads, s.factor)
    for row in range(s.heads.shape[0] if has_sink else 0):
        if sees_any >> np.uint64(row) & ONE == 0:
            fill(s.heads[row : row + 1], 0.0)  # even where the sink is NaN
    store_queries(heads, s.heads, tile)
