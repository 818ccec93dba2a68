"""The error function, which NumPy has not."""

import functools
import math
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array

STEP = 2.0**-10
END = 6.0  # beyond it erf is 1 to the last digit of float64


def erf(x: Array) -> Array:
    """Return ``2 / sqrt(pi) * integral of e^(-t^2) from 0 to x``, to the last digit.

    By Taylor's series from the nearest point of a grid. A complex step is followed along the slope:
    its imaginary part is too small to bend.
    """
    if x.dtype.kind == "c":
        return erf(x.real) + 1j * x.imag * erf_slope(x.real)
    size = np.minimum(np.abs(x), END)
    index = (np.fmin(size, END) / STEP + 0.5).astype(np.intp)  # NaN, too, is at a point
    u = (index * STEP).astype(x.dtype)
    d = size - u  # at most half a step: the next term would be d^5
    of_u, slope = (table[index] for table in _tables(x.dtype))
    series = d * (1 - d * (u - d * ((2 * u**2 - 1) / 3 - d * u * (2 * u**2 - 3) / 6)))
    return np.copysign(of_u + slope * series, x)


def erf_slope(x: Array) -> Array:
    """Return the derivative of erf: ``2 / sqrt(pi) * e^(-x^2)``."""
    return 2 / math.sqrt(math.pi) * np.exp(-(x**2))


@functools.cache
def _tables(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return erf and its slope at the points of the grid."""
    points = np.arange(0, END + STEP, STEP)
    of_points = np.array([math.erf(point) for point in points])
    return of_points.astype(dtype), erf_slope(points).astype(dtype)
