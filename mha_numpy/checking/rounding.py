"""Rounding to narrower floats."""

from typing import NamedTuple

import numpy as np

from mha_numpy.checks import check_choice, check_number
from mha_numpy.dtypes import Array, as_float_array


class Format(NamedTuple):
    """A format of floats: how many digits it keeps, and which numbers are in it."""

    digits: int  # binary, with the first, which is always 1
    least_exponent: int  # of a normal number; below it the digits get fewer
    largest: float
    has_inf: bool = True  # else what is too large becomes NaN

    @property
    def unit(self) -> float:
        """The unit roundoff: the largest relative error of rounding a normal number."""
        return 2.0**-self.digits


FORMATS = {
    "float64": Format(53, -1022, float(np.finfo(np.float64).max)),
    "float32": Format(24, -126, float(np.finfo(np.float32).max)),
    "tf32": Format(11, -126, (2 - 2.0**-10) * 2.0**127),
    "bfloat16": Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "float16": Format(11, -14, 65504.0),
    "e5m2": Format(3, -14, 57344.0),
    "e4m3": Format(4, -6, 448.0, has_inf=False),
}


@np.errstate(invalid="ignore", over="ignore")  # a signalling NaN; inf is the answer
def round_to(x: Array, name: str, *, scale: float = 1.0) -> Array:
    """Round to the nearest number of a format, and of two equally near to the even one.

    Parameters
    ----------
    x : float array of any shape
    name : {"float64", "float32", "tf32", "bfloat16", "float16", "e5m2", "e4m3"}
        The last two have 8 bits. Each number is rounded once, and the result stays float64.
    scale : float
        > 0; ``x * scale`` is rounded, and divided by it again: a factor that puts the numbers where
        the format has most to offer.

    Returns
    -------
    float64 array like `x`
        A number that is too large becomes inf, or NaN in "e4m3", which has no inf.

    Notes
    -----
    Sources: Micikevicius et al. 2022, *FP8 formats for deep learning*, table 1; Kalamkar et al.
    2019, *A study of bfloat16*, section 3.

    Examples
    --------
    >>> round_to(np.array([3.14159265, 1000.5, 70000.0]), "float16").tolist()
    [3.140625, 1000.5, inf]
    >>> round_to(np.array([3.14159265, 1000.5, 70000.0]), "bfloat16").tolist()
    [3.140625, 1000.0, 70144.0]
    >>> round_to(np.array([3.14159265, 1000.5]), "e4m3", scale=0.1).tolist()
    [3.125, 1040.0]
    """
    found = FORMATS[check_choice("name", name, FORMATS)]
    scale = check_number("scale", scale, positive=True)
    scaled = as_float_array("x", x).astype(np.float64) * scale
    if found.digits == 53:
        return scaled / scale
    rounded = keep_digits(scaled, found.digits, found.least_exponent)
    beyond = np.copysign(np.inf if found.has_inf else np.nan, scaled)
    return np.where(np.abs(rounded) > found.largest, beyond, rounded) / scale


def keep_digits(x: Array, digits: int, least_exponent: int = -1022) -> Array:
    """Keep this many digits; below 2^least_exponent, the last digit is worth the same as there."""
    _, exponent = np.frexp(x)  # x = m 2^exponent with m from 1/2 to 1
    last = np.maximum(exponent - digits, least_exponent + 1 - digits)
    quantum = np.ldexp(1.0, last)
    rounded: Array = np.rint(x / quantum) * quantum
    return rounded
