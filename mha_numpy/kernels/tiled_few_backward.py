"""Tiled attention, backward, for a few queries: 64 keys at a time, as in `tiled_few`.

A row of weights is a query, and all queries of a key/value head are one tile. So nothing else adds
to the gradients of its keys and values: they are written once, block by block, and only those of
the queries are sums over the keys. The steps are those of `tiled_backward`.
"""

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp
from mha_numpy.kernels.match import cap, is_in_vectors, match_rows
from mha_numpy.kernels.problem import (
    NUM_INPUTS,
    divide_up,
    items_of,
    like_scratch,
    problem_of,
)
from mha_numpy.kernels.rows import (
    add_row_dots,
    add_rows,
    copy_rows,
    fill,
    multiply_rows,
    scale_rows,
)
from mha_numpy.kernels.scratch import Layout, clear, free, new_words
from mha_numpy.kernels.simd import as_written, lanes, load, store
from mha_numpy.kernels.tile import (
    BLOCK,
    SIZES,
    copy_cells,
    load_queries,
    part_in_sight,
    round_up,
    sizes_of,
    store_queries,
    store_row_mean,
    tile_of,
)
from mha_numpy.kernels.tiled_few import find_seen
from mha_numpy.kernels.visible import (
    EVERYTHING,
    NONE_SET,
    SOMETHING,
    add_product,
    first_bits,
    hide,
    multiply_visible,
)

FEW_BACKWARD = Layout(
    SIZES,  # rows and columns:
    q="rows d_k",  # scale * q
    d_q="rows d_k",
    heads="rows d_v",
    d_heads="rows d_v",
    lse="1 width",
    row_mean="1 width",  # sum_j weights_j d_weights_j - d_lse; the sum is d_heads . heads
    k="block d_k",
    v="block d_v",
    d_k="block d_k",
    d_v="block d_v",
    weights="rows block",  # a row a query, as all that follow
    d_cells="rows block",  # the gradient of weights, then of scores
    dropped="rows cells_block",
    slope="rows block",  # of the softcap
    by_query="rows cells_block",  # bias, then dropout mask
)
new_tiles = FEW_BACKWARD.new_tiles


