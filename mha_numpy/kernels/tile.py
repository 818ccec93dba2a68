"""Scratch tiles: small matrices whose rows are whole registers, and begin where a register may."""

from typing import Any

from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.host import HOST
from mha_numpy.kernels.problem import BLOCK, divide_up, tile_shape
from mha_numpy.kernels.simd import (
    bits_from_lanes,
    emit_pointer,
    full,
    lanes,
    load,
    multiply_add,
    store,
)
from mha_numpy.kernels.transpose import transpose

ALIGNMENT = HOST.register_bytes


@inner
def first_aligned(pool):
    """Return the first element of a pool of numbers at which a tile may begin."""
    return -pool.ctypes.data % ALIGNMENT // pool.itemsize


@inner
def take_tile(pool, at, rows, columns):
    """Return a (rows, columns) tile from element `at` of a pool on, and the element after it.

    Columns are rounded up to whole Vectors.
    """
    columns = divide_up(columns, lanes(pool)) * lanes(pool)
    after = at + rows * columns
    if after > pool.size:
        raise MemoryError("scratch: the pool is too small")
    return tile_at(pool, at, rows, columns), after


@inner
def take_words(pool, at):
    """Return BLOCK words of 64 bits from element `at` of a pool on, and the element after them."""
    after = at + BLOCK * 8 // pool.itemsize
    if after > pool.size:
        raise MemoryError("scratch: the pool is too small")
    return words_at(pool, at), after


@intrinsic
def words_at(typingctx, pool, at):
    """Return part of a pool as BLOCK words."""
    words_type = types.Array(types.uint64, 1, "C")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = context.make_array(words_type)(context, builder)
        pointer = emit_pointer(context, builder, pool, *args)
        populate_array(
            words,
            data=builder.bitcast(pointer, words.data.type),
            shape=(args[1].type(BLOCK),),
            strides=(args[1].type(8),),
            itemsize=args[1].type(8),
            meminfo=None,
        )
        return words._getvalue()

    return words_type(pool, types.intp), codegen


@intrinsic
def tile_at(typingctx, pool, at, rows, columns):
    """Return part of a pool as a matrix."""
    tile_type = types.Array(pool.dtype, 2, "A")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pool_, at, rows, columns = args
        size = pool.dtype.bitwidth // 8
        tile = context.make_array(tile_type)(context, builder)
        populate_array(
            tile,
            data=emit_pointer(context, builder, pool, pool_, at),
            shape=(rows, columns),
            strides=(builder.mul(columns, columns.type(size)), columns.type(size)),
            itemsize=columns.type(size),
            meminfo=None,
        )
        return tile._getvalue()

    return tile_type(pool, types.intp, types.intp, types.intp), codegen


@inner
def tile_width(problem):
    """Return the rows of a tile, rounded up to whole Vectors: as a rule BLOCK."""
    heads, queries = tile_shape(problem)
    return divide_up(heads * queries, lanes(problem.q)) * lanes(problem.q)


@inner
def fill(tile, value):
    """Do ``tile[:] = value``."""
    for r in range(tile.shape[0]):
        for c in range(0, tile.shape[1], lanes(tile)):
            store(tile, r, c, full(tile, value))


@inner
def copy_rows(target, source):
    """Do ``target[:rows, :columns] = source``; the rows of the target are contiguous."""
    rows, columns = source.shape
    whole = columns - columns % lanes(target)
    if source.strides[1] != source.itemsize:
        whole = 0
    for r in range(rows):
        for c in range(0, whole, lanes(target)):
            store(target, r, c, load(source, r, c))
        for c in range(whole, columns):
            target[r, c] = source[r, c]


@inner
def load_queries(target, array, tile):
    """Copy what belongs to a tile's queries from (B, H, T_q, d): a row a query."""
    for g in range(tile.heads):
        rows = array[tile.b, tile.head + g, tile.query : tile.query + tile.queries]
        copy_rows(target[g * tile.queries :], rows)


@inner
def store_queries(array, source, tile):
    """Copy a tile's rows to (B, H, T_q, d)."""
    for g in range(tile.heads):
        rows = array[tile.b, tile.head + g, tile.query : tile.query + tile.queries]
        copy_rows(rows, source[g * tile.queries : (g + 1) * tile.queries, : rows.shape[1]])


@inner
def add_queries(array, source, tile):
    """Add a tile's rows to (B, H, T_q, d)."""
    for g in range(tile.heads):
        rows = array[tile.b, tile.head + g, tile.query : tile.query + tile.queries]
        add_rows(rows, source[g * tile.queries :])


@inner
def load_cells(by_key, by_query, array, tile, j, n):
    """Copy what belongs to a tile's queries and the keys j to j + n from (B, H, T_q, T_k).

    To `by_query` as it comes, a row a query, and to `by_key` turned over, a row a key.
    """
    for g in range(tile.heads):
        rows = array[tile.b, tile.head + g, tile.query : tile.query + tile.queries]
        copy_rows(by_query[g * tile.queries :], rows[:, j : j + n])
    transpose(by_key, by_query)


@inner
def store_cells(array, cells, by_query, tile, j):
    """Copy cells, a row a key from j on, to (B, H, T_q, T_k); `by_query` is scratch."""
    transpose(by_query, cells)
    for g in range(tile.heads):
        rows = array[tile.b, tile.head + g, tile.query : tile.query + tile.queries]
        n = min(BLOCK, rows.shape[1] - j)
        copy_rows(rows[:, j : j + n], by_query[g * tile.queries : (g + 1) * tile.queries, :n])


@inner
def scale_rows(tile, factor):
    """Do ``tile *= factor``."""
    for r in range(tile.shape[0]):
        for c in range(0, tile.shape[1], lanes(tile)):
            store(tile, r, c, load(tile, r, c) * factor)


@inner
def scale_each_row(tile, factors):
    """Multiply each row by a factor of its own, of shape (1, rows)."""
    for r in range(tile.shape[0]):
        if factors[0, r] != 1:
            for c in range(0, tile.shape[1], lanes(tile)):
                store(tile, r, c, load(tile, r, c) * factors[0, r])


@inner
def add_rows(target, source):
    """Do ``target += source[:rows, :columns]``; the rows of the target are contiguous."""
    rows, columns = target.shape
    whole = columns - columns % lanes(target)
    for r in range(rows):
        for c in range(0, whole, lanes(target)):
            store(target, r, c, load(target, r, c) + load(source, r, c))
        for c in range(whole, columns):
            target[r, c] += source[r, c]


@inner
def multiply_rows(target, source):
    """Do ``target *= source[:rows]``, both tiles."""
    for r in range(target.shape[0]):
        for c in range(0, target.shape[1], lanes(target)):
            store(target, r, c, load(target, r, c) * load(source, r, c))


@inner
def is_finite(matrix):
    """Return whether there is neither NaN nor inf; columns are whole Vectors."""
    nothing = full(matrix, 0.0)
    for r in range(matrix.shape[0]):
        for c in range(0, matrix.shape[1], lanes(matrix)):
            nothing = multiply_add(load(matrix, r, c), 0.0, nothing)
    return bits_from_lanes(nothing != 0.0) == 0


@inner
def column_dots(dots, a, b):
    """Write the dot product of each column of a with that of b into the one row of `dots`."""
    for c in range(0, a.shape[1], lanes(a)):
        products = full(a, 0.0)
        for r in range(a.shape[0]):
            products = multiply_add(load(a, r, c), load(b, r, c), products)
        store(dots, 0, c, products)
