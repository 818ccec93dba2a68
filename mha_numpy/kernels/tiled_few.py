"""Tiled attention, forward, for a few queries, as in decoding: 64 keys at a time.

With as few queries, a Vector of neighbouring queries would be nearly empty. So here a row of scores
is a query, and a Vector holds neighbouring keys. Each key and each value is read once, where it is.
"""

import numpy as np

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp
from mha_numpy.kernels.match import cap, is_in_vectors, match_rows
from mha_numpy.kernels.problem import NUM_INPUTS, items_of, problem_of
from mha_numpy.kernels.rows import (
    add_rows,
    copy_rows,
    fill,
    multiply_rows,
    scale_rows,
)
from mha_numpy.kernels.scratch import Layout, clear, free, new_words
from mha_numpy.kernels.simd import (
    as_written,
    bits_from_lanes,
    full,
    lanes,
    load,
    maximum,
    maximum_of_lanes,
    store,
    sum_of_lanes,
)
from mha_numpy.kernels.tile import (
    BLOCK,
    SIZES,
    copy_cells,
    load_queries,
    part_in_sight,
    round_up,
    sizes_of,
    tile_of,
)
from mha_numpy.kernels.tiled_forward import MARGIN, begin, finish
from mha_numpy.kernels.visible import (
    EVERYTHING,
    NONE_SET,
    SOMETHING,
    add_product,
    bias_bits,
    first_bits,
    hide,
    length,
    mask_bits,
)

FEW_FORWARD = Layout(
    SIZES,  # rows and columns:
    q="rows d_k",  # scale * q
    k="lanes d_k",  # of a block that has fewer keys than a Vector has room for
    v="block d_v",
    cells="rows block",  # scores, then weights: a row a query
    heads="rows d_v",  # sum of weights * v so far
    largest="1 width",  # score so far, but for MARGIN
    total="1 width",  # of the sink; at last the sum of all powers
    sums="rows lanes",  # of powers so far
    factor="1 width",  # 1 / total
    by_query="rows cells_block",  # bias or dropout mask
)
new_tiles = FEW_FORWARD.new_tiles


@kernel
def forward_few(thread, threads, arguments):
    """Attend with a thread's tiles of a few queries, each to one part of the keys."""
    as_written()
    problem = problem_of(arguments)
    heads, lse = arguments[NUM_INPUTS:]
    (B, H_kv, T_k, _), parts = problem.k.shape, len(heads) // len(problem.q)
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    (memory, s), seen = new_tiles(problem.q, sizes_of(problem, 0)), new_words()
    clear(s)
    for item in items_of(thread, threads, B * H_kv, parts):
        b, kv_head, part = item // parts // H_kv, item // parts % H_kv, item % parts
        tile = tile_of(problem, b, kv_head, 0)  # the only one
        k, v = problem.k[b, kv_head], problem.v[b, kv_head]
        rows = tile.num_heads * tile.num_queries
        in_place = is_in_vectors(v)
        load_queries(s.q, problem.q, tile)
        scale_rows(s.q, problem.scale)
        begin(s, problem, tile, part)
        fill(s.sums, 0.0)
        sees_any = NONE_SET
        first, last = part_in_sight(problem, tile, part, parts)
        for j in range(first, last, BLOCK):
            n = min(BLOCK, T_k - j)
            if has_bias:
                copy_cells(s.by_query, problem.bias, tile, j, n)
            every, some = find_seen(seen, problem, tile, s.by_query, j, n)
            if some == NONE_SET:
                continue
            if some != first_bits(n):
                n = length(some)  # what is hidden behind it, as padding is, costs nothing
            visible = EVERYTHING if every == first_bits(n) else SOMETHING
            width = round_up(n, s.cells)
            cells = s.cells[:, :width]
            for row in range(rows):
                sees_any |= np.uint64(seen[row] != NONE_SET) << np.uint64(row)

            # 1. match
            keys = k[j : j + n]
            if n < lanes(cells):
                copy_rows(s.k, keys)
                keys = s.k
            match_rows(cells, s.q, keys)
            # 2. softcap
            if problem.softcap > 0:
                cap(cells, cells[:0], problem.softcap)
            # 3. bias
            if has_bias:
                add_rows(cells, s.by_query)
            # 4. mask and softmax, as far as the keys so far tell
            hide(cells, seen, visible if n == width else SOMETHING, -np.inf)  # and what is no key
            softmax_of_rows(cells, s)
            # 5. dropout
            if has_dropout:
                copy_cells(s.by_query, problem.dropout_mask, tile, j, n)
                multiply_rows(cells, s.by_query)
                hide(cells, seen, visible, 0.0)
            # 6. mix
            v_block = v[j : j + n]
            if not in_place:
                copy_rows(s.v, v_block)
                v_block = s.v[:n]
            add_product(s.heads, cells[:, :n], v_block, seen, visible, False)
        for row in range(rows):
            s.total[0, row] += sum_of_lanes(load(s.sums, row, 0))
        finish(tile, s, sees_any, problem.sink.size > 0, heads[part * B :], lse[part * B :])
    free(memory)


@inner(in_place=True)
def find_seen(seen, problem, tile, bias, j, n):
    """Fill `seen` with a word for each query, a bit for each key from j on.

    Return what all of them see, and what any of them sees. `bias` is the block's, one row per
    query.
    """
    every, some = ~NONE_SET, NONE_SET
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            row, distance = g * tile.num_queries + i, tile.position + i - j
            first = min(max(distance - problem.left, 0), n)
            last = min(max(distance + problem.right + 1, first), n)
            word = first_bits(last) & ~first_bits(first)
            if problem.mask.size > 0:
                mask = problem.mask[tile.b, tile.first_head + g, tile.first_query + i]
                word &= mask_bits(mask, j, n)
            if problem.bias.size > 0:
                word &= bias_bits(bias, row)
            seen[row] = word
            every &= word
            some |= word
    return every, some


@inner(in_place=True)
def softmax_of_rows(cells, s):
    """Turn scores into powers of e, relative to a score that none exceeds by much."""
    for r in range(cells.shape[0]):
        before, most = s.largest[0, r], full(cells, -np.inf)
        for c in range(0, cells.shape[1], lanes(cells)):
            most = maximum(load(cells, r, c), most)  # passes NaN by
        if bits_from_lanes(before + MARGIN < most) != 0:
            s.largest[0, r] = maximum_of_lanes(most)
            factor = exp(before - s.largest[0, r])
            s.total[0, r] *= factor
            scale_rows(s.sums[r : r + 1], factor)
            scale_rows(s.heads[r : r + 1], factor)
        largest, powers = s.largest[0, r], load(s.sums, r, 0)
        shift = cells.dtype.type(0) if largest == -np.inf else largest  # nothing seen yet
        for c in range(0, cells.shape[1], lanes(cells)):
            power = exp(load(cells, r, c) - shift)
            store(cells, r, c, power)
            powers = powers + power
        store(s.sums, r, 0, powers)
