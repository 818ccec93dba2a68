"""How close is close: one helper, one named table of tolerances."""

from typing import NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    """Largest difference allowed: ``absolute + relative * size``."""

    relative: float
    absolute: float
    per_element: bool = False  # size is each expected number's own, not the largest of the array


TOLERANCES = {
    "exact": Tolerance(0, 0),  # the same operations in the same order
    "float64": Tolerance(1e-13, 1e-13),  # the same numbers by another order of operations
    "framework": Tolerance(1e-10, 1e-10),  # another library's float64
    "float32": Tolerance(2e-6, 2e-6),  # float32 against float64
    "float16": Tolerance(2e-3, 2e-3),
    # two units in the last place of a format of 8 bits, where a framework rounds after every step
    # and we compute in float32 and round once
    "bfloat16": Tolerance(2 * 2**-7, 1e-7, per_element=True),
}
# a gradient against a numerical derivative, relative to the largest of the whole set
GRADIENT_ERRORS = {"central": 1e-8, "complex step": 1e-12}


def assert_close(actual, expected, tolerance="float64", *, name="array"):
    """Fail unless shapes, NaN and inf are the same and the largest difference is tolerable.

    `tolerance` is a name in `TOLERANCES`, or a `Tolerance`; `name` goes into the message.
    """
    actual, expected = _as_float64(actual), _as_float64(expected)
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    finite = np.isfinite(expected)
    same_odd = np.array_equal(actual[~finite], expected[~finite], equal_nan=True)
    assert same_odd, f"{name}: NaN or inf expected where there is none"
    relative, absolute, per_element = TOLERANCES.get(tolerance, tolerance)
    size = np.abs(expected[finite])
    allowed = absolute + relative * (size if per_element else size.max(initial=0))
    off = np.abs(actual[finite] - expected[finite])
    assert (off <= allowed).all(), f"{name}: off by {off.max():.2e}, tolerance {tolerance}"


def _as_float64(array):
    """Return an array in which differences are exact enough; float64 holds all narrower floats."""
    return np.asarray(array).astype(np.float64)
