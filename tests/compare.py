"""How close is close: one helper and one named table of tolerances."""

import numpy as np

# largest |actual - expected| allowed, relative to the largest |expected| (or 1 if that is larger)
TOLERANCES = {
    "exact": 0.0,  # the same operations in the same order
    "float64": 1e-13,  # the same numbers by another order of operations
    "framework": 1e-10,  # another library's float64
    "central": 1e-8,  # central difference, h = 1e-5
    "complex step": 1e-12,
    "float32": 2e-6,  # float32 against float64, on numbers of order 1
    "float16": 2e-3,
}


def assert_close(actual, expected, tolerance="float64"):
    """Fail unless shapes are equal and the largest difference is within the named tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    odd = ~np.isfinite(expected)
    assert np.array_equal(actual[odd], expected[odd], equal_nan=True), "NaN or inf elsewhere"
    off = np.abs(actual[~odd].astype(np.float64) - expected[~odd])
    scale = max(1.0, np.abs(expected[~odd]).max(initial=0))
    worst = off.max(initial=0) / scale
    assert worst <= TOLERANCES[tolerance], f"off by {worst:.1e}, more than {tolerance}"
