"""Where two arrays of one shape differ by more than rounding, cell by cell."""

from typing import Any

import numpy as np

from mha_numpy.dtypes import Array

ROUNDINGS = 1000  # of the largest expected number, that two right ways may be apart


def largest_of(array: Array) -> np.longdouble:
    """Return the largest finite magnitude in an array, 0 if there is none."""
    return np.longdouble(np.abs(array[np.isfinite(array)]).max(initial=0))


def differing(
    actual: Array, expected: Array, largest: np.floating[Any], tolerance: float | None = None
) -> Array:
    """Return which numbers differ by more than a share of the largest one; NaN equals NaN.

    The share is the tolerance, or else a thousand roundings of the coarser of both dtypes; numbers
    that are not floats have to be equal.
    """
    floats = [array.dtype for array in (actual, expected) if array.dtype.kind in "fc"]
    if not floats:
        return np.asarray(actual != expected)
    if tolerance is None:
        tolerance = ROUNDINGS * max(float(np.finfo(dtype).eps) for dtype in floats)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    is_finite = np.isfinite(actual) & np.isfinite(expected)
    return ~(same | (is_finite & (distances(actual, expected) <= largest * tolerance)))


def distances(actual: Array, expected: Array) -> Array:
    """Return how far apart two arrays are, cell by cell, in float64 or wider."""
    wide = np.result_type(actual, expected, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # 1e308 - -1e308, inf - inf
        return np.abs(actual.astype(wide) - expected.astype(wide))


def two_numbers(one: Any, other: Any) -> tuple[str, str]:
    """Return two numbers with enough digits to tell them apart, at least four."""
    if isinstance(one, (bool, np.bool_, int, np.integer)):
        return str(one), str(other)
    for digits in (4, 8, 17):
        texts = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts
