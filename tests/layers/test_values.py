"""Values computed by hand, forward and backward."""

import math

import numpy as np
import pytest

from mha_numpy import layers
from mha_numpy.layers import FeedForwardParams
from mha_numpy.layers.erf import erf
from tests.compare import Tolerance, assert_close


def run(name, *inputs, d_out, **options):
    """Return the output of the pair of this name, and the gradients of the inputs."""
    inputs = [np.array(x) if isinstance(x, list) else x for x in inputs]
    out, cache = getattr(layers, f"{name}_forward")(*inputs, **options)
    return out, getattr(layers, f"{name}_backward")(np.array(d_out), cache)


def test_layer_norm():
    # mean 2, deviation 1; with eps = 3 under the root: sqrt(1 + 3) = 2
    out, (d_x, d_gain, d_bias) = run(
        "layer_norm", [[1.0, 3.0]], [2.0, 3.0], [10.0, 20.0], eps=3.0, d_out=[[1.0, 2.0]]
    )
    assert_close(out, [[10 - 2 / 2, 20 + 3 / 2]])
    # x_hat (-1/2, 1/2), d_x_hat (2, 6): mean 4, mean with x_hat 1; less these, over the root
    assert_close(d_x, [[(2 - 4 + 1 / 2) / 2, (6 - 4 - 1 / 2) / 2]])
    assert_close(d_gain, [-1 / 2, 1])
    assert_close(d_bias, [1, 2])
    # means 2 and 2, deviations 1 and 2
    x = [[1.0, 3.0], [0.0, 4.0]]
    out, grads = run("layer_norm", x, [1.0, 1.0], eps=1e-300, d_out=x)
    assert_close(out, [[-1, 1], [-1, 1]])
    assert grads.d_bias is None


def test_rms_norm():
    out, (d_x, d_gain) = run("rms_norm", [1.0, 7.0], [2.0, 3.0], eps=11.0, d_out=[3.0, 2.0])
    assert_close(out, [2 / 6, 21 / 6])  # the root of 25 + 11
    # x_hat (1/6, 7/6), d_x_hat (6, 6): mean with x_hat 4
    assert_close(d_x, [(6 - 4 / 6) / 6, (6 - 28 / 6) / 6])
    assert_close(d_gain, [3 / 6, 14 / 6])


def test_relu():
    out, grads = run("relu", [-2.0, 0.0, 3.0], d_out=[5.0, 6.0, 7.0])
    assert_close(out, [0, 0, 3])
    assert_close(grads.d_x, [0, 0, 7])


def test_gelu():
    x = np.array([-1.0, 0.0, 2.0])
    below = [0.15865525393145705, 0.5, 0.9772498680518208]  # of a normal number
    density = [math.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) for t in x]
    out, grads = run("gelu", x, d_out=[3.0, 4.0, 5.0])
    assert_close(out, x * below)
    assert_close(grads.d_x, np.array([3, 4, 5]) * (below + x * density))
    by_tanh, _ = layers.gelu_forward(x, approximate="tanh")
    assert_close(by_tanh[2], 1 + math.tanh(math.sqrt(2 / math.pi) * (2 + 0.044715 * 8)))
    many = np.linspace(-9, 9, 2001)
    exact, by_tanh = (layers.gelu_forward(many, approximate=x)[0] for x in ("none", "tanh"))
    assert 0.0004 < np.abs(exact - by_tanh).max() < 0.0005


def test_erf_is_that_of_math(rng):
    x = np.concatenate([np.linspace(-7, 7, 1001), 2 * rng.normal(size=20000), [-0.0, 1e-300]])
    for dtype in (np.float64, np.float32):
        x = x.astype(dtype)
        last_place = Tolerance(0, 2 * np.finfo(dtype).eps)
        assert_close(erf(x), [math.erf(t) for t in x], last_place)
        assert erf(x).dtype == dtype
    assert_close(erf(np.array([-np.inf, np.inf, np.nan])), [-1, 1, np.nan], "exact")


