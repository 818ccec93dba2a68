"""What tests of inner functions share: these have no Python wrapper, so each needs a driver."""

import functools

import numba
import numpy as np
import pytest
from numba import from_dtype, types

from mha_numpy.kernels.simd import lanes_of

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
