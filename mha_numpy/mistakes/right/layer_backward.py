"""The way back through multi-head attention: linear maps, branches, the whole, and layer norm."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.mistakes.right.attention_backward import through_attention
from mha_numpy.mistakes.right.heads import merge_heads, split_heads
from mha_numpy.mistakes.saved import Saved


class LinearGrads(NamedTuple):
    """Gradients of a linear map."""

    d_x: Array
    d_w: Array
    d_b: Array


def linear_backward(d_out: Array, x: Array, w: Array) -> LinearGrads:
    """Pull back through x @ w + b for x (B, T, inputs)."""
    return through_linear(d_out, x, w)


def through_linear(d_out: Array, x: Array, w: Array) -> LinearGrads:
    """Pull back through a linear map, whose w and b all tokens share."""
    d_x = d_out @ w.T
    d_w = (x.swapaxes(-1, -2) @ d_out).sum(axis=0)  # of (B, inputs, outputs)
    d_b = d_out.sum(axis=(0, 1))
    return LinearGrads(d_x, d_w, d_b)


def input_gradient(d_q: Array, d_k: Array, d_v: Array, params: MultiHeadParams) -> Array:
    """Sum what comes back to x through the three maps that made q, k, v of it."""
    from_q = merge_heads(d_q) @ params.w_q.T
    from_k = merge_heads(d_k) @ params.w_k.T
    from_v = merge_heads(d_v) @ params.w_v.T
    return from_q + from_k + from_v


class SelfGrads(NamedTuple):
    """Gradients of multi-head self-attention."""

    d_x: Array
    d_params: MultiHeadParams


def multi_head_backward(d_out: Array, params: MultiHeadParams, saved: Saved) -> SelfGrads:
    """Pull back through multi-head self-attention."""
    d_merged, d_w_o, d_b_o = through_linear(d_out, saved.merged, params.w_o)
    d_heads = split_heads(d_merged, saved.q.shape[1])
    d_q, d_k, d_v = through_attention(d_heads, saved.q, saved.k, saved.v, saved.weights)
    d_x = input_gradient(d_q, d_k, d_v, params)
    _, d_w_q, d_b_q = through_linear(merge_heads(d_q), saved.x, params.w_q)
    _, d_w_k, d_b_k = through_linear(merge_heads(d_k), saved.x, params.w_k)
    _, d_w_v, d_b_v = through_linear(merge_heads(d_v), saved.x, params.w_v)
    return SelfGrads(d_x, MultiHeadParams(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o))


class LayerNormGrads(NamedTuple):
    """Gradients of layer norm's input, gain and bias."""

    d_x: Array
    d_gain: Array
    d_bias: Array


def layer_norm_backward(d_out: Array, x: Array, gain: Array, eps: float) -> LayerNormGrads:
    """Pull back through (x - mean) / sqrt(var + eps) * gain + bias for x (B, T, D)."""
    x_hat, inverse_std = normalise(x, eps)
    d_x = through_norm(d_out * gain, x_hat, inverse_std)
    d_gain = (d_out * x_hat).sum(axis=(0, 1))
    d_bias = d_out.sum(axis=(0, 1))
    return LayerNormGrads(d_x, d_gain, d_bias)


def normalise(x: Array, eps: float) -> tuple[Array, Array]:
    """Return (x - mean) / sqrt(var + eps) of each token, and 1 / sqrt(var + eps)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    inverse_std = 1 / np.sqrt(variance + eps)
    return centred * inverse_std, inverse_std


def through_norm(d_x_hat: Array, x_hat: Array, inverse_std: Array) -> Array:
    """Pull back through the normalisation: a feature moves its token's mean and variance, too."""
    by_mean = d_x_hat.mean(axis=-1, keepdims=True)
    by_variance = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    return inverse_std * (d_x_hat - by_mean - by_variance)
