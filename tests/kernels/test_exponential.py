"""exp, tanh and log of Vectors against extended precision."""

import numpy as np
import pytest

from mha_numpy.kernels.exponential import exp, log, tanh
from mha_numpy.kernels.simd import lanes, load, store
from tests.kernels.drivers import by_dtype, driver, matrix

# largest relative errors, in units of eps
EXP, TANH, LOG = 1.5, 3, 3
LEAST_NORMAL = {np.float32: -126 * np.log(2), np.float64: -1022 * np.log(2)}  # its logarithm


def driver_of(function):
    @driver(matrix, matrix)
    def apply_to_vectors(out, x):
        for c in range(0, x.shape[1], lanes(x)):
            store(out, 0, c, function(load(x, 0, c)))

    return apply_to_vectors


DRIVERS = {function: driver_of(function) for function in (exp, tanh, log)}


def apply(function, x):
    """Return function(x) for a few numbers; the last register is filled up with zeros."""
    padded = np.zeros((1, -(-x.size // 64) * 64), x.dtype)
    padded[0, : x.size] = x
    out = np.full_like(padded, 42)
    DRIVERS[function](x.dtype.type)(out, padded)
    return out[0, : x.size]


def errors(function, x):
    """Return the errors relative to NumPy's in extended precision, in units of eps."""
    found, wide = apply(function, x), x.astype(np.longdouble)
    expected = {exp: np.exp, tanh: np.tanh, log: np.log}[function](wide)
    return abs((found - expected) / expected) / np.finfo(x.dtype).eps


def nans(dtype):
    """Return NaNs of every kind: quiet and signalling, of either sign, with odd payloads."""
    if dtype == np.float32:
        bits = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA5A5A5]
        return np.array(bits, np.uint32).view(dtype)
    bits = [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, (0xFFF0 << 48) + 1, 2**63 - 1,
            2**64 - 1, 0x7FF5A5A5A5A5A5A5]  # fmt: skip
    return np.array(bits, np.uint64).view(dtype)


class TestExp:
    @by_dtype
    @pytest.mark.parametrize("furthest", [-1e-3, -1.0, -20.0, None, 8.0, 80.0])
    def test_relative_error(self, dtype, furthest):
        x = np.linspace(furthest or LEAST_NORMAL[dtype] + 1e-3, 0, 100_000).astype(dtype)
        # beside the polynomial's, an error of n * log(2), which grows with x as its rounding does
        assert (errors(exp, x) <= EXP + abs(x)).all()

    @by_dtype
    def test_where_the_power_of_two_changes(self, dtype):
        halves = (np.arange(0, LEAST_NORMAL[dtype] / np.log(2) + 1, -0.5) * np.log(2)).astype(dtype)
        x = np.concatenate([halves, np.nextafter(halves, dtype(-np.inf))])
        assert (errors(exp, x) <= EXP + abs(x)).all()

    @by_dtype
    def test_no_power_is_subnormal(self, dtype):
        tiny, bound = np.finfo(dtype).tiny, LEAST_NORMAL[dtype]
        x = np.array([bound - 1e-3, bound - 1, 1.2 * bound, -1e4, -1e30, np.finfo(dtype).min,
                      -np.inf], dtype)  # fmt: skip
        assert (apply(exp, x) == 0).all()
        around = np.linspace(bound - 0.01, bound + 0.01, 1001).astype(dtype)
        found = apply(exp, around)
        # the smallest that is not 0 may fall short of the least normal number by its rounding
        eps = np.finfo(dtype).eps
        assert ((found == 0) | (found >= tiny * (1 - (2 + abs(bound)) * eps))).all()
        assert (found[around > bound + 1e-4] > 0).all()

    @by_dtype
    def test_of_zero_is_exactly_one(self, dtype):
        assert (apply(exp, np.array([0.0, -0.0], dtype)) == 1).all()
        assert (apply(exp, -np.geomspace(1e-37, 1e-9, 50).astype(dtype)) <= 1).all()

    @by_dtype
    def test_falls_with_x(self, dtype):
        x = np.linspace(-5, 0, 20_001).astype(dtype)
        found = apply(exp, x)
        assert (np.diff(found) >= 0).all()
        assert found.max() == 1


class TestTanh:
    @by_dtype
    @pytest.mark.parametrize("high", [1e-3, 0.1, 1.0, 5.0, 25.0])
    def test_relative_error(self, dtype, high):
        x = np.linspace(-high, high, 100_000).astype(dtype)
        assert (errors(tanh, x) <= TANH).all()

    @by_dtype
    def test_small_numbers_keep_their_relative_accuracy(self, dtype):
        x = np.geomspace(np.finfo(dtype).tiny * 16, 1e-2, 1000).astype(dtype)
        x = np.concatenate([x, -x])
        assert (errors(tanh, x) <= TANH).all()
        assert (apply(tanh, np.array([0.0, -0.0], dtype)) == 0).all()

    @by_dtype
    def test_saturates(self, dtype):
        x = np.array([20.5, 40, 1e4, np.finfo(dtype).max, np.inf], dtype)
        assert (apply(tanh, x) == 1).all()
        assert (apply(tanh, -x) == -1).all()

    @by_dtype
    def test_never_leaves_its_range(self, dtype):
        found = apply(tanh, np.linspace(-30, 30, 60_001).astype(dtype))
        assert abs(found).max() == 1


class TestLog:
    @by_dtype
    def test_relative_error(self, dtype):
        limits = np.finfo(dtype)
        for low, high in ((0.5, 0.99), (1.01, 3), (1, 1e5), (limits.tiny, limits.max / 2)):
            x = np.geomspace(low, high, 100_000).astype(dtype)
            x = x[x != 1]
            assert (errors(log, x) <= LOG).all()

    @by_dtype
    def test_near_one(self, dtype):
        x = (1 + np.finfo(dtype).eps * np.arange(-500, 500)).astype(dtype)
        assert (apply(log, x[x == 1]) == 0).all()
        assert (errors(log, x[x != 1]) <= LOG).all()

    @by_dtype
    def test_inf_stays(self, dtype):
        assert (apply(log, np.array([np.inf], dtype)) == np.inf).all()


@by_dtype
@pytest.mark.parametrize("function", DRIVERS)
def test_nan_stays(function, dtype):
    assert np.isnan(apply(function, nans(dtype))).all()
