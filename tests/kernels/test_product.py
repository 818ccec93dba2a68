"""The product of tiles against NumPy in float64."""

import itertools

import numpy as np
import pytest

from mha_numpy.kernels.product import ROWS, VECTORS, multiply
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


def assert_product(c, a, b, adds, start=None):
    """Multiply into c, from c or another start on, and compare."""
    start = c if start is None else start
    expected = start.astype(np.float64) if adds else 0

    def multiply_into():
        apply_multiply(c.dtype.type)(c, a, b, start, adds)
        return c

    assert_is_product(multiply_into, a, b, expected)


M = sorted({1, 2, 3, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS - 1, 2 * ROWS, 2 * ROWS + 1, 13, 63, 64})
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
def test_one_row_as_the_start_of_all(rng, dtype):
    L = count_lanes(dtype)
    for m, n in itertools.product(M, N):
        a, b = random_tile(rng, dtype, m, 5), random_tile(rng, dtype, 5, n * L)
        row = random_tile(rng, dtype, 1, n * L)
        start = np.lib.stride_tricks.as_strided(row, (m, n * L), (0, row.itemsize))
        assert_product(random_tile(rng, dtype, m, n * L), a, b, True, start)


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


LAYOUTS = {
    "transposed": lambda rng, dtype, m, k: random_tile(rng, dtype, k, m).T,
    "every second": lambda rng, dtype, m, k: random_tile(rng, dtype, 2 * m, 3 * k)[::2, ::3],
    "backwards": lambda rng, dtype, m, k: random_tile(rng, dtype, m, k)[::-1, ::-1],
    "one row for all": lambda rng, dtype, m, k: np.broadcast_to(
        rng.normal(size=k).astype(dtype), (m, k)
    ).view(),
    "one column for all": lambda rng, dtype, m, k: np.broadcast_to(
        rng.normal(size=(m, 1)).astype(dtype), (m, k)
    ).view(),
}


@by_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore:Numba:DeprecationWarning")
def test_a_of_any_strides(rng, dtype, layout):
    L = count_lanes(dtype)
    for m, n, k in [(1, 1, 1), (64, 4, 64), (7, 7, 5), (13, 3, 64)]:
        a = LAYOUTS[layout](rng, dtype, m, k)
        if not a.flags.writeable:  # the kernels know one type of matrix, which can be written to
            a = np.lib.stride_tricks.as_strided(a.base, a.shape, a.strides, writeable=True)
        b = random_tile(rng, dtype, k, n * L)
        assert_product(random_tile(rng, dtype, m, n * L), a, b, True)


@by_dtype
def test_b_and_c_of_any_distance_between_rows(rng, dtype):
    L = count_lanes(dtype)
    a, b, c = (random_tile(rng, dtype, *shape) for shape in [(9, 10), (30, 3 * L), (27, 3 * L)])
    around = c.copy()
    assert_product(c[2::3], a, b[::3], False)
    assert_close(c[::3], around[::3], "exact")
    assert_close(c[1::3], around[1::3], "exact")
    assert_product(c[::-3], a, b[::-3], False)
    assert_product(c[:9], a, b[4:5].repeat(10, 0), True)


@by_dtype
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_odd_numbers_stay_in_their_row_and_column(rng, dtype, odd):
    L = count_lanes(dtype)
    for m, n in itertools.product((1, 9, 64), N):
        a, b = random_tile(rng, dtype, m, 6), random_tile(rng, dtype, 6, n * L)
        a[m // 2, 3] = odd
        b[2, n * L // 2] = odd
        c = np.zeros((m, n * L), dtype)
        apply_multiply(dtype)(c, a, b, c, 0)
        there = np.zeros(c.shape, bool)
        there[m // 2], there[:, n * L // 2] = True, True
        np.testing.assert_array_equal(~np.isfinite(c), there)
