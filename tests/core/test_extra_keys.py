"""Keys and values of no token: every query sees them, whatever is said about the tokens."""

from functools import partial

import numpy as np
import pytest

from mha_numpy.core import (
    MultiHeadParams,
    RopeOptions,
    attention_forward,
    causal_mask,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    rope_forward,
    split_heads,
    window_mask,
)
from tests.backends import EACH_KERNEL
from tests.compare import assert_close
from tests.core.test_multihead import random_params
from tests.gradients import assert_gradients
from tests.sweeps import sweep

B, H, H_KV, T_Q, T_K, E, D, D_K, D_V = 3, 4, 2, 5, 6, 2, 7, 4, 3
LAYER = {"num_heads": H, "num_kv_heads": H_KV}
HOLES = np.random.default_rng(1).random((B, 1, T_Q, T_K)) < 0.6
DROPOUT_MASK = (np.random.default_rng(2).random((B, H, T_Q, T_K + E)) < 0.7) / 0.7
BIAS = np.random.default_rng(3).normal(size=(B, H, T_Q, T_K))

CASES = {  # what is passed, and the mask of the tokens that it amounts to
    "nothing": ({}, None),
    "a mask": ({"mask": HOLES}, HOLES),
    "a mask for all keys": ({"mask": HOLES[..., :1]}, HOLES[..., :1]),
    "no token to see": ({"mask": np.zeros((T_Q, T_K), bool)}, np.zeros((T_Q, T_K), bool)),
    "causal": ({"is_causal": True}, causal_mask(T_Q, T_K)),
    "an offset for each sequence": (
        {"is_causal": True, "q_offset": np.arange(B) - 1},
        causal_mask(T_Q, T_K, q_offset=np.arange(B) - 1),
    ),
    "window and mask": (
        {"window": (1, 1), "mask": HOLES}, HOLES & window_mask(T_Q, T_K, window=(1, 1)),
    ),
    "a bias": ({"bias": BIAS}, None),
    "a bias for each key": ({"bias": BIAS[0, 0, 0]}, None),
    "a bias for each query": ({"bias": BIAS[..., :1]}, None),
    "a bias for each head": ({"bias": BIAS[0, :, :1, :1]}, None),
    "one number as bias": ({"bias": np.array(1.5)}, None),
    "a bias of -inf": ({"bias": np.where(HOLES, BIAS, -np.inf)}, None),
    "bias, mask, causality": (
        {"bias": BIAS[:, :1], "mask": HOLES, "is_causal": True}, HOLES & causal_mask(T_Q, T_K),
    ),
    "dropout": ({"dropout_mask": DROPOUT_MASK}, None),
    "softcap, scale, gates": ({"softcap": 2.0, "scale": 0.7, "head_gate": BIAS[0, :, 0, 0]}, None),
    "RoPE": ({"rope": RopeOptions(rotary_dim=2), "is_causal": True}, causal_mask(T_Q, T_K)),
}  # fmt: skip


@pytest.fixture
def inputs(rng):
    """Everything that has a gradient, but for bias and head_gate."""
    return {
        "x_q": rng.normal(size=(B, T_Q, D)),
        "x_k": rng.normal(size=(B, T_K, D)),
        "params": random_params(rng, (D, H * D_K), (D, H_KV * D_K), (D, H_KV * D_V), (H * D_V, D)),
        "extra_k": rng.normal(size=(E, H_KV * D_K)),
        "extra_v": rng.normal(size=(E, H_KV * D_V)),
    }


def joined_by_hand(x_q, x_k, params, extra_k, extra_v, *, mask=None, rope=None, **options):
    """Return weights and output, with the extra rows joined to the projected ones."""
    p = params
    q, k = split_heads(x_q @ p.w_q + p.b_q, H), split_heads(x_k @ p.w_k + p.b_k, H_KV)
    if rope is not None:
        q, k = (rope_forward(x, **rope._asdict())[0] for x in (q, k))
    one = np.ones((B, 1, 1))
    k = split_heads(np.concatenate([merge_heads(k), one * extra_k], axis=1), H_KV)
    v = split_heads(np.concatenate([x_k @ p.w_v + p.b_v, one * extra_v], axis=1), H_KV)
    shape = (B, H, T_Q, T_K)
    if mask is not None:
        seen = np.ones((B, H, T_Q, E), bool)
        mask = np.concatenate([np.broadcast_to(mask, shape), seen], axis=-1)
    if "bias" in options:
        bias = np.broadcast_to(options["bias"], shape)
        options["bias"] = np.concatenate([bias, np.zeros((B, H, T_Q, E))], axis=-1)
    heads, cache = attention_forward(q, k, v, mask=mask, **options)
    return cache.weights, merge_heads(heads) @ p.w_o + p.b_o


