"""Each pattern is found where it is, and none where it is not."""

import numpy as np
import pytest

from mha_numpy.checking.patterns import find_pattern

EXPECTED = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
PATTERNS = {
    "factor": (EXPECTED / 3, "each is 0.333333 times the expected number"),
    "sign": (-EXPECTED, "each is -1 times the expected number"),
    "zero": (0 * EXPECTED, "all are 0"),
    "distance": (EXPECTED + 2, "each is off by 2"),
    "transposed": (
        EXPECTED.swapaxes(-1, -2), "the expected array, with the last two axes swapped",
    ),
    "heads in reverse": (
        EXPECTED[:, ::-1], "the expected array, with the indices of axis 1 in the order [2, 1, 0]",
    ),
    "one head for all": (
        EXPECTED[:, [1, 1, 1]],
        "the expected array, with the indices of axis 1 in the order [1, 1, 1]",
    ),
    "a factor for each head": (
        EXPECTED * np.array([1.0, 2.0, 3.0])[:, None, None],
        "each index of axis 1 has its own factor",
    ),
    "a factor for each row": (
        EXPECTED * np.random.default_rng(1).random((2, 3, 4, 1)),
        "each index of axes 0 to 2 has its own factor",
    ),
    "a bias left out": (
        EXPECTED - np.array([1.0, 2.0, 3.0, 5.0]),
        "each index of axis 3 is off by its own number",
    ),
    "moved": (EXPECTED.reshape(3, 2, 4, 4).swapaxes(0, 1), "the same numbers, in different places"),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_is_told(name):
    actual, told = PATTERNS[name]
    assert find_pattern(actual, EXPECTED) == told


def test_differences_at_one_index_alone():
    actual = EXPECTED.copy()
    actual[1] += np.random.default_rng(1).normal(size=(3, 4, 4))
    assert find_pattern(actual, EXPECTED) == "all of them at index 1 of axis 0"
    actual[1, :, 2, 0] = np.nan
    assert find_pattern(actual, EXPECTED) == "all of them at index 1 of axis 0"


def test_a_mask_that_differs_in_one_row():
    expected = np.tri(4, dtype=bool)
    actual = expected.copy()
    actual[2] = ~actual[2]
    assert find_pattern(actual, expected) == "all of them at index 2 of axis 0"


def test_nothing_is_made_up():
    rng = np.random.default_rng(2)
    assert find_pattern(rng.normal(size=EXPECTED.shape), EXPECTED) == ""
    almost = EXPECTED * (1 + 1e-4 * rng.normal(size=EXPECTED.shape))
    assert find_pattern(almost, EXPECTED) == ""


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (1, 1), (2,), (3, 1)])
def test_small_and_empty_arrays(shape):
    rng = np.random.default_rng(3)
    assert isinstance(find_pattern(rng.normal(size=shape), rng.normal(size=shape)), str)


def test_numbers_beyond_all_bounds():
    with np.errstate(over="raise"):
        find_pattern(np.array([1e308, 5e-324]), np.array([5e-324, -1e308]))


@pytest.mark.parametrize("changed", [lambda row: row + 0.5, lambda row: 3 * row])
def test_one_row_is_told_by_its_place(changed):
    actual = EXPECTED.copy()
    actual[1, 0, 2] = changed(actual[1, 0, 2])
    assert find_pattern(actual, EXPECTED) == "all of them at index 1 of axis 0"
