"""Dropout of weights: what each way of dropping leaves of a row, and when."""

import numpy as np
import pytest

from mha_numpy import attention_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models.experiments.dropout import AFTER, BEFORE, NO_FACTOR, drop_weights, options_of

ROW = np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("place", "expected"),
    [(AFTER, [1.0, 0.0, 0.4]), (NO_FACTOR, [0.5, 0.0, 0.2]), (BEFORE, [5 / 7, 0.0, 2 / 7])],
)
def test_what_is_left_of_a_row(place, expected):
    options = options_of(place, 0.5, np.array([[True, False, True]]))
    # one query; its scores are the logs of the weights, and the values show each weight
    row, _ = attention_forward(np.ones((1, 1)), np.log(ROW)[:, None], np.eye(3), scale=1, **options)
    np.testing.assert_allclose(row, [expected], rtol=1e-6)


@pytest.mark.parametrize("place", [AFTER, NO_FACTOR, BEFORE])
def test_it_drops_only_while_it_trains_and_never_the_same_twice(place):
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    layer = MultiHeadAttention(8, 2, rng=0)
    plain = layer(x, is_causal=True)
    drop_weights(layer, place, 0.5, rng=0)
    first, second = layer(x, is_causal=True), layer(x, is_causal=True)
    assert not np.allclose(first, second)
    assert not np.allclose(first, plain)
    np.testing.assert_array_equal(layer.eval()(x, is_causal=True), plain)


def test_a_token_still_sees_no_later_one():
    x = np.random.default_rng(0).normal(size=(1, 5, 8))
    layer = MultiHeadAttention(8, 2, rng=0)
    drop_weights(layer, BEFORE, 0.5, rng=0)
    _, weights = layer(x, is_causal=True, return_weights=True)
    assert (np.triu(weights, 1) == 0).all()
    assert (weights[:, :, -1] == 0).any()
