"""Vectors against NumPy, with every pair of special numbers."""

import itertools

import numpy as np
import pytest
from numba import types

from mha_numpy.kernels.simd import (
    bits_from_lanes,
    full,
    lanes,
    lanes_from_bits,
    load,
    load_some,
    maximum,
    maximum_of_lanes,
    multiply_add,
    select,
    store,
    store_some,
    sum_of_lanes,
)
from tests.kernels.drivers import by_dtype, count_lanes, driver, matrix, number

words = types.Array(types.uint64, 1, "C")
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 1e-30, 3e30, 7.0, 0.1]


def pairs(dtype, count=192):
    """Return two rows that hold every pair of special numbers, and random ones."""
    rng = np.random.default_rng(5)
    x, y = np.array(list(itertools.product(SPECIAL, repeat=2)), dtype).T
    more = rng.normal(size=(2, count - len(x))).astype(dtype)
    return np.concatenate([x, more[0]])[None], np.concatenate([y, more[1]])[None]


@driver(matrix, matrix, matrix, number)
def arithmetic(out, x, y, a):
    for c in range(0, x.shape[1], lanes(x)):
        v, w = load(x, 0, c), load(y, 0, c)
        store(out, 0, c, v + w)
        store(out, 1, c, v - w)
        store(out, 2, c, v * w)
        store(out, 3, c, v / w)
        store(out, 4, c, v + a)
        store(out, 5, c, v - a)
        store(out, 6, c, v * a)
        store(out, 7, c, v / a)
        store(out, 8, c, a + v)
        store(out, 9, c, a - v)
        store(out, 10, c, a * v)
        store(out, 11, c, a / v)
        store(out, 12, c, 1 - v * 2)
        store(out, 13, c, full(x, a))


@by_dtype
@np.errstate(all="ignore")
def test_arithmetic(dtype):
    x, y = pairs(dtype)
    a = dtype(-1.3)
    out = np.zeros((14, x.shape[1]), dtype)
    arithmetic(dtype)(out, x, y, a)
    expected = [x + y, x - y, x * y, x / y, x + a, x - a, x * a, x / a,
                a + x, a - x, a * x, a / x, 1 - x * 2, np.full_like(x, a)]  # fmt: skip
    for row, (found, wanted) in enumerate(zip(out, expected, strict=True)):
        assert wanted.dtype == dtype
        np.testing.assert_array_equal(found, wanted[0], err_msg=f"row {row}")
        odd = np.isnan(found)
        assert (np.signbit(found) == np.signbit(wanted[0]))[~odd].all(), row


@driver(words, matrix, matrix, number)
def comparisons(out, x, y, a):
    L, n = lanes(x), x.shape[1] // lanes(x)
    for block in range(n):
        v, w = load(x, 0, block * L), load(y, 0, block * L)
        out[block] = bits_from_lanes(v < w)
        out[n + block] = bits_from_lanes(v == w)
        out[2 * n + block] = bits_from_lanes(v != w)
        out[3 * n + block] = bits_from_lanes(v < a)
        out[4 * n + block] = bits_from_lanes(v == a)
        out[5 * n + block] = bits_from_lanes(v != a)
        out[6 * n + block] = bits_from_lanes(a < v)
        out[7 * n + block] = bits_from_lanes(a == v)
        out[8 * n + block] = bits_from_lanes(a != v)
        out[9 * n + block] = bits_from_lanes(v != -np.inf)
        out[10 * n + block] = bits_from_lanes(v == 0)


