"""The error function, which NumPy does not have."""

import math

import numpy as np

from mha_numpy.dtypes import Array

SPACING, FURTHEST = 1 / 32, 6.0  # of the points where erf is known; beyond the last it is 1
FEW, TERMS = 5, 9  # of a series, for the last place of float32 and of float64


def _series_at_points() -> list[Array]:
    """Return the coefficients of erf's Taylor series, each for all points: derivatives over n!."""
    points = np.arange(0, FURTHEST + SPACING, SPACING)
    slopes = erf_slope(points)
    hermite = [np.ones_like(points), 2 * points]
    for n in range(1, TERMS - 2):
        hermite.append(2 * points * hermite[n] - 2 * n * hermite[n - 1])
    higher = [(-1) ** n * h * slopes / math.factorial(n + 1) for n, h in enumerate(hermite)]
    return [np.array([math.erf(point) for point in points]), *higher]


def erf(x: Array) -> Array:
    """Return ``2 / sqrt(pi) * integral of e^(-t^2) from 0 to x`` for every x.

    Each number takes the Taylor series of the nearest point at which erf is known. The imaginary
    part of a complex step is multiplied by the slope, because it is very small.
    """
    if x.dtype.kind == "c":
        return erf(x.real) + 1j * x.imag * erf_slope(x.real)
    size = np.minimum(np.abs(x), FURTHEST)  # NaN stays NaN
    nearest = np.rint(np.nan_to_num(size) / SPACING).astype(np.intp)
    beyond = size - (nearest * SPACING).astype(x.dtype)
    terms = FEW if x.dtype == np.float32 else TERMS
    *lower, value = (each.astype(x.dtype)[nearest] for each in SERIES[:terms])
    for coefficient in reversed(lower):
        value = value * beyond + coefficient
    return np.copysign(value, x)


def erf_slope(x: Array) -> Array:
    """Return the derivative of erf: ``2 / sqrt(pi) * e^(-x^2)``."""
    return 2 / math.sqrt(math.pi) * np.exp(-(x**2))


SERIES = _series_at_points()
