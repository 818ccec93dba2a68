"""T5's relative bias: buckets by hand, gradients, decoding, and what is refused."""

from functools import partial

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import (
    attention_forward,
    causal_mask,
    relative_bias_backward,
    relative_bias_forward,
)
from mha_numpy.core.relative_bias import distance_buckets
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from tests.checking.tracing.whole import assert_whole
from tests.compare import assert_close
from tests.gradients import assert_gradients

BUCKETS, H, T_Q, T_K = 8, 3, 5, 7
BOTH_WAYS = {"encoder": True, "decoder": False}


@pytest.fixture
def table(rng):
    return rng.normal(size=(BUCKETS, H))


def test_buckets_by_hand():
    """Of 8 one way: 0 to 3 alone; then ranges from 4, 5.66, 8 and 11.3 on, each root 2 longer."""
    sizes = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 99])
    expected = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7]
    assert_close(distance_buckets(-sizes, 8, False, 16), expected, "exact")
    assert_close(distance_buckets(-sizes, 16, True, 16), expected, "exact")
    assert_close(distance_buckets(sizes[1:], 16, True, 16), np.array(expected[1:]) + 8, "exact")
    assert not distance_buckets(sizes, 8, False, 16).any()  # keys after the query


@pytest.mark.parametrize("bidirectional", BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_gradients_and_trace(table, bidirectional):
    options = {"q_offset": 2, "bidirectional": bidirectional, "max_distance": 5}
    forward = partial(relative_bias_forward, T_q=T_Q, T_k=T_K, **options)
    assert_gradients(forward, relative_bias_backward, {"table": table})
    with trace() as t:
        bias, cache = forward(table)
        relative_bias_backward(d_bias := np.cos(bias), cache)
    assert_whole(t, [d_bias])


def test_a_bias_depends_on_the_distance_alone(table):
    bias, _ = relative_bias_forward(table, T_K, bidirectional=True)
    assert_close(bias[:, 1:, 1:], bias[:, :-1, :-1], "exact")
    assert_close(
        relative_bias_forward(table, 2, T_K, q_offset=3, bidirectional=True)[0], bias[:, 3:5]
    )
    assert bias.shape == (H, T_K, T_K)
    assert (bias[:, 0, 1] != bias[:, 1, 0]).all()


def test_what_comes_later_is_hidden_by_the_mask(table, rng):
    q, k, v = rng.normal(size=(3, 1, H, T_Q, 4))
    bias, _ = relative_bias_forward(table, T_Q, bidirectional=False)
    other = np.where(causal_mask(T_Q), bias, 99.0)
    options = {"is_causal": True, "scale": 1.0}
    expected, _ = attention_forward(q, k, v, bias=other, **options)
    assert_close(attention_forward(q, k, v, bias=bias, **options)[0], expected, "exact")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_dtype_is_kept(table, dtype):
    bias, cache = relative_bias_forward(table.astype(dtype), T_Q, bidirectional=True)
    (d_table,) = relative_bias_backward(bias, cache)
    assert bias.dtype == d_table.dtype == dtype
    exact, exact_cache = relative_bias_forward(table, T_Q, bidirectional=True)
    assert_close(d_table, relative_bias_backward(exact, exact_cache).d_table, np.dtype(dtype).name)


def test_no_tokens(table):
    for T_q, T_k in ((0, 4), (4, 0)):
        bias, cache = relative_bias_forward(table, T_q, T_k, bidirectional=True)
        assert bias.shape == (H, T_q, T_k)
        assert not relative_bias_backward(bias, cache).d_table.any()


WRONG = [
    ({"table": np.ones(8)}, ShapeError, r"table: expected \(num_buckets, H\); got \(8,\)"),
    ({"table": np.ones((8, 2), int)}, DTypeError, "table: expected a float array"),
    ({"table": np.ones((3, 2))}, ShapeError, r"table: .*at least 4 buckets; got \(3, 2\)"),
    ({"table": np.ones((1, 2)), "bidirectional": False}, ShapeError, "at least 2 buckets"),
    ({"max_distance": 2}, ConfigError, "max_distance: expected more than the 2 distances.*got 2"),
    ({"T_q": -1}, ConfigError, "T_q: expected an integer >= 0; got -1"),
    ({"q_offset": 1.0}, ConfigError, "q_offset: expected an integer; got 1.0"),
    ({"bidirectional": 1}, ConfigError, "bidirectional: expected True or False; got 1"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_wrong_input(options, error, message):
    right = {"table": np.ones((8, 2)), "T_q": 3, "bidirectional": True}
    with pytest.raises(error, match=message):
        relative_bias_forward(**right | options)
    with pytest.raises(ShapeError, match=r"d_bias: expected \(2, 3, 3\), as bias"):
        relative_bias_backward(np.ones((3, 3)), relative_bias_forward(**right)[1])
