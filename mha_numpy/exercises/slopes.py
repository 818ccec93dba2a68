"""The forward that each backward exercise differentiates, for numeric differentiation."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core import (
    attention_forward,
    multi_head_attention_forward,
    rope_forward,
    softmax_forward,
    split_heads,
)
from mha_numpy.dtypes import Array

Inputs = dict[str, Any]


class Slope(NamedTuple):
    """A forward, the inputs to differentiate by, and the upstream gradient."""

    forward: Callable[..., Any]
    inputs: Inputs  # in the order in which their gradients are returned
    d_out: Array


def _scores(given: Inputs) -> Slope:
    def forward(q: Array, k: Array) -> Array:
        return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])

    return Slope(forward, {"q": given["q"], "k": given["k"]}, given["d_scores"])


def _softmax(given: Inputs) -> Slope:
    weights = given["weights"]
    mask = weights > 0
    scores = np.log(np.where(mask, weights, 1.0))  # softmax of these are the weights
    return Slope(partial(softmax_forward, mask=mask), {"scores": scores}, given["d_weights"])


def _attention(given: Inputs) -> Slope:
    # a weight of 0 is hidden: a numeric derivative cannot see it
    mask = given["mask"] if "mask" in given else given["weights"] > 0
    forward = partial(attention_forward, mask=mask)
    return Slope(forward, {name: given[name] for name in "qkv"}, given["d_heads"])


def _linear(given: Inputs) -> Slope:
    x, w = given["x"], given["w"]
    inputs = {"x": x, "w": w, "b": np.zeros(w.shape[1])}
    return Slope(lambda x, w, b: x @ w + b, inputs, given["d_out"])


def _input_gradient(given: Inputs) -> Slope:
    params, upstream = given["params"], (given["d_q"], given["d_k"], given["d_v"])
    (B, H, T, _), D = upstream[0].shape, params.w_q.shape[0]

    def forward(x: Array) -> Array:
        maps = (params.w_q, params.w_k, params.w_v)
        return np.concatenate([split_heads(x @ w, H).ravel() for w in maps])

    x = np.random.default_rng(0).normal(size=(B, T, D))
    return Slope(forward, {"x": x}, np.concatenate([d.ravel() for d in upstream]))


def _multi_head(given: Inputs) -> Slope:
    saved = given["saved"]

    def forward(x: Array, params: Any) -> Any:
        H, mask = saved.q.shape[1], saved.weights > 0
        return multi_head_attention_forward(x, params=params, num_heads=H, mask=mask)

    return Slope(forward, {"x": saved.x, "params": given["params"]}, given["d_out"])


def _group(given: Inputs) -> Slope:
    d_out, H_kv = given["d_per_query_head"], given["num_kv_heads"]
    B, H, T, d = d_out.shape
    shared = np.random.default_rng(0).normal(size=(B, H_kv, T, d))
    return Slope(lambda shared: shared.repeat(H // H_kv, axis=1), {"shared": shared}, d_out)


def _dropout(given: Inputs) -> Slope:
    keep, p = given["keep"], given["p"]
    weights = np.random.default_rng(0).random(size=keep.shape)
    return Slope(lambda weights: weights * keep / (1 - p), {"weights": weights}, given["d_dropped"])


def _rope(given: Inputs) -> Slope:
    forward = partial(rope_forward, positions=given["positions"], base=given["base"])
    x = np.random.default_rng(0).normal(size=given["d_out"].shape)
    return Slope(forward, {"x": x}, given["d_out"])


def _gate(given: Inputs) -> Slope:
    heads = given["heads"]
    gate = np.ones(heads.shape[1])
    return Slope(lambda gate: heads * gate[:, None, None], {"gate": gate}, given["d_gated"])


def _layer_norm(given: Inputs) -> Slope:
    def forward(x: Array, gain: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + given["eps"]) * gain + bias

    x, gain = given["x"], given["gain"]
    return Slope(forward, {"x": x, "gain": gain, "bias": np.zeros_like(gain)}, given["d_out"])


SLOPES: dict[str, Callable[[Inputs], Slope]] = {
    "scores_backward": _scores,
    "softmax_backward": _softmax,
    "attention_backward": _attention,
    "grouped_backward": _attention,
    "backward_from_lse": _attention,
    "linear_backward": _linear,
    "input_gradient": _input_gradient,
    "multi_head_backward": _multi_head,
    "sum_over_group": _group,
    "dropout_backward": _dropout,
    "rope_backward": _rope,
    "d_head_gate": _gate,
    "layer_norm_backward": _layer_norm,
}
