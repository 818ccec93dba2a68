"""The product of tiles against NumPy in float64."""

import itertools

import numpy as np
import pytest

from mha_numpy.kernels.match import match_rows
from mha_numpy.kernels.product import ROWS, TALL, TALLEST, VECTORS, multiply
from tests.compare import assert_close
from tests.kernels.drivers import (
    assert_is_product,
    by_dtype,
    count_lanes,
    driver,
    matrix,
    number,
    random_tile,
)


@driver(matrix, matrix, matrix, matrix, number)
def apply_multiply(c, a, b, start, adds):
    multiply(c, a, b, start, adds != 0)


def assert_product(c, a, b, adds):
    """Multiply into c, and compare."""
    expected = c.astype(np.float64) if adds else 0

    def multiply_into():
        apply_multiply(c.dtype.type)(c, a, b, c, adds)
        return c

    assert_is_product(multiply_into, a, b, expected)


OF_BLOCKS = {ROWS, 2 * ROWS, TALL, TALLEST}
M = sorted({1, 2, 3, 4, 7, 63, 64} | {rows + i for rows in OF_BLOCKS for i in (-1, 0, 1)})
N = range(1, 2 * VECTORS + 2)  # in registers


@by_dtype
@pytest.mark.parametrize("adds", [False, True])
def test_every_size(rng, dtype, adds):
    L = count_lanes(dtype)
    for m, n, k in itertools.product(M, N, (1, 2, 17, 64)):
        a, b = random_tile(rng, dtype, m, k), random_tile(rng, dtype, k, n * L)
        c = random_tile(rng, dtype, m, n * L)
        assert_product(c, a, b, adds)
        assert np.isnan(c.base[[0, -1]]).all()  # nothing is written around it
        assert np.isnan(c.base[:, [0, -1]]).all()


@by_dtype
def test_without_a_start_c_may_hold_anything(rng, dtype):
    L = count_lanes(dtype)
    for m, n in itertools.product(M, N):
        for what in (np.nan, np.inf):
            c = np.full((m, n * L), what, dtype)
            expected = np.zeros_like(c)
            a, b = random_tile(rng, dtype, m, 5), random_tile(rng, dtype, 5, n * L)
            apply_multiply(dtype)(expected, a, b, expected, 0)
            apply_multiply(dtype)(c, a, b, c, 0)
            assert_close(c, expected, "exact")


@by_dtype
def test_of_nothing(dtype):
    a, b = np.zeros((9, 0), dtype), np.zeros((0, 2 * count_lanes(dtype)), dtype)
    c = np.full((9, b.shape[1]), np.nan, dtype)
    apply_multiply(dtype)(c, a, b, c, 0)
    assert (c == 0).all()
    c[:] = 3
    apply_multiply(dtype)(c, a, b, c, 1)
    assert (c == 3).all()


@driver(matrix, matrix, matrix)
def apply_dots(dots, a, b):
    match_rows(dots, b, a)


@by_dtype
def test_dots_with_rows_of_any_width_and_place_round_alike(rng, dtype):
    """Nothing beyond a row of a is read: there is NaN."""
    L = count_lanes(dtype)
    for width, rows in itertools.product([*range(1, 2 * L + 2), 5 * L], [L, L + 1, 2 * L + 3]):
        padded = -(-width // L) * L
        a, b = random_tile(rng, dtype, rows, width), np.zeros((2, padded), dtype)
        b[:, :width] = rng.normal(size=(2, width))
        dots = np.full((2, -(-rows // L) * L), np.nan, dtype)
        apply_dots(dtype)(dots, a, b)
        found, wide = dots[:, :rows], np.zeros((rows, padded), dtype)
        wide[:, :width] = a
        same = np.full((2, -(-rows // L) * L), np.nan, dtype)
        apply_dots(dtype)(same, wide[::-1], b)
        np.testing.assert_array_equal(found, same[:, :rows][:, ::-1])
        exact = b[:, :width].astype(float) @ a.astype(float).T
        bound = np.abs(b[:, :width]).astype(float) @ np.abs(a).astype(float).T
        assert (np.abs(found - exact) <= width * np.finfo(dtype).eps * bound).all()