@by_dtype
@pytest.mark.parametrize("a", [1.5, -np.inf, np.nan])
def test_comparisons(dtype, a):
    x, y = pairs(dtype)
    expected = [x < y, x == y, x != y, x < a, x == a, x != a, a < x, a == x, a != x,
                x != -np.inf, x == 0]  # fmt: skip
    L = count_lanes(dtype)
    out = np.full((len(expected), x.shape[1] // L), 2**64 - 1, np.uint64)
    comparisons(dtype)(out.ravel(), x, y, dtype(a))
    bits = out[..., None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    assert not bits[..., L:].any()
    for row, (found, wanted) in enumerate(zip(bits[..., :L], expected, strict=True)):
        np.testing.assert_array_equal(found.ravel() == 1, wanted[0], err_msg=f"row {row}")


@driver(matrix, matrix, matrix, matrix, number)
def functions(out, x, y, z, a):
    for c in range(0, x.shape[1], lanes(x)):
        v, w, u = load(x, 0, c), load(y, 0, c), load(z, 0, c)
        store(out, 0, c, maximum(v, w))
        store(out, 1, c, select(v < w, v, w))
        store(out, 2, c, select(v < w, a, w))
        store(out, 3, c, select(v < w, v, a))
        store(out, 4, c, multiply_add(v, w, u))
        store(out, 5, c, multiply_add(a, w, u))
        store(out, 6, c, multiply_add(v, a, u))
        store(out, 7, c, multiply_add(v, w, a))


def apply_functions(dtype, x, y, z, a):
    out = np.zeros((8, x.shape[1]), dtype)
    functions(dtype)(out, x, y, z, dtype(a))
    return out


@by_dtype
def test_maximum_and_select(dtype):
    x, y = pairs(dtype)
    found, a = apply_functions(dtype, x, y, x, 42), dtype(42)
    # the second where either is NaN: one that comes first is forgotten, one that comes second stays
    larger = np.where(x > y, x, y)
    selected = [np.where(x < y, *of) for of in ((x, y), (a, y), (x, a))]
    for row, expected in zip(found, [larger, *selected], strict=False):
        np.testing.assert_array_equal(row, expected[0])
    assert np.isnan(found[0]).sum() == np.isnan(y).sum() > 0


@by_dtype
def test_multiply_add_rounds_at_most_twice(rng, dtype):
    x, y, z = rng.normal(size=(3, 1, 512)).astype(dtype)
    z[0, ::2] = -(x * y)[0, ::2]  # what is left is the rounding of the product
    a = dtype(0.7)
    found = apply_functions(dtype, x, y, z, a)[4:]
    eps = np.finfo(dtype).eps
    for row, factors in zip(found, [(x, y, z), (a, y, z), (x, a, z), (x, y, a)], strict=True):
        p, q, r = (np.asarray(n, np.longdouble) for n in factors)
        assert (abs(row - (p * q + r)) <= 0.51 * eps * (abs(p * q) + abs(p * q + r))).all()


@driver(words, words, types.intp, matrix)
def round_trip(out, given, first, of):
    for i in range(len(given)):
        out[i] = bits_from_lanes(lanes_from_bits(of, given[i], first))


@by_dtype
def test_bits_to_lanes_and_back(rng, dtype):
    L = count_lanes(dtype)
    given = rng.integers(2**64, size=100, dtype=np.uint64)
    given[:2] = 0, 2**64 - 1
    for first in range(0, 64, L):
        out = np.zeros_like(given)
        round_trip(dtype)(out, given, first, np.zeros((1, L), dtype))
        expected = given >> np.uint64(first) & np.uint64(2**L - 1)
        np.testing.assert_array_equal(out, expected)


@driver(matrix, matrix, types.intp)
def some_lanes(out, x, count):
    store(out, 0, 1, load_some(x, 0, 1, count))
    store_some(out, 1, 1, load(x, 0, 1), count)


@by_dtype
def test_some_lanes_leave_the_others_alone(dtype):
    L = count_lanes(dtype)
    x = np.arange(1, L + 3, dtype=dtype)[None]
    for count in range(L + 1):
        out = np.full((2, L + 2), np.nan, dtype)
        some_lanes(dtype)(out, x, count)
        first = np.arange(L) < count
        np.testing.assert_array_equal(out[0, 1:-1], np.where(first, x[0, 1:-1], 0))
        np.testing.assert_array_equal(out[1, 1:-1], np.where(first, x[0, 1:-1], np.nan))
        assert np.isnan(out[:, [0, -1]]).all()


@driver(matrix, matrix)
def folded(out, x):
    out[0, 0] = maximum_of_lanes(load(x, 0, 0))
    out[0, 1] = sum_of_lanes(load(x, 0, 0))


@by_dtype
def test_a_vector_becomes_one_number(rng, dtype):
    L = count_lanes(dtype)
    for at in range(L):
        x, out = rng.normal(size=(1, L)).astype(dtype), np.empty((1, 2), dtype)
        x[0, at] = 9 if at % 2 else np.inf
        folded(dtype)(out, x)
        assert out[0, 0] == x[0, at]
        np.testing.assert_allclose(out[0, 1], x.sum(), rtol=8 * np.finfo(dtype).eps)