def test_swiglu():
    gate, x = [0.0, math.log(3)], [5.0, 4.0]  # sigmoids 1/2 and 3/4
    out, (d_gate, d_x) = run("swiglu", gate, x, d_out=[2.0, 8.0])
    assert_close(out, [0, 3 * math.log(3)])
    assert_close(d_gate, [2 * 5 / 2, 8 * 4 * (3 / 4 + math.log(3) * 3 / 16)])
    assert_close(d_x, [0, 8 * 3 / 4 * math.log(3)])
    far, grads = run("swiglu", [-1e4, 1e4], [1.0, 1.0], d_out=[1.0, 1.0])
    assert_close(far, [0, 1e4])
    assert_close(grads.d_gate, [0, 1])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_geglu(approximate):
    gate, x = [0.0, 2.0], [5.0, 4.0]  # of GELU: values 0 and y, slopes 1/2 and s
    (y,), (s,) = run("gelu", [2.0], approximate=approximate, d_out=[1.0])
    out, (d_gate, d_x) = run("geglu", gate, x, approximate=approximate, d_out=[2.0, 8.0])
    assert_close(out, [0, 4 * y])
    assert_close(d_gate, [2 * 5 / 2, 8 * 4 * s[0]])
    assert_close(d_x, [0, 8 * y])


def test_dropout():
    out, grads = run(
        "dropout", [[1.0, 2.0], [3.0, 4.0]], [0.0, 2.0], d_out=[[5.0, 6.0], [7.0, 8.0]]
    )
    assert_close(out, [[0, 4], [0, 8]])
    assert_close(grads.d_x, [[0, 12], [0, 16]])


def test_embedding():
    ids, table = [[3, 0], [3, 1]], np.arange(8.0).reshape(4, 2)
    d_out = [[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [5.0, 6.0]]]
    out, grads = run("embedding", ids, table, d_out=d_out)
    assert_close(out, [[[6, 7], [0, 1]], [[6, 7], [2, 3]]])
    assert_close(grads.d_table, [[3, 4], [5, 6], [0, 0], [11, 22]])
    d_out[1][1] = [np.nan, np.nan]  # goes to its own row alone
    _, grads = run("embedding", ids, table, d_out=d_out)
    assert_close(grads.d_table, [[3, 4], [np.nan, np.nan], [0, 0], [11, 22]])


def test_learned_positions():
    x, table, d_out = (
        np.zeros((2, 2, 1)),
        [[10.0], [20.0], [30.0]],
        [[[1.0], [2.0]], [[3.0], [5.0]]],
    )
    out, (d_x, d_table) = run("learned_positions", x, table, offset=1, d_out=d_out)
    assert_close(out[:, :, 0], [[20, 30], [20, 30]])
    assert_close(d_x, d_out)
    assert_close(d_table, [[0], [4], [7]])


def test_cross_entropy():
    logits = np.log([[1.0, 3.0, 4.0], [2.0, 1.0, 1.0]])  # probabilities in eighths and quarters
    of_each = np.array([[1 / 8, 3 / 8 - 1, 1 / 2], [1 / 2 - 1, 1 / 4, 1 / 4]])
    loss, grads = run("cross_entropy", logits, [1, 0], d_out=6.0)
    assert_close(loss, (math.log(8 / 3) + math.log(2)) / 2)
    assert_close(grads.d_logits, 3 * of_each)
    losses, grads = run("cross_entropy", logits, [1, 0], reduction="none", d_out=[10.0, 100.0])
    assert_close(losses, [math.log(8 / 3), math.log(2)])
    assert_close(grads.d_logits, [[10], [100]] * of_each)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_feed_forward(activation):
    gated = activation == "swiglu"
    params = FeedForwardParams(
        np.array([[1.0, -1.0]]), np.array([0.0, 1.0]), np.array([[10.0], [100.0]]), np.array([7.0]),
        np.zeros((1, 2)) if gated else None, np.ones(2) if gated else None,
    )  # fmt: skip
    out, (d_x, d_params) = run("feed_forward", [2.0], params, activation=activation, d_out=[3.0])
    share = 1 / (1 + math.exp(-1))  # hidden (2, -1), each gated by silu(1) = share
    assert_close(out, [7 + share * (20 - 100)] if gated else [27])
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
