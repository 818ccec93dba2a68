"""Values computed by hand, forward and backward."""

import math

import numpy as np
import pytest

from mha_numpy.layers import (
    FeedForwardParams,
    cross_entropy_backward,
    cross_entropy_forward,
    dropout_backward,
    dropout_forward,
    embedding_backward,
    embedding_forward,
    feed_forward_backward,
    feed_forward_forward,
    gelu_backward,
    gelu_forward,
    layer_norm_backward,
    layer_norm_forward,
    learned_positions_backward,
    learned_positions_forward,
    relu_backward,
    relu_forward,
    rms_norm_backward,
    rms_norm_forward,
    swiglu_backward,
    swiglu_forward,
)
from mha_numpy.layers.erf import erf
from tests.compare import Tolerance, assert_close


def test_layer_norm():
    x, gain, bias = np.array([[1.0, 3.0], [0.0, 4.0]]), np.array([2.0, 3.0]), np.array([10.0, 20.0])
    # means 2 and 2, deviations 1 and 2; with eps = 3 under the first root: sqrt(1 + 3) = 2
    out, cache = layer_norm_forward(x[:1], gain, bias, eps=3.0)
    assert_close(out, [[10 - 2 / 2, 20 + 3 / 2]])
    # x_hat (-1/2, 1/2), d_x_hat (2, 6): mean 4, mean with x_hat 1; less these, over the root
    d_x, d_gain, d_bias = layer_norm_backward(np.array([[1.0, 2.0]]), cache)
    assert_close(d_x, [[(2 - 4 + 1 / 2) / 2, (6 - 4 - 1 / 2) / 2]])
    assert_close(d_gain, [-1 / 2, 1])
    assert_close(d_bias, [1, 2])
    out, cache = layer_norm_forward(x, np.ones(2), eps=1e-300)
    assert_close(out, [[-1, 1], [-1, 1]])
    assert layer_norm_backward(out, cache).d_bias is None


def test_rms_norm():
    out, cache = rms_norm_forward(np.array([1.0, 7.0]), np.array([2.0, 3.0]), eps=11.0)
    assert_close(out, [2 / 6, 21 / 6])  # the root of 25 + 11
    # x_hat (1/6, 7/6), d_x_hat (6, 6): mean with x_hat 4
    d_x, d_gain = rms_norm_backward(np.array([3.0, 2.0]), cache)
    assert_close(d_x, [(6 - 4 / 6) / 6, (6 - 28 / 6) / 6])
    assert_close(d_gain, [3 / 6, 14 / 6])


def test_relu():
    out, cache = relu_forward(np.array([-2.0, 0.0, 3.0]))
    assert_close(out, [0, 0, 3])
    assert_close(relu_backward(np.array([5.0, 6.0, 7.0]), cache).d_x, [0, 0, 7])


def test_gelu():
    x = np.array([-1.0, 0.0, 2.0])
    below = [0.15865525393145705, 0.5, 0.9772498680518208]  # of a normal number
    density = [math.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) for t in x]
    out, cache = gelu_forward(x)
    assert_close(out, x * below)
    assert_close(gelu_backward(np.array([3.0, 4.0, 5.0]), cache).d_x,
                 np.array([3, 4, 5]) * (below + x * density))  # fmt: skip
    by_tanh, _ = gelu_forward(x, approximate="tanh")
    assert_close(by_tanh[2], 1 + math.tanh(math.sqrt(2 / math.pi) * (2 + 0.044715 * 8)))
    many = np.linspace(-9, 9, 2001)
    off = np.abs(gelu_forward(many)[0] - gelu_forward(many, approximate="tanh")[0]).max()
    assert 0.0004 < off < 0.0005


def test_erf_is_that_of_math(rng):
    x = np.concatenate([np.linspace(-7, 7, 1001), 2 * rng.normal(size=20000), [-0.0, 1e-300]])
    for dtype in (np.float64, np.float32):
        x = x.astype(dtype)
        last_place = Tolerance(0, 2 * np.finfo(dtype).eps)
        assert_close(erf(x), [math.erf(t) for t in x], last_place)
        assert erf(x).dtype == dtype
    assert_close(erf(np.array([-np.inf, np.inf, np.nan])), [-1, 1, np.nan], "exact")


