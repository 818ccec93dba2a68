"""Arithmetic on the rows of matrices, one register of numbers at a time."""

from mha_numpy.kernels.compile import inner
from mha_numpy.kernels.simd import (
    bits_from_lanes,
    full,
    lanes,
    load,
    load_some,
    multiply_add,
    store,
    store_some,
    sum_of_lanes,
)


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
    if source.strides[1] != source.itemsize:
        for r in range(rows):
            for c in range(columns):
                target[r, c] = source[r, c]
        return
    rest = columns % lanes(target)
    for r in range(rows):
        for c in range(0, columns - rest, lanes(target)):
            store(target, r, c, load(source, r, c))
        if rest > 0:
            last = load_some(source, r, columns - rest, rest)
            store_some(target, r, columns - rest, last, rest)


@inner
def add_sums(sums, matrix):
    """Do ``sums += matrix.sum(axis=0)[:columns]``, where sums are (1, columns).

    The matrix is added up by itself first: so a small number meets a large sum less often.
    """
    whole = sums.shape[1] - sums.shape[1] % lanes(sums)
    for c in range(0, whole, lanes(sums)):
        total = full(sums, 0.0)
        for r in range(matrix.shape[0]):
            total = total + load(matrix, r, c)
        store(sums, 0, c, load(sums, 0, c) + total)
    for c in range(whole, sums.shape[1]):
        rest = sums.dtype.type(0)
        for r in range(matrix.shape[0]):
            rest += matrix[r, c]
        sums[0, c] += rest


@inner
def scale_rows(tile, factor):
    """Do ``tile *= factor``."""
    for r in range(tile.shape[0]):
        for c in range(0, tile.shape[1], lanes(tile)):
            store(tile, r, c, load(tile, r, c) * factor)


@inner
def scale_each_row(tile, factors):
    """Multiply each row by its own factor; the factors are (1, rows)."""
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
def add_row_dots(dots, a, b, sign):
    """Do ``dots[0, i] += sign * a[i] . b[i]`` for each row."""
    for r in range(a.shape[0]):
        products = full(a, 0.0)
        for c in range(0, a.shape[1], lanes(a)):
            products = multiply_add(load(a, r, c), load(b, r, c), products)
        dots[0, r] += sign * sum_of_lanes(products)
