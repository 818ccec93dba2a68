import numpy as np
import pytest

from tests.compare import TOLERANCES, assert_close


def test_equal_arrays_pass():
    x = np.array([1.0, np.nan, -np.inf])
    assert_close(x, x.copy(), "exact")


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_a_difference_beyond_the_tolerance_fails(tolerance):
    x = np.array([1.0, 2.0])
    with pytest.raises(AssertionError, match="off by"):
        assert_close(x * (1 + 3 * TOLERANCES[tolerance] + 1e-15), x, tolerance)


@pytest.mark.parametrize("wrong", [[1.0, 2.0, 3.0], [[1.0, 2.0]], [1.0, np.nan]])
def test_another_shape_or_a_nan_fails(wrong):
    with pytest.raises(AssertionError):
        assert_close(np.array(wrong), np.array([1.0, 2.0]))


def test_a_missing_nan_fails():
    with pytest.raises(AssertionError, match="NaN or inf"):
        assert_close(np.array([1.0, 2.0]), np.array([1.0, np.inf]))
