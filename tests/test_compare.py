import numpy as np
import pytest

from tests.compare import TOLERANCES, Tolerance, assert_close

EXPECTED = np.array([[0.5, -2.0, 3.0], [np.nan, np.inf, -np.inf]])


def changed(index, value):
    """Return EXPECTED with one number replaced."""
    array = EXPECTED.copy()
    array[index] = value
    return array


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_an_equal_array_passes(tolerance):
    assert_close(EXPECTED.copy(), EXPECTED, tolerance)


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_one_number_just_inside_passes_and_just_outside_fails(tolerance):
    relative, absolute, per_element = TOLERANCES[tolerance]
    allowed = absolute + relative * (2.0 if per_element else 3.0)
    assert_close(changed((0, 1), -2.0 + 0.9 * allowed), EXPECTED, tolerance)
    with pytest.raises(AssertionError, match="off by"):
        assert_close(changed((0, 1), -2.0 + 1.1 * allowed + 1e-15), EXPECTED, tolerance)


@pytest.mark.parametrize(
    "wrong",
    [
        changed((0, 2), np.nan),
        changed((0, 2), np.inf),
        changed((1, 0), 0.0),
        changed((1, 1), 1e308),
        changed((1, 2), np.inf),
        -EXPECTED,
        EXPECTED.T,
        EXPECTED[0],
        EXPECTED[None],
    ],
    ids=["nan", "inf", "no nan", "no inf", "wrong inf", "sign", "transpose", "row", "rank"],
)
def test_a_wrong_array_fails(wrong):
    with pytest.raises(AssertionError, match="array"):
        assert_close(wrong, EXPECTED, Tolerance(0.1, 0.1))


def test_sizes_are_taken_from_each_element_or_from_the_largest():
    expected, actual = np.array([1.0, 1000.0]), np.array([1.5, 1000.0])
    assert_close(actual, expected, Tolerance(1e-3, 0))
    with pytest.raises(AssertionError, match="off by"):
        assert_close(actual, expected, Tolerance(1e-3, 0, per_element=True))


def test_what_a_failure_says():
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)), "exact")  # empty arrays are equal
    with pytest.raises(AssertionError, match="d_q: off by 1"):
        assert_close(np.ones(2), np.zeros(2), name="d_q")
    with pytest.raises(AssertionError, match="shape"):  # which broadcasting would hide
        assert_close(np.zeros((3, 1)), np.zeros((3, 4)))
    with pytest.raises(ValueError):
        assert_close(np.zeros(2), np.zeros(2), "no such name")
