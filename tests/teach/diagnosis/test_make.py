"""make: functions with mistakes in them, by place and by name, and those of manner."""

import numpy as np
import pytest

from mha_numpy.checking import agrees
from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import TASKS, make, right_answers


@pytest.mark.parametrize("task", TASKS)
def test_arguments_by_place_and_by_name(task):
    given, expected = TASKS[task].probes()[0], right_answers(task)[0]
    assert agrees(make(task)(**given), expected)
    assert agrees(make(task)(*given.values()), expected)


def test_float32_inside_returns_float64():
    given, expected = TASKS["attention"].probes()[0], right_answers("attention")[0]
    found = make("attention", ["float32 inside"])(**given)
    assert found.dtype == np.float64
    assert 1e-9 < np.abs(found - expected).max() < 1e-5


def test_an_input_is_changed_in_place():
    given = {name: value.copy() for name, value in TASKS["attention"].probes()[0].items()}
    before = given["q"].copy()
    found = make("attention", ["an input changed in place"])(**given)
    np.testing.assert_array_equal(given["q"], 2 * before)
    assert agrees(found, right_answers("attention")[0])


def test_results_accumulate_between_calls():
    given, expected = TASKS["linear_backward"].probes()[0], right_answers("linear_backward")[0]
    function = make("linear_backward", ["results accumulate between calls"])
    assert agrees(function(**given), expected)
    assert agrees(tuple(function(**given)), [2 * array for array in expected])
    other = TASKS["linear_backward"].probes()[1]  # of other shapes
    assert agrees(function(**other), right_answers("linear_backward")[1])


def test_wrong_use():
    with pytest.raises(ConfigError, match="task: expected one of split_heads, .*; got 'x'"):
        make("x")
    with pytest.raises(ConfigError, match="mistakes: expected names from BANK; got 'x'"):
        make("softmax", ["x"])
    with pytest.raises(
        ConfigError, match="mistakes: expected mistakes that change different texts"
    ):
        make("softmax", ["softmax over heads", "softmax over queries"])