def test_swiglu():
    gate, x = np.array([0.0, math.log(3)]), np.array([5.0, 4.0])  # sigmoids 1/2 and 3/4
    out, cache = swiglu_forward(gate, x)
    assert_close(out, [0, 3 * math.log(3)])
    d_gate, d_x = swiglu_backward(np.array([2.0, 8.0]), cache)
    assert_close(d_gate, [2 * 5 / 2, 8 * 4 * (3 / 4 + math.log(3) * 3 / 16)])
    assert_close(d_x, [0, 8 * 3 / 4 * math.log(3)])
    far, cache = swiglu_forward(np.array([-1e4, 1e4]), np.ones(2))
    assert_close(far, [0, 1e4])
    assert_close(swiglu_backward(np.ones(2), cache).d_gate, [0, 1])


def test_dropout():
    out, cache = dropout_forward(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.0, 2.0]))
    assert_close(out, [[0, 4], [0, 8]])
    assert_close(dropout_backward(np.array([[5.0, 6.0], [7.0, 8.0]]), cache).d_x,
                 [[0, 12], [0, 16]])  # fmt: skip


def test_embedding():
    table = np.arange(8.0).reshape(4, 2)
    ids = np.array([[3, 0], [3, 1]])
    out, cache = embedding_forward(ids, table)
    assert_close(out, [[[6, 7], [0, 1]], [[6, 7], [2, 3]]])
    d_out = np.array([[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [5.0, 6.0]]])
    assert_close(embedding_backward(d_out, cache).d_table, [[3, 4], [5, 6], [0, 0], [11, 22]])
    d_out[1, 1] = np.nan  # goes to its own row alone
    d_table = embedding_backward(d_out, cache).d_table
    assert_close(d_table, [[3, 4], [np.nan, np.nan], [0, 0], [11, 22]])


def test_learned_positions():
    x, table = np.zeros((2, 2, 1)), np.array([[10.0], [20.0], [30.0]])
    out, cache = learned_positions_forward(x, table, offset=1)
    assert_close(out[:, :, 0], [[20, 30], [20, 30]])
    d_out = np.array([[[1.0], [2.0]], [[3.0], [5.0]]])
    d_x, d_table = learned_positions_backward(d_out, cache)
    assert_close(d_x, d_out)
    assert_close(d_table, [[0], [4], [7]])


def test_cross_entropy():
    logits = np.log([[1.0, 3.0, 4.0], [2.0, 1.0, 1.0]])  # probabilities in eighths and quarters
    targets = np.array([1, 0])
    loss, cache = cross_entropy_forward(logits, targets)
    assert_close(loss, (math.log(8 / 3) + math.log(2)) / 2)
    of_each = np.array([[1 / 8, 3 / 8 - 1, 1 / 2], [1 / 2 - 1, 1 / 4, 1 / 4]])
    assert_close(cross_entropy_backward(np.array(6.0), cache).d_logits, 3 * of_each)
    losses, cache = cross_entropy_forward(logits, targets, reduction="none")
    assert_close(losses, [math.log(8 / 3), math.log(2)])
    d_losses = np.array([10.0, 100.0])
    assert_close(cross_entropy_backward(d_losses, cache).d_logits, d_losses[:, None] * of_each)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_feed_forward(activation):
    w_in, b_in = np.array([[1.0, -1.0]]), np.array([0.0, 1.0])
    w_out, b_out = np.array([[10.0], [100.0]]), np.array([7.0])
    gated = activation == "swiglu"
    params = FeedForwardParams(
        w_in, b_in, w_out, b_out, np.zeros((1, 2)) if gated else None, np.ones(2) if gated else None
    )
    out, cache = feed_forward_forward(np.array([2.0]), params, activation=activation)
    share = 1 / (1 + math.exp(-1))  # hidden (2, -1), each gated by silu(1) = share
    assert_close(out, [7 + share * (20 - 100)] if gated else [27])
    d_x, d_params = feed_forward_backward(np.array([3.0]), cache)
    # d_activated (30, 300)
    assert_close(d_params.b_in, [30 * share, 300 * share] if gated else [30, 0])
    assert_close(d_params.w_in, [[60 * share, 600 * share]] if gated else [[60, 0]])
    assert_close(d_params.w_out, [[6 * share], [-3 * share]] if gated else [[6], [0]])
    assert_close(d_params.b_out, [3])
    assert_close(d_x, [(30 - 300) * share] if gated else [30])  # nothing comes by w_gate = 0
    if gated:
        slope = share + share * (1 - share)
        assert_close(d_params.b_gate, [30 * 2 * slope, 300 * -1 * slope])
        assert_close(d_params.w_gate, 2 * d_params.b_gate[None])
