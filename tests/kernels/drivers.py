"""What tests of inner functions share: these have no Python wrapper, so each needs a driver."""

import functools

import numba
import numpy as np
import pytest
from numba import from_dtype, types

from mha_numpy.kernels.simd import lanes_of
from tests.compare import Tolerance, assert_close

DTYPES = [np.float32, np.float64]
by_dtype = pytest.mark.parametrize("dtype", DTYPES)


def number(dtype):
    return from_dtype(np.dtype(dtype))


def matrix(dtype):
    """Return the type that all tiles have, so that what the kernels compiled is used."""
    return types.Array(number(dtype), 2, "A", aligned=True)


def count_lanes(dtype):
    return lanes_of(number(dtype))


def driver(*argument_types):
    """Compile a function without reference counting, once for each dtype.

    ``@driver(matrix, types.intp)``: what it decorates takes a dtype and returns the function.
    """

    def decorate(function):
        @functools.cache
        def compiled(dtype):
            given = [ty if isinstance(ty, types.Type) else ty(dtype) for ty in argument_types]
            return numba.njit([types.none(*given)], _nrt=False)(function)

        return compiled

    return decorate


def random_tile(rng, dtype, *shape):
    """Return random numbers in the middle of a larger array: its rows begin anywhere."""
    around = np.full([n + 2 for n in shape], np.nan, dtype)
    tile = around[(slice(1, -1),) * len(shape)]
    tile[:] = rng.normal(size=shape)
    return tile


def assert_is_product(multiply, a, b, start=0):
    """Fail unless multiply() returns start + a @ b, in their dtype, and leaves a and b alone."""
    wide_a, wide_b, before = a.astype(np.float64), b.astype(np.float64), (a.copy(), b.copy())
    c = multiply()
    assert c.dtype == a.dtype
    # a sum of k numbers has k roundings, relative to their sizes
    size = (abs(wide_a) @ abs(wide_b)).max(initial=0)
    tolerance = np.finfo(c.dtype).eps * (4 + size * np.sqrt(1 + a.shape[1]) / 2)
    assert_close(c, start + wide_a @ wide_b, Tolerance(0, tolerance))
    assert_close(a, before[0], "exact")
    assert_close(b, before[1], "exact")
