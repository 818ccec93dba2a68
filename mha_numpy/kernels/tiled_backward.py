"""Tiled attention, backward: the weights are recomputed, block by block, from scores and lse.

The keys are cut into chunks and the queries into the same number of shares. In each round every
chunk meets one share, and in the next round a different one. So chunks run in parallel, and no two
of them ever add to the same number. The first round covers every chunk and every query once, and
writes all gradients; later rounds add to them. Sources: Dao et al. 2022, *FlashAttention*,
algorithm 4; Dao 2023, *FlashAttention-2*, section 3.1.
"""

from mha_numpy.kernels.compile import inner, kernel
from mha_numpy.kernels.exponential import exp
from mha_numpy.kernels.match import cap, load_scaled, match, multiply_deep
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
    add_queries,
    count_tiles,
    is_in_sight,
    keys_in_sight,
    load_cells,
    load_queries,
    sizes_of,
    store_cells,
    store_queries,
    store_row_mean,
    tile_of,
)
from mha_numpy.kernels.transpose import transpose
from mha_numpy.kernels.visible import NOTHING, add_product, find_visible, hide

BACKWARD = Layout(
    SIZES,  # rows and columns:
    q="width d_k",  # scale * q
    q_T="d_k width",
    heads="width d_v",
    d_heads="width d_v",
    d_heads_T="d_v width",
    d_q="width d_k",
    lse="1 width",
    row_mean="1 width",  # sum_j weights_j d_weights_j - d_lse; the sum is d_heads . heads
    k="chunk d_k",
    d_k="chunk d_k",
    d_v="chunk d_v",
    weights="block width",  # a row a key, as all that follow but the last
    d_cells="block width",  # the gradient of weights, then of scores
    dropped="block dropped",
    slope="block slope",  # of the softcap
    by_key="block cells",
    by_query="cells block",  # bias, dropout mask or d_biased: a row a query
)
new_tiles = BACKWARD.new_tiles


