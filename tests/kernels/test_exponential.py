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


def small(dtype):
    x = np.geomspace(np.finfo(dtype).tiny * 16, 1e-2, 1000)
    return np.concatenate([x, -x])


def halves(dtype):
    """Return where the power of two changes, and what lies beside."""
    x = (np.arange(0, LEAST_NORMAL[dtype] / np.log(2) + 1, -0.5) * np.log(2)).astype(dtype)
    return np.concatenate([x, np.nextafter(x, dtype(-np.inf))])


NUMBERS = {
    # beside the polynomial's, exp has an error of n * log(2), which grows with x as its rounding
    "exp": (exp, EXP, lambda dtype: [
        halves(dtype),
        *(np.linspace(furthest or LEAST_NORMAL[dtype] + 1e-3, 0, 100_000)
          for furthest in (-1e-3, -1.0, -20.0, None, 8.0, 80.0)),
    ]),
    "tanh": (tanh, TANH, lambda dtype: [
        small(dtype), *(np.linspace(-high, high, 100_000) for high in (1e-3, 0.1, 1.0, 5.0, 25.0)),
    ]),
    "log": (log, LOG, lambda dtype: [
        1 + np.finfo(dtype).eps * np.arange(-500, 500),
        np.geomspace(0.5, 0.99, 100_000), np.geomspace(1.01, 3, 100_000),
        np.geomspace(1, 1e5, 100_000),
        np.geomspace(np.finfo(dtype).tiny, np.finfo(dtype).max / 2, 100_000),
    ]),
}  # fmt: skip


@by_dtype
@pytest.mark.parametrize("name", NUMBERS)
def test_relative_error(dtype, name):
    function, most, numbers = NUMBERS[name]
    for x in numbers(dtype):
        x = x.astype(dtype)
        x = x[x != (1 if function is log else 0)]  # where the logarithm or tanh is 0
        allowed = most + (abs(x) if function is exp else 0)
        assert (errors(function, x) <= allowed).all()


# in every dtype: the function, numbers, and what is exactly theirs
EXACT = [
    (exp, [0.0, -0.0], 1),
    (exp, [-1e4, -1e30, -np.inf], 0),
    (tanh, [0.0, -0.0], 0),
    (tanh, [20.5, 40, 1e4, 3e38, np.inf], 1),
    (tanh, [-20.5, -40, -1e4, -3e38, -np.inf], -1),
    (log, [1.0], 0),
    (log, [np.inf], np.inf),
]


@by_dtype
@pytest.mark.parametrize(("function", "numbers", "expected"), EXACT)
def test_exact_values(dtype, function, numbers, expected):
    assert (apply(function, np.array(numbers, dtype)) == expected).all()


@by_dtype
def test_no_power_is_subnormal(dtype):
    tiny, bound = np.finfo(dtype).tiny, LEAST_NORMAL[dtype]
    x = np.array([bound - 1e-3, bound - 1, 1.2 * bound, np.finfo(dtype).min], dtype)
    assert (apply(exp, x) == 0).all()
    around = np.linspace(bound - 0.01, bound + 0.01, 1001).astype(dtype)
    found = apply(exp, around)
    # the smallest that is not 0 may fall short of the least normal number by its rounding
    eps = np.finfo(dtype).eps
    assert ((found == 0) | (found >= tiny * (1 - (2 + abs(bound)) * eps))).all()
    assert (found[around > bound + 1e-4] > 0).all()


@by_dtype
def test_never_leaves_its_range(dtype):
    assert abs(apply(tanh, np.linspace(-30, 30, 60_001).astype(dtype))).max() == 1
    found = apply(exp, np.linspace(-5, 0, 20_001).astype(dtype))
    assert (np.diff(found) >= 0).all()
    assert found.max() == 1
    assert (apply(exp, -np.geomspace(1e-37, 1e-9, 50).astype(dtype)) <= 1).all()


@by_dtype
@pytest.mark.parametrize("function", DRIVERS)
def test_nan_stays(function, dtype):
    assert np.isnan(apply(function, nans(dtype))).all()
