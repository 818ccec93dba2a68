"""Tiled attention, forward mode: the tangents of 64 queries meet 64 keys and theirs at a time.

The weights come from scores and lse, block by block, as in backward, so nothing is rescaled. With
``moved = weights * biased_dot`` the sum of a row is lse_dot, and
``heads_dot = moved @ v + weights @ v_dot - lse_dot * heads``: one pass over the keys, and a plain
sum over them. So the keys of a long sequence are taken in chunks, each of which meets many tiles.
"""

import numpy as np

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.match import cap, is_in_vectors, load_scaled, match, multiply_deep
from mha_numpy.kernels.problem import NUM_INPUTS, items_of, like_scratch, problem_of, stretched
from mha_numpy.kernels.rows import add_rows, copy_rows, fill, multiply_rows, scale_rows
from mha_numpy.kernels.scratch import Layout, clear, free, new_words
from mha_numpy.kernels.simd import as_written, lanes, load, multiply_add, store
from mha_numpy.kernels.tile import (
    BLOCK,
    SIZES,
    add_queries,
    count_tiles,
    keys_in_sight,
    load_cells,
    load_queries,
    sizes_of,
    store_queries,
    tile_of,
)
from mha_numpy.kernels.tiled_backward import exp_from_lse
from mha_numpy.kernels.transpose import transpose
from mha_numpy.kernels.visible import NOTHING, add_product, find_visible, hide

CHUNK_NUMBERS = 2**16  # of a chunk's keys: with values and tangents they stay in the second cache
AT_ONCE = 16  # tiles that meet a chunk before the next one
JVP = Layout(
    SIZES,  # rows and columns:
    q="width d_k",  # scale * q, then scale * q_dot
    q_T="d_k width",
    q_dot_T="d_k width",
    v="block d_v",
    v_dot="block d_v",
    weights="block width",  # a row a key, as the next two
    moved="block width",  # scores_dot, then weights * biased_dot
    slope="block slope",  # of the softcap
    heads="width d_v",
    heads_dot="width d_v",
    lse="1 width",
    lse_dot="1 width",
    by_query="cells block",  # bias, its tangent or dropout mask: a row a query
    by_key="block cells",
)
new_tiles = JVP.new_tiles