@kernel
def backward_tiles(thread, threads, arguments):
    """Let a thread's chunks of keys meet their shares of the queries in this round."""
    as_written()
    problem = problem_of(arguments)
    others = arguments[NUM_INPUTS:]
    d_heads, d_lse, heads, lse, d_q, d_k, d_v, d_biased, row_mean = others[:9]
    round_number, chunk = others[9:]
    (B, H_kv, T_k, width_k), width_v = problem.k.shape, problem.v.shape[3]
    has_bias, has_dropout = problem.bias.size > 0, problem.dropout_mask.size > 0
    chunks, tiles = divide_up(T_k, chunk), count_tiles(problem)
    tiles_of_share = divide_up(tiles, chunks)
    memory, s = new_tiles(problem.q, sizes_of(problem, chunk))
    clear(s)
    seen_by_key, seen_by_query = new_words(), new_words()
    for item in items_of(thread, threads, B * H_kv, chunks):
        head = item // chunks
        b, kv_head = head // H_kv, head % H_kv
        # another chunk first for each head, as there may be less to see for the first ones
        chunk_number = (item + head) % chunks
        share = (chunk_number + round_number) % chunks
        keys = slice(chunk_number * chunk, min(T_k, (chunk_number + 1) * chunk))
        first_tile, last_tile = share * tiles_of_share, min(tiles, (share + 1) * tiles_of_share)
        v = problem.v[b, kv_head]
        if round_number == 0:
            fill(s.d_k, 0.0)
            fill(s.d_v, 0.0)
        elif is_in_sight(problem, b, kv_head, first_tile, last_tile, keys.start, keys.stop):
            copy_rows(s.d_k, d_k[b, kv_head, keys])
            copy_rows(s.d_v, d_v[b, kv_head, keys])
        else:
            continue
        copy_rows(s.k, problem.k[b, kv_head, keys])
        for tile_number in range(first_tile, last_tile):
            tile = tile_of(problem, b, kv_head, tile_number)
            first, last = keys_in_sight(problem, tile, keys.start, keys.stop)
            if first >= last and round_number > 0:
                continue
            start(problem, tile, s, like_scratch(d_heads), d_lse, like_scratch(heads), lse)
            if problem.sink.size > 0 and round_number == 0:  # each tile has its turn once
                store_row_mean(row_mean, s.row_mean, tile)
            for j in range(first, last, BLOCK):
                n = min(BLOCK, keys.stop - j)
                if has_bias:
                    load_cells(s.by_key, s.by_query, problem.bias, tile, j, n)
                visible = find_visible(
                    seen_by_key, seen_by_query, problem, tile, s.by_query, j, s.weights.shape[1]
                )
                if visible == NOTHING:
                    continue
                block = slice(j - keys.start, j - keys.start + n)
                k, d_k_block, d_v_block = s.k[block], s.d_k[block], s.d_v[block]
                weights, d_cells = s.weights[:n], s.d_cells[:n]

                # forward once more
                match(weights, k[:, :width_k], s.q_T)
                if problem.softcap > 0:
                    cap(weights, s.slope, problem.softcap)
                if has_bias:
                    add_rows(weights, s.by_key)
                exp_from_lse(weights, s.lse)
                hide(weights, seen_by_key, visible, 0.0)
                dropped = weights
                if has_dropout:
                    load_cells(s.by_key, s.by_query, problem.dropout_mask, tile, j, n)
                    dropped = s.dropped[:n]
                    copy_rows(dropped, weights)
                    multiply_rows(dropped, s.by_key)
                    hide(dropped, seen_by_key, visible, 0.0)

                # 6. heads = dropped @ v
                multiply_deep(d_cells, v[j : j + n], s.d_heads_T[:width_v], False)
                add_product(d_v_block, dropped, s.d_heads, seen_by_key, visible, False)
                # 5. dropped = weights * dropout_mask
                if has_dropout:
                    multiply_rows(d_cells, s.by_key)
                # 4. weights = softmax(biased)
                softmax_backward(d_cells, weights, s.row_mean)
                hide(d_cells, seen_by_key, visible, 0.0)
                # 3. biased = capped + bias
                if has_bias:
                    store_cells(d_biased, s.d_cells, s.by_query, tile, j)
                # 2. capped = softcap * tanh(scores / softcap)
                if problem.softcap > 0:
                    multiply_rows(d_cells, s.slope)
                    hide(d_cells, seen_by_key, visible, 0.0)
                # 1. scores = (scale * q) @ k^T
                add_product(d_k_block, d_cells, s.q, seen_by_key, visible, False)
                add_product(s.d_q, d_cells, k, seen_by_key, visible, True)
            scale_rows(s.d_q, problem.scale)
            if round_number == 0:
                store_queries(d_q, s.d_q, tile)
            else:
                add_queries(d_q, s.d_q, tile)
        copy_rows(d_k[b, kv_head, keys], s.d_k[: keys.stop - keys.start, :width_k])
        copy_rows(d_v[b, kv_head, keys], s.d_v[: keys.stop - keys.start, :width_v])
    free(memory)


@inner(in_place=True)
def start(problem, tile, s, d_heads, d_lse, heads, lse):
    """Load the rows of a tile's queries; rows beyond them are 0, and hidden."""
    rows = tile.num_heads * tile.num_queries
    fill(s.q[rows:], 0.0)
    fill(s.d_heads[rows:], 0.0)
    fill(s.lse, 0.0)
    fill(s.row_mean, 0.0)
    fill(s.d_q, 0.0)
    load_scaled(s.q, s.q_T, problem, tile)
    load_queries(s.d_heads, d_heads, tile)
    transpose(s.d_heads_T, s.d_heads)
    load_queries(s.heads, heads, tile)
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            row, query = g * tile.num_queries + i, tile.first_query + i
            s.lse[0, row] = lse[tile.b, tile.first_head + g, query]
            s.row_mean[0, row] = -d_lse[tile.b, tile.first_head + g, query]
    add_row_dots(s.row_mean, s.d_heads[:rows], s.heads, 1.0)


@inner
def exp_from_lse(cells, lse):
    """Do ``cells = exp(cells - lse)``."""
    for c in range(0, cells.shape[1], lanes(cells)):
        for j in range(cells.shape[0]):
            store(cells, j, c, exp(load(cells, j, c) - load(lse, 0, c)))


@inner
def softmax_backward(d_cells, weights, row_mean):
    """Do ``d_cells = weights * (d_cells - row_mean)``: from those of the weights to the scores'."""
    for j in range(weights.shape[0]):
        for c in range(0, weights.shape[1], lanes(weights)):
            above_mean = load(d_cells, j, c) - load(row_mean, 0, c)
            store(d_cells, j, c, load(weights, j, c) * above_mean)
