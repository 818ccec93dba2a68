"""Every differentiable input of every pair, by central difference and by complex step."""

from functools import partial

import numpy as np
import pytest

from mha_numpy.core import (
    FullMultiHeadParams,
    QKNormOptions,
    RopeOptions,
    YarnScaling,
    attention_backward,
    attention_forward,
    linear_backward,
    linear_forward,
    multi_head_attention_backward,
    multi_head_attention_forward,
    rope_backward,
    rope_forward,
    softmax_backward,
    softmax_forward,
)
from tests.backends import EACH_KERNEL
from tests.core.configurations import SEEDS, attention_configuration
from tests.core.test_multihead import random_params
from tests.gradients import assert_gradients
from tests.sweeps import sweep


def test_a_wrong_gradient_fails(rng):
    def backward(d_out, cache):
        grads = linear_backward(d_out, cache)
        return grads._replace(d_w=grads.d_w * (1 + 1e-7))

    inputs = {"x": rng.normal(size=(4, 3)), "w": rng.normal(size=(3, 2))}
    with pytest.raises(AssertionError, match="central"):
        assert_gradients(linear_forward, backward, inputs)


def with_lse(**arguments):
    """Attend; return out with lse as one more column, 0 for a row that sees nothing."""
    out, cache = attention_forward(**arguments)
    lse = np.where(cache.lse == -np.inf, 0, cache.lse)
    return np.concatenate([out, lse[..., None]], axis=-1), cache


def with_lse_backward(d_out, cache):
    return attention_backward(d_out[..., :-1], cache, d_lse=d_out[..., -1])


@pytest.mark.parametrize("seed", sweep(SEEDS, 20, every=3))
def test_attention(seed):
    inputs, options = attention_configuration(seed)
    assert_gradients(partial(with_lse, **options), with_lse_backward, inputs, seed)


# the complex step runs forward by the reference: so that each backward is checked against it
@pytest.mark.parametrize("kernel", EACH_KERNEL)
@pytest.mark.parametrize("seed", sweep(SEEDS[:40], 8))
def test_attention_by_kernel(kernel, seed):
    inputs, options = attention_configuration(seed)
    forward = partial(with_lse, **options, backend=kernel)
    assert_gradients(forward, with_lse_backward, inputs, seed)


@pytest.mark.parametrize("seed", range(20))
def test_softmax(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, size=1 + seed % 4))
    mask = None if seed % 3 == 0 else rng.random(shape) < 0.6
    inputs = {"scores": 3 * rng.normal(size=shape)}
    assert_gradients(partial(softmax_forward, mask=mask), softmax_backward, inputs, seed)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (1, 1, 3)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(rng, backend, shape, with_bias):
    inputs = {"x": rng.normal(size=shape), "w": rng.normal(size=(3, 4))}
    if with_bias:
        inputs["b"] = rng.normal(size=4)
    assert_gradients(linear_forward, linear_backward, inputs)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotary_dim", [None, 4, 0])
@pytest.mark.parametrize("scaling", [None, YarnScaling(4.0, 20)])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (2, 3, 5, 6)])
def test_rope(rng, interleaved, rotary_dim, scaling, shape):
    rope = RopeOptions(rotary_dim=rotary_dim, interleaved=interleaved, scaling=scaling)
    forward = partial(rope_forward, positions=np.arange(5) + 3, **rope._asdict())
    assert_gradients(forward, rope_backward, {"x": rng.normal(size=shape)})


def multi_head_configuration(seed):
    """Return (inputs, options) of one random multi-head problem."""
    rng = np.random.default_rng(seed)
    B, H_kv, G = rng.integers(1, 3), rng.integers(1, 3), rng.integers(1, 4)
    H, T_q, T_k, D, kdim, vdim, d_v, D_out = H_kv * G, *rng.integers(1, 6, size=7)
    d_k = 2 * rng.integers(1, 3)
    is_cross = seed % 3  # 0 self, 1 key input given, 2 key and value inputs given
    if is_cross == 0:
        T_k, kdim = T_q, D
    if is_cross < 2:
        vdim = kdim

    inputs = {"x_q": rng.normal(size=(B, T_q, D))}
    if is_cross:
        inputs["x_k"] = rng.normal(size=(B, T_k, kdim))
    if is_cross == 2:
        inputs["x_v"] = rng.normal(size=(B, T_k, vdim))
    shapes = [(D, H * d_k), (kdim, H_kv * d_k), (vdim, H_kv * d_v), (H * d_v, D_out)]
    inputs["params"] = random_params(rng, *shapes)
    if seed % 4 == 0:
        inputs["params"] = inputs["params"]._replace(b_q=None, b_k=None, b_v=None, b_o=None)
    options = {"num_heads": H, "num_kv_heads": H_kv, "is_causal": bool(seed % 2)}
    if seed % 5 == 0:
        scaling = YarnScaling(4.0, 20) if seed % 10 else None
        options["rope"] = RopeOptions(interleaved=bool(seed % 2), scaling=scaling)
        options["q_offset"] = rng.integers(0, 4, size=B)
    if seed % 5 == 1:
        inputs["bias"], inputs["head_gate"] = rng.normal(size=(H, 1, T_k)), rng.normal(size=H)
    if seed % 5 == 2:
        options["mask"] = rng.random((B, 1, 1, T_k)) < 0.7
    # norms of queries and keys, and gates, by a generator of their own
    rng, place = (
        np.random.default_rng((seed, 1)),
        ("heads", None, "projection", "rotated")[seed // 2 % 4],
    )
    if place is not None:
        options["qk_norm"] = QKNormOptions(place, eps=0.1)
        if seed % 7:
            heads = (H, H_kv) if place == "projection" else (1, 1)
            gains = {
                f"gain_{x}": rng.normal(size=n * d_k) for x, n in zip("qk", heads, strict=True)
            }
            inputs["params"] = FullMultiHeadParams(*inputs["params"], **gains)
    if seed % 3 == 2:
        gates = H if seed % 2 else H * d_v
        w_gate, b_gate = rng.normal(size=(D, gates)), rng.normal(size=gates)
        b_gate = None if seed % 4 == 0 else b_gate
        full = FullMultiHeadParams(*inputs["params"])
        inputs["params"] = full._replace(w_gate=w_gate, b_gate=b_gate)
    if "rope" in options and seed % 2:
        options["positions"] = 3 * rng.normal(size=(B, T_q))
        options["key_positions"] = 3 * rng.normal(size=T_k)
    return inputs, options


@pytest.mark.parametrize("seed", sweep(range(60), 6, every=2))
def test_multi_head_attention(seed):
    inputs, options = multi_head_configuration(seed)
    forward = partial(multi_head_attention_forward, **options)
    assert_gradients(forward, multi_head_attention_backward, inputs, seed)