@kernel
def jvp_tiles(thread, threads, arguments):
    """Push tangents through a thread's tiles of queries."""
    as_written()
    problem = problem_of(arguments)
    q_dot, k_dot, v_dot, bias_dot, sink_dot, heads, lse, heads_dot, lse_dot = arguments[NUM_INPUTS:]
    (B, H_kv, T_k, width_k), tiles = problem.k.shape, count_tiles(problem)
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    q_dot, k_dot, v_dot = like_scratch(q_dot), like_scratch(k_dot), like_scratch(v_dot)
    bias_dot = stretched(bias_dot, (*problem.q.shape[:3], T_k))
    sink_dot = stretched(sink_dot, problem.q.shape[:2])
    in_place = HOST.straddles and is_in_vectors(problem.v[0, 0]) and is_in_vectors(v_dot[0, 0])
    memory, s = new_tiles(problem.q, sizes_of(problem, 0))
    clear(s)
    seen_by_key, seen_by_query = new_words(), new_words()
    items = items_of(thread, threads, B * H_kv, tiles)
    chunk = max(CHUNK_NUMBERS // max(width_k, problem.v.shape[3]) // BLOCK, 1) * BLOCK
    for begin in range(0, len(items), AT_ONCE):
        for first_key in range(0, max(T_k, 1), chunk):
            for number in range(begin, min(begin + AT_ONCE, len(items))):
                item, is_first = items.start + number * items.step, first_key == 0
                tile = tile_of(problem, item // tiles // H_kv, item // tiles % H_kv, item % tiles)
                b, kv_head, rows = tile.b, tile.kv_head, tile.num_heads * tile.num_queries
                k, v = problem.k[b, kv_head], problem.v[b, kv_head]
                last_key = min(first_key + chunk, T_k)
                first, last = keys_in_sight(problem, tile, first_key, last_key)
                if first >= last and not is_first:
                    continue
                start(problem, tile, s, q_dot, like_scratch(heads), lse, sink_dot, is_first)
                for j in range(first, last, BLOCK):
                    n = min(BLOCK, T_k - j)
                    if has_bias:
                        load_cells(s.by_key, s.by_query, problem.bias, tile, j, n)
                    visible = find_visible(
                        seen_by_key, seen_by_query, problem, tile, s.by_query, j, rows
                    )
                    if visible == NOTHING:
                        continue
                    weights, moved = s.weights[:n], s.moved[:n]

                    # forward once more
                    match(weights, k[j : j + n], s.q_T)
                    if problem.softcap > 0:
                        cap(weights, s.slope, problem.softcap)
                    if has_bias:
                        add_rows(weights, s.by_key)
                    exp_from_lse(weights, s.lse)
                    hide(weights, seen_by_key, visible, 0.0)

                    # 1. scores = (scale * q) @ k^T: what q moves, and what k moves
                    multiply_deep(moved, k[j : j + n], s.q_dot_T[:width_k], False)
                    multiply_deep(moved, k_dot[b, kv_head, j : j + n], s.q_T[:width_k], True)
                    # 2. capped = softcap * tanh(scores / softcap)
                    if problem.softcap > 0:
                        multiply_rows(moved, s.slope)
                    # 3. biased = capped + bias
                    if has_bias:
                        load_cells(s.by_key, s.by_query, bias_dot, tile, j, n)
                        add_rows(moved, s.by_key)
                    # 4. lse_dot = sum_j weights_j biased_dot_j
                    multiply_rows(moved, weights)
                    hide(moved, seen_by_key, visible, 0.0)
                    add_columns(s.lse_dot, moved)
                    # 5. dropped = weights * dropout_mask
                    if has_dropout:
                        load_cells(s.by_key, s.by_query, problem.dropout_mask, tile, j, n)
                        for cells in (weights, moved):
                            multiply_rows(cells, s.by_key)
                            hide(cells, seen_by_key, visible, 0.0)
                    # 6. heads = dropped @ v
                    v_block, v_dot_block = v[j : j + n], v_dot[b, kv_head, j : j + n]
                    if not in_place:
                        copy_rows(s.v, v_block)
                        copy_rows(s.v_dot, v_dot_block)
                        v_block, v_dot_block = s.v[:n], s.v_dot[:n]
                    mine = s.heads_dot[:rows]
                    add_product(mine, moved[:, :rows], v_block, seen_by_key, visible, True)
                    add_product(mine, weights[:, :rows], v_dot_block, seen_by_key, visible, True)
                finish(tile, s, heads_dot, lse_dot, is_first)
    free(memory)


@inner(in_place=True)
def start(problem, tile, s, q_dot, heads, lse, sink_dot, is_first):
    """Load the rows of a tile's queries; those beyond them contain anything."""
    fill(s.lse, 0.0)
    fill(s.lse_dot, 0.0)
    fill(s.heads_dot, 0.0)
    load_queries(s.q, q_dot, tile)
    scale_rows(s.q, problem.scale)
    transpose(s.q_dot_T, s.q)
    load_scaled(s.q, s.q_T, problem, tile)
    load_queries(s.heads, heads, tile)
    for g in range(tile.num_heads):
        head = tile.first_head + g
        for i in range(tile.num_queries):
            row = g * tile.num_queries + i
            s.lse[0, row] = lse[tile.b, head, tile.first_query + i]
            if is_first and problem.sink.size > 0 and problem.sink[tile.b, head] != -np.inf:
                weight = np.exp(problem.sink[tile.b, head] - s.lse[0, row])
                s.lse_dot[0, row] = weight * sink_dot[tile.b, head]


@inner
def add_columns(sums, cells):
    """Add the sum of each column to the sums, (1, columns)."""
    for c in range(0, cells.shape[1], lanes(cells)):
        total = load(sums, 0, c)
        for j in range(cells.shape[0]):
            total = total + load(cells, j, c)
        store(sums, 0, c, total)


@inner(in_place=True)
def finish(tile, s, heads_dot, lse_dot, is_first):
    """Take off what a chunk's share of lse_dot moves, and store both, or add them."""
    for row in range(tile.num_heads * tile.num_queries):
        for c in range(0, s.heads.shape[1], lanes(s.heads)):
            less = multiply_add(
                load(s.heads, row, c), -s.lse_dot[0, row], load(s.heads_dot, row, c)
            )
            store(s.heads_dot, row, c, less)
    if is_first:
        store_queries(heads_dot, s.heads_dot, tile)
    else:
        add_queries(heads_dot, s.heads_dot, tile)
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            at = tile.b, tile.first_head + g, tile.first_query + i
            if is_first:
                lse_dot[at] = 0
            lse_dot[at] += s.lse_dot[0, g * tile.num_queries + i]
