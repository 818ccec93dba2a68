"""Tiles turned over, against NumPy."""

import itertools

import numpy as np

from mha_numpy.kernels.transpose import transpose
from tests.kernels.drivers import by_dtype, count_lanes, driver, matrix, random_tile


@driver(matrix, matrix)
def apply_transpose(target, source):
    transpose(target, source)


@by_dtype
def test_every_size(rng, dtype):
    L = count_lanes(dtype)
    for rows, columns in itertools.product((1, 2, 3, 4, 5), repeat=2):
        source = random_tile(rng, dtype, rows * L, columns * L)
        target = random_tile(rng, dtype, columns * L, rows * L)
        expected = source.T.copy()
        apply_transpose(dtype)(target, source)
        np.testing.assert_array_equal(target, expected)
        np.testing.assert_array_equal(source, expected.T)
        assert np.isnan(target.base[[0, -1]]).all()  # nothing is written around it
        assert np.isnan(target.base[:, [0, -1]]).all()


@by_dtype
def test_rows_may_lie_apart(rng, dtype):
    L = count_lanes(dtype)
    source, target = random_tile(rng, dtype, 2 * L, L), random_tile(rng, dtype, 2 * L, L)
    untouched = target[1::2].copy()
    apply_transpose(dtype)(target[::2], source[::-2])
    np.testing.assert_array_equal(target[::2], source[::-2].T)
    np.testing.assert_array_equal(target[1::2], untouched)


@by_dtype
def test_bits_are_kept(rng, dtype):
    L = count_lanes(dtype)
    raw = rng.integers(0, 256, (L, L * np.dtype(dtype).itemsize), np.uint8)  # NaNs of all kinds
    target = np.zeros((L, L), dtype)
    apply_transpose(dtype)(target, raw.view(dtype))
    assert target.T.tobytes() == raw.tobytes()
