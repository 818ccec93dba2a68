"""Tile: the queries that are processed together, and their parts of larger arrays."""

from typing import Any, NamedTuple

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.problem import divide_up
from mha_numpy.kernels.rows import add_rows, copy_rows
from mha_numpy.kernels.simd import lanes
from mha_numpy.kernels.transpose import transpose

BLOCK = 64  # queries in a tile, and keys in a block: as many as a word has bits
SIZES = "rows width lanes d_k d_v chunk cells cells_block dropped slope"  # as of `sizes_of`


class Tile(NamedTuple):
    """Up to BLOCK queries that share one key/value head.

    They belong to one query head if there are many queries, to several if there are few: row
    ``g * num_queries + i`` is query ``first_query + i`` of query head ``first_head + g``. With
    T_q = 1 and G = 4, a step of decoding, a tile has four rows: the query of each head.
    """

    b: Any
    kv_head: Any
    first_head: Any
    num_heads: Any
    first_query: Any
    num_queries: Any
    position: Any  # of the first query among the keys


@inner
def group_size(problem):
    """Return G, the query heads of a group."""
    return problem.q.shape[1] // problem.k.shape[1]


@inner
def tile_shape(problem):
    """Return the most query heads of a tile, and the most queries of each.

    Many queries are shared out evenly: two tiles of 68 have 48 and 20, in whole Vectors of 16.
    """
    queries = problem.q.shape[2]
    if queries > BLOCK:
        queries = round_up(divide_up(queries, divide_up(queries, BLOCK)), problem.q)
    return min(BLOCK // queries, group_size(problem)), queries


@inner
def count_tiles(problem):
    """Return the number of tiles of one key/value head."""
    heads, queries = tile_shape(problem)
    return divide_up(group_size(problem), heads) * divide_up(problem.q.shape[2], queries)


@inner
def tile_of(problem, b, kv_head, tile_number):
    """Return one of the tiles of a key/value head."""
    heads, queries = tile_shape(problem)
    in_a_row = divide_up(problem.q.shape[2], queries)
    g, query = tile_number // in_a_row * heads, tile_number % in_a_row * queries
    return Tile(
        b, kv_head,
        kv_head * group_size(problem) + g, min(heads, group_size(problem) - g),
        query, min(queries, problem.q.shape[2] - query),
        problem.q_offset[b] + query,
    )  # fmt: skip


@inner
def sizes_of(problem, chunk):
    """Return the sizes that a kernel's tiles may have: SIZES."""
    heads, queries = tile_shape(problem)
    width = round_up(heads * queries, problem.q)  # as a rule BLOCK
    has_dropout = problem.dropout_mask.size > 0
    has_cells = has_dropout or problem.bias.size > 0
    return (
        heads * queries, width, lanes(problem.q),
        round_up(problem.q.shape[3], problem.q), round_up(problem.v.shape[3], problem.v), chunk,
        width if has_cells else 0, BLOCK if has_cells else 0,
        width if has_dropout else 0,
        width if problem.softcap > 0 else 0,
    )  # fmt: skip


@inner
def round_up(n, like):
    """Return n as a multiple of the numbers that one Vector holds."""
    return divide_up(n, lanes(like)) * lanes(like)


@inner
def keys_in_sight(problem, tile, first, last):
    """Return which keys from first on, up to but without last, the tile may see.

    They start with a block of keys: a multiple of BLOCK after first.
    """
    low = max(first, tile.position - problem.left)
    high = min(last, tile.position + tile.num_queries + problem.right)
    return low - (low - first) % BLOCK, high


@inner
def part_in_sight(problem, tile, part, parts):
    """Return which keys of a part the tile may see; parts are whole blocks, of the same size."""
    T_k = problem.k.shape[2]
    size = divide_up(divide_up(T_k, BLOCK), parts) * BLOCK
    return keys_in_sight(problem, tile, part * size, min(T_k, (part + 1) * size))


@inner
def is_in_sight(problem, b, kv_head, first_tile, last_tile, first_key, last_key):
    """Return whether any of these tiles may see any of these keys; the last ones do not count."""
    for tile_number in range(first_tile, last_tile):
        tile = tile_of(problem, b, kv_head, tile_number)
        first, last = keys_in_sight(problem, tile, first_key, last_key)
        if first < last:
            return True
    return False


@inner
def load_queries(target, array, tile):
    """Copy the rows of a tile's queries from (B, H, T_q, d), one row per query."""
    queries = slice(tile.first_query, tile.first_query + tile.num_queries)
    for g in range(tile.num_heads):
        rows = array[tile.b, tile.first_head + g, queries]
        copy_rows(target[g * tile.num_queries :], rows)


@inner
def store_queries(array, source, tile):
    """Copy a tile's rows to (B, H, T_q, d)."""
    queries = slice(tile.first_query, tile.first_query + tile.num_queries)
    for g in range(tile.num_heads):
        rows = array[tile.b, tile.first_head + g, queries]
        mine = source[g * tile.num_queries : (g + 1) * tile.num_queries]
        copy_rows(rows, mine[:, : rows.shape[1]])


@inner
def add_queries(array, source, tile):
    """Add a tile's rows to (B, H, T_q, d)."""
    queries = slice(tile.first_query, tile.first_query + tile.num_queries)
    for g in range(tile.num_heads):
        rows = array[tile.b, tile.first_head + g, queries]
        add_rows(rows, source[g * tile.num_queries :])


@inner
def load_cells(by_key, by_query, array, tile, j, n):
    """Copy the cells of a tile's queries and the keys j to j + n from (B, H, T_q, T_k).

    They go to `by_query` as they are, one row per query, and transposed to `by_key`.
    """
    copy_cells(by_query, array, tile, j, n)
    transpose(by_key, by_query)


@inner
def copy_cells(by_query, array, tile, j, n):
    """Copy the cells of a tile's queries and the keys j to j + n, one row per query."""
    queries = slice(tile.first_query, tile.first_query + tile.num_queries)
    for g in range(tile.num_heads):
        rows = array[tile.b, tile.first_head + g, queries]
        copy_rows(by_query[g * tile.num_queries :], rows[:, j : j + n])


@inner
def store_cells(array, cells, by_query, tile, j):
    """Copy cells, one row per key from j on, to (B, H, T_q, T_k); `by_query` is scratch."""
    transpose(by_query, cells)
    queries = slice(tile.first_query, tile.first_query + tile.num_queries)
    for g in range(tile.num_heads):
        rows = array[tile.b, tile.first_head + g, queries]
        n = min(BLOCK, rows.shape[1] - j)
        mine = by_query[g * tile.num_queries : (g + 1) * tile.num_queries]
        copy_rows(rows[:, j : j + n], mine[:, :n])


@inner
def store_row_mean(row_mean, of_tile, tile):
    """Copy the means of a tile's rows, less d_lse, to (B, H, T_q)."""
    for g in range(tile.num_heads):
        for i in range(tile.num_queries):
            mean = of_tile[0, g * tile.num_queries + i]
            row_mean[tile.b, tile.first_head + g, tile.first_query + i] = mean