@kernel
def backward_few(thread, threads, arguments):
    """Let a thread's parts of the keys meet the few queries of their head."""
    as_written()
    problem = problem_of(arguments)
    d_heads, d_lse, heads, lse, d_q, d_k, d_v, d_biased, row_mean = arguments[NUM_INPUTS:]
    (B, H_kv, T_k, _), parts = problem.k.shape, len(d_q) // len(problem.q)
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    (memory, s), seen = new_tiles(problem.q, sizes_of(problem, 0)), new_words()
    clear(s)
    size = divide_up(divide_up(T_k, BLOCK), parts) * BLOCK
    in_place = is_in_vectors(d_k[0, 0]) and is_in_vectors(d_v[0, 0])
    for item in items_of(thread, threads, B * H_kv, parts):
        b, kv_head, part = item // parts // H_kv, item // parts % H_kv, item % parts
        tile = tile_of(problem, b, kv_head, 0)
        start(problem, tile, s, like_scratch(d_heads), d_lse, like_scratch(heads), lse)
        if problem.sink.size > 0 and part == 0:
            store_row_mean(row_mean, s.row_mean, tile)
        first, last = part_in_sight(problem, tile, part, parts)
        for j in range(part * size, min(T_k, (part + 1) * size), BLOCK):
            n = min(BLOCK, T_k - j)
            every = some = NONE_SET
            if first <= j and j < last:
                if has_bias:
                    copy_cells(s.by_query, problem.bias, tile, j, n)
                every, some = find_seen(seen, problem, tile, s.by_query, j, n)
            d_k_block, d_v_block = d_k[b, kv_head, j : j + n], d_v[b, kv_head, j : j + n]
            if not in_place:
                d_k_block, d_v_block = s.d_k[:n], s.d_v[:n]
            if some == NONE_SET:
                fill(d_k_block, 0.0)
                fill(d_v_block, 0.0)
            else:
                visible = EVERYTHING if every == first_bits(n) else SOMETHING
                k, v = problem.k[b, kv_head, j : j + n], problem.v[b, kv_head, j : j + n]
                width = round_up(n, s.weights)
                if n < lanes(s.weights) or not is_in_vectors(k):
                    copy_rows(s.k, k)
                    k = s.k[: max(n, lanes(s.weights))]
                if n < lanes(s.weights) or not is_in_vectors(v):
                    copy_rows(s.v, v)
                    v = s.v[: max(n, lanes(s.weights))]
                weights, d_cells = s.weights[:, :width], s.d_cells[:, :width]

                # forward once more
                match_rows(weights, s.q, k)
                if problem.softcap > 0:
                    cap(weights, s.slope, problem.softcap)
                if has_bias:
                    add_rows(weights, s.by_query)
                exp_from_lse(weights, s.lse)
                hide(weights, seen, visible, 0.0)
                dropped = weights
                if has_dropout:
                    copy_cells(s.by_query, problem.dropout_mask, tile, j, n)
                    dropped = s.dropped[:, :width]
                    copy_rows(dropped, weights)
                    multiply_rows(dropped, s.by_query)
                    hide(dropped, seen, visible, 0.0)

                # 6. heads = dropped @ v
                match_rows(d_cells, s.d_heads, v)
                multiply_visible(d_v_block, dropped[:, :n], s.d_heads, seen, visible, True, False)
                # 5. dropped = weights * dropout_mask
                if has_dropout:
                    multiply_rows(d_cells, s.by_query)
                # 4. weights = softmax(biased)
                softmax_backward(d_cells, weights, s.row_mean)
                hide(d_cells, seen, visible, 0.0)
                # 3. biased = capped + bias
                if has_bias:
                    store_cells(d_biased, d_cells, tile, j, n)
                # 2. capped = softcap * tanh(scores / softcap)
                if problem.softcap > 0:
                    multiply_rows(d_cells, s.slope)
                    hide(d_cells, seen, visible, 0.0)
                # 1. scores = (scale * q) @ k^T
                multiply_visible(d_k_block, d_cells[:, :n], s.q, seen, visible, True, False)
                add_product(s.d_q, d_cells[:, :n], k[:n], seen, visible, False)
            if not in_place:
                copy_rows(d_k[b, kv_head, j : j + n], d_k_block[:, : d_k.shape[3]])
                copy_rows(d_v[b, kv_head, j : j + n], d_v_block[:, : d_v.shape[3]])
        scale_rows(s.d_q, problem.scale)
        store_queries(d_q[part * B :], s.d_q, tile)
    free(memory)


@inner(in_place=True)
def start(problem, tile, s, d_heads, d_lse, heads, lse):
    """Load the rows of a tile's queries."""
    load_queries(s.q, problem.q, tile)
    scale_rows(s.q, problem.scale)
    load_queries(s.d_heads, d_heads, tile)
    load_queries(s.heads, heads, tile)
    fill(s.d_q, 0.0)
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            row, query = g * tile.num_queries + i, tile.first_query + i
            s.lse[0, row] = lse[tile.b, tile.first_head + g, query]
            s.row_mean[0, row] = -d_lse[tile.b, tile.first_head + g, query]
    add_row_dots(s.row_mean, s.d_heads, s.heads, 1.0)


@inner
def exp_from_lse(cells, lse):
    """Do ``cells = exp(cells - lse)``."""
    for r in range(cells.shape[0]):
        for c in range(0, cells.shape[1], lanes(cells)):
            store(cells, r, c, exp(load(cells, r, c) - lse[0, r]))


@inner
def softmax_backward(d_cells, weights, row_mean):
    """Do ``d_cells = weights * (d_cells - row_mean)``: from those of the weights to the scores'."""
    for r in range(weights.shape[0]):
        for c in range(0, weights.shape[1], lanes(weights)):
            above_mean = load(d_cells, r, c) - row_mean[0, r]
            store(d_cells, r, c, load(weights, r, c) * above_mean)


@inner
def store_cells(array, cells, tile, j, n):
    """Copy cells of the keys j to j + n to (B, H, T_q, T_k)."""
    for g in range(tile.num_heads):
        mine = cells[g * tile.num_queries : (g + 1) * tile.num_queries, :n]
        rows = array[tile.b, tile.first_head + g]
        copy_rows(rows[:, j : j + n], mine)
