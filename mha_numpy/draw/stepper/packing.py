"""Numbers as text: three characters each, about four significant digits.

A number is 18 bits: sign (1), exponent (5), mantissa (12), and six bits are a character. The
exponent counts down from the largest of its buffer: 31 is the largest, 1 is 2^30 times less.
Exponent 0 is for what has none: zero, infinity, NaN, and a number too small for the rest.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array

CHARACTERS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
LARGEST_EXPONENT, MANTISSA_BITS = 31, 12
ZERO, INFINITE, NOT_A_NUMBER, TINY = range(4)  # mantissas where the exponent is 0


class Packed(NamedTuple):
    """A buffer of numbers as text."""

    codes: str  # three characters for each number
    exponent: int  # of the largest finite number: 2^exponent <= |largest| < 2^(exponent + 1)


def pack(numbers: Array) -> Packed:
    """Pack numbers, each with a relative error of at most 2^-13."""
    with np.errstate(over="ignore"):  # longdouble beyond float64
        numbers = numbers.astype(np.float64)
    x = np.abs(numbers)
    has_exponent = np.isfinite(x) & (x > 0)
    fraction, exponent = np.frexp(np.where(has_exponent, x, 1.0))  # 0.5 <= fraction < 1
    steps = 1 << MANTISSA_BITS
    mantissa = np.rint((2 * fraction - 1) * steps).astype(np.int64)
    exponent = exponent - 1 + (mantissa == steps)  # rounded up to the next power of two
    mantissa %= steps
    top = int(exponent[has_exponent].max(initial=-2000)) if has_exponent.any() else 0
    field = exponent - top + LARGEST_EXPONENT

    special = np.select([np.isnan(x), np.isinf(x), x > 0], [NOT_A_NUMBER, INFINITE, TINY], ZERO)
    is_plain = has_exponent & (field >= 1)
    code = np.where(is_plain, (field << MANTISSA_BITS) + mantissa, special)
    code |= np.signbit(numbers).astype(np.int64) << 17
    sixes = np.stack([code >> 12 & 63, code >> 6 & 63, code & 63], axis=-1)
    return Packed(CHARACTERS[sixes].tobytes().decode("ascii"), top)
