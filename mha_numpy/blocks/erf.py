"""The error function, which NumPy does not have."""

import math

import numpy as np

from mha_numpy.dtypes import Array

_erf_of_each = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    """Return ``2 / sqrt(pi) * integral of e^(-t^2) from 0 to x`` for every x.

    The imaginary part of a complex step is multiplied by the slope, as it is very small.
    """
    if x.dtype.kind == "c":
        return _erf_of_each(x.real) + 1j * x.imag * erf_slope(x.real)
    return _erf_of_each(x).astype(x.dtype)


def erf_slope(x: Array) -> Array:
    """Return the derivative of erf: ``2 / sqrt(pi) * e^(-x^2)``."""
    return 2 / math.sqrt(math.pi) * np.exp(-(x**2))