@pytest.mark.parametrize("name", CASES)
def test_equals_rows_joined_by_hand(inputs, backend, name):
    options, mask = CASES[name]
    out, cache = multi_head_attention_forward(**inputs, **LAYER, **options, backend=backend)
    about_tokens = ("mask", "is_causal", "q_offset", "window")
    others = {key: value for key, value in options.items() if key not in about_tokens}
    weights, expected = joined_by_hand(**inputs, mask=mask, **others)
    assert cache.attention.weights.shape == (B, H, T_Q, T_K + E)
    assert_close(cache.attention.weights, weights)
    assert_close(out, expected)
    assert (weights[..., T_K:] > 0).all()


# what differs in backward: the others are attention to a mask
IN_BACKWARD = [name for name in CASES if "bias" in name or "RoPE" in name]


@pytest.mark.parametrize("name", sweep(reversed(IN_BACKWARD), 3))
def test_gradients(inputs, name):
    options = dict(CASES[name][0])
    moved = {key: options.pop(key) for key in ("bias", "head_gate") if key in options}
    forward = partial(multi_head_attention_forward, **LAYER, **options)
    assert_gradients(forward, multi_head_attention_backward, inputs | moved)


@pytest.mark.parametrize("kernel", EACH_KERNEL)
@pytest.mark.parametrize("name", ["bias, mask, causality", "dropout", "RoPE"])
def test_gradients_by_kernel(inputs, kernel, name):
    options = CASES[name][0]
    grads = []
    for backend in ("numpy", kernel):
        out, cache = multi_head_attention_forward(**inputs, **LAYER, **options, backend=backend)
        grads.append(
            multi_head_attention_backward(np.cos(np.arange(out.size)).reshape(out.shape), cache)
        )
    for field in ("d_x_q", "d_x_k", "d_extra_k", "d_extra_v"):
        assert_close(getattr(grads[1], field), getattr(grads[0], field), name=field)


def test_by_hand():
    one = np.ones((1, 1))
    params = MultiHeadParams(one, None, one, None, 5 * one, None, one, None)
    extra = {"extra_k": np.array([[np.log(3)], [0]]), "extra_v": np.array([[20.0], [0]])}
    # scores 0, log 3 and 0: weights 1/5, 3/5 and 1/5 of the values 0, 20 and 0
    out, cache = multi_head_attention_forward(
        np.ones((1, 1, 1)), np.zeros((1, 1, 1)), params=params, num_heads=1, **extra
    )
    assert_close(cache.attention.weights.ravel(), [0.2, 0.6, 0.2])
    assert_close(out.ravel(), [12.0])
    grads = multi_head_attention_backward(np.ones((1, 1, 1)), cache)
    assert_close(grads.d_extra_v.ravel(), [0.6, 0.2])
    assert_close(grads.d_extra_k.ravel(), [0.6 * (20 - 12), 0.2 * (0 - 12)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtype_is_kept(inputs, dtype):
    narrow = {name: x.astype(dtype) for name, x in inputs.items() if name != "params"}
    narrow["params"] = MultiHeadParams._make(x.astype(dtype) for x in inputs["params"])
    options = {"bias": BIAS.astype(dtype), "is_causal": True}
    out, cache = multi_head_attention_forward(**narrow, **LAYER, **options)
    grads = multi_head_attention_backward(out, cache)
    found = (out, grads.d_x_q, grads.d_extra_k, grads.d_extra_v, grads.d_bias, grads.d_params.w_k)
    assert {x.dtype for x in found} == {np.dtype(dtype)}


def test_none_of_them_and_no_token(inputs):
    nothing = {name: inputs[name][:0] for name in ("extra_k", "extra_v")}
    out, _ = multi_head_attention_forward(**{**inputs, **nothing}, **LAYER, is_causal=True)
    del inputs["extra_k"], inputs["extra_v"]
    assert_close(out, multi_head_attention_forward(**inputs, **LAYER, is_causal=True)[0])


def test_without_tokens_only_they_are_seen(inputs):
    inputs["x_k"] = inputs["x_k"][:, :0]
    _, cache = multi_head_attention_forward(**inputs, **LAYER, is_causal=True, bias=np.ones(0))
    assert_close(cache.attention.weights.sum(axis=-1), np.ones((B, H, T_Q)))
    grads = multi_head_attention_backward(np.ones((B, T_Q, D)), cache)
    assert grads.d_x_k.shape == (B, 0, D)
    assert grads.d_bias.shape == (0,)
