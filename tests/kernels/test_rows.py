"""Dot products of rows against NumPy."""

import numpy as np

from mha_numpy.kernels.rows import row_dots
from tests.kernels.drivers import by_dtype, count_lanes, driver, matrix, random_tile


@driver(matrix, matrix, matrix)
def apply_row_dots(dots, a, b):
    row_dots(dots, a, b)


@by_dtype
def test_row_dots(rng, dtype):
    L = count_lanes(dtype)
    for rows, others, width in [(1, 2, L), (7, 4, 3 * L), (64, 8, 8 * L), (5, 2, 0)]:
        a, b, dots = (
            random_tile(rng, dtype, *shape)
            for shape in [(rows, width), (others, width), (rows, others + 3)]
        )
        a[:], b[:] = rng.integers(-9, 9, a.shape), rng.integers(-9, 9, b.shape)
        rest = dots[:, others:].copy()
        apply_row_dots(dtype)(dots, a, b)
        assert np.array_equal(dots[:, :others], a @ b.T)  # whole numbers: no rounding
        assert np.array_equal(dots[:, others:], rest)
        assert np.isnan(dots.base[[0, -1]]).all()  # nothing is written around it
