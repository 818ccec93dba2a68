"""The product of whole matrices against NumPy in float64."""

import itertools

import numba
import numpy as np
import pytest

from mha_numpy.kernels import parallel
from mha_numpy.kernels.matmul import (
    DEPTH,
    FEW_ROWS,
    HEIGHT,
    LEAST_DEPTH,
    STEP,
    WIDTH,
    cut_sum,
    linear,
    linear_backward,
    multiply_add,
)
from tests.compare import assert_close
from tests.kernels.drivers import assert_is_product, by_dtype


def matmul(a, b):
    c = np.empty((len(a), b.shape[1]), a.dtype)
    multiply_add(c, a, b)
    return c


def assert_product(a, b):
    assert_is_product(lambda: matmul(a, b), a, b)


def random_matrix(rng, dtype, rows, columns):
    return rng.normal(size=(rows, columns)).astype(dtype)


@by_dtype
def test_every_size(rng, dtype):
    for M, K, N in itertools.product((1, 5, 64, 67), (1, 63, 64, 130), (1, 15, 16, 64, 129)):
        assert_product(random_matrix(rng, dtype, M, K), random_matrix(rng, dtype, K, N))


@by_dtype
def test_beyond_one_strip(rng, dtype):
    shapes = [(HEIGHT + 1, 70, 130), (2 * HEIGHT + 70, 3, 65), (66, 2 * DEPTH + 9, WIDTH + 70)]
    for M, K, N in shapes:
        assert_product(random_matrix(rng, dtype, M, K), random_matrix(rng, dtype, K, N))


@by_dtype
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_linear_map(rng, dtype, has_bias):
    """Whole numbers, so that nothing is rounded; more tokens and features than one strip has."""
    x, w, b, d_out = (
        rng.integers(-4, 5, size=shape).astype(dtype)
        for shape in [(2, 150, 70), (70, WIDTH + 9), WIDTH + 9, (2, 150, WIDTH + 9)]
    )
    out = linear(x, w, b if has_bias else None)
    assert_close(out, x @ w + has_bias * b, "exact")
    d_x, d_w, d_b = linear_backward(d_out, x, w, has_bias)
    assert_close(d_x, d_out @ w.T, "exact")
    assert_close(d_w, np.einsum("bti,bto->io", x, d_out), "exact")
    if has_bias:
        assert_close(d_b, d_out.sum(axis=(0, 1)), "exact")
    else:
        assert d_b is None


@by_dtype
@pytest.mark.parametrize("rows", [2 * LEAST_DEPTH, 3 * LEAST_DEPTH + 70, 9 * LEAST_DEPTH + 1])
@pytest.mark.parametrize("columns", [64, 70, WIDTH + 1])
def test_long_sums_for_a_small_result(rng, dtype, rows, columns):
    """Whole numbers again; the sums are cut into shares, and what they start from counts once."""
    a, b, start = (
        rng.integers(-4, 5, size=shape).astype(dtype)
        for shape in [(30, rows), (rows, columns), columns]
    )
    assert cut_sum(*a.shape, columns)[0] > 1
    c, sums = np.full((30, columns), np.nan, dtype), np.full(columns, np.nan, dtype)
    multiply_add(c, a, b, start=start, sums=sums)
    assert_close(c, a @ b + start, "exact")
    assert_close(sums, b.sum(axis=0), "exact")


@by_dtype
@pytest.mark.parametrize("rows", [1, 7, 8, 70, STEP + 3, 3 * LEAST_DEPTH + 70])
@pytest.mark.parametrize("columns", [1, 5, 64, 70, WIDTH + 1])
@pytest.mark.parametrize("has_start", [False, True])
@pytest.mark.parametrize("few", [1, 2, FEW_ROWS])
def test_few_rows(rng, dtype, few, rows, columns, has_start):
    """Whole numbers; b is read where it is, and parts of it beside are not touched."""
    a, wide, start = (
        rng.integers(-4, 5, size=shape).astype(dtype)
        for shape in [(few, rows), (rows, columns + 3), columns]
    )
    for b in (wide[:, :columns], wide[:, 1 : columns + 1].copy()):
        c = np.full((few, columns), np.nan, dtype)
        multiply_add(c, a, b, start=start if has_start else None)
        assert_close(c, a @ b + has_start * start, "exact")


def test_long_sums_keep_their_digits():
    """One number after the other, 0.1 would be added to 3,000 with an error of 1e-4 each time."""
    b = np.full((2**15, 40), 0.1, np.float32)
    c, sums = np.empty((1, 40), np.float32), np.empty(40, np.float32)
    multiply_add(c, np.ones((1, 2**15), np.float32), b, sums=sums)
    few = linear(np.ones((2, 2**15), np.float32), b, None)
    exact = 2**15 * np.float64(np.float32(0.1))
    assert abs(sums / exact - 1).max() < 1e-6
    assert abs(few / exact - 1).max() < 4e-6


LAYOUTS = {
    "contiguous": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every other row and column": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column for all": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"?" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
}


@by_dtype
@pytest.mark.parametrize("tokens", [4, 40])
@pytest.mark.parametrize("width", [64, 70, 128])
@pytest.mark.parametrize("layout", [
    lambda b: np.repeat(b, 2)[::2], lambda b: b[::-1].copy()[::-1],
    lambda b: np.broadcast_to(b[:1], b.shape), lambda b: np.stack([b, b + 1], axis=1)[:, 0],
])  # fmt: skip
def test_every_layout_of_a_bias(rng, dtype, tokens, width, layout):
    x, w, b = (
        rng.integers(-4, 5, size=shape).astype(dtype)
        for shape in [(tokens, 17), (17, width), width]
    )
    assert_close(linear(x, w, layout(b)), x @ w + layout(b), "exact")


@by_dtype
@pytest.mark.parametrize("pair", list(itertools.product(LAYOUTS, repeat=2)), ids=" and ".join)
def test_every_layout(rng, dtype, pair):
    shapes = [(70, 100), (100, 81)]
    a, b = (
        LAYOUTS[layout](rng.integers(-4, 5, size=shape).astype(dtype))
        for layout, shape in zip(pair, shapes, strict=True)
    )
    assert_close(matmul(a, b), a.astype(np.float64) @ b, "exact")  # whole numbers: no rounding


@by_dtype
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nan_and_inf_stay_in_their_row_and_column(rng, dtype, poison):
    a, b = random_matrix(rng, dtype, 70, 600), random_matrix(rng, dtype, 600, 81)
    a[3, 599], b[0, 66] = poison, poison
    odd = np.zeros((70, 81), bool)
    odd[3], odd[:, 66] = True, True
    assert np.array_equal(~np.isfinite(matmul(a, b)), odd)


@by_dtype
def test_bitwise_the_same_for_any_number_of_threads(rng, dtype, monkeypatch):
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)
    a, b = random_matrix(rng, dtype, 700, 600), random_matrix(rng, dtype, 600, 200)
    most, found = numba.get_num_threads(), set()
    for threads in range(1, most + 1):
        numba.set_num_threads(threads)
        found |= {matmul(a, b).tobytes() for _ in range(3)}
    assert len(found) == 1
