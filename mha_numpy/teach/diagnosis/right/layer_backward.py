"""The way back through multi-head attention: linear maps, branches, the whole."""

from typing import NamedTuple

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.right.attention_backward import through_attention
from mha_numpy.teach.diagnosis.right.heads import merge_heads, split_heads
from mha_numpy.teach.diagnosis.saved import Saved


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
