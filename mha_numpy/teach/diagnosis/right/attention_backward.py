"""Attention backward: scores, softmax, shared heads.

What begins with `through` is a part of several backwards; the public ones hand over to it.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.right.attention import share


class ScoresGrads(NamedTuple):
    """Gradients of q and k."""

    d_q: Array
    d_k: Array


def scores_backward(d_scores: Array, q: Array, k: Array) -> ScoresGrads:
    """Pull back through q k^T / sqrt(d_k)."""
    return through_scores(d_scores, q, k)


def through_scores(d_scores: Array, q: Array, k: Array) -> ScoresGrads:
    """Multiply by the other factor; the scale stands in both."""
    scaled = d_scores / np.sqrt(q.shape[-1])
    d_q = scaled @ k
    d_k = scaled.swapaxes(-1, -2) @ q
    return ScoresGrads(d_q, d_k)


def softmax_backward(d_weights: Array, weights: Array) -> Array:
    """Return weights * (d_weights - sum_j weights_j d_weights_j)."""
    mean = find_row_sum(d_weights, weights)
    return through_softmax(d_weights, weights, mean)


def find_row_sum(d_weights: Array, weights: Array) -> Array:
    """Return sum_j weights_j d_weights_j of each row: (..., T_q, 1)."""
    return (weights * d_weights).sum(axis=-1, keepdims=True)


def through_softmax(d_weights: Array, weights: Array, row_sum: Array) -> Array:
    """Pull back through softmax, whose row sum is known."""
    return weights * (d_weights - row_sum)


def sum_over_group(d_per_query_head: Array, num_kv_heads: int) -> Array:
    """Sum a shared head's gradients: (B, H, T, d) -> (B, H_kv, T, d)."""
    B, H, T, d = d_per_query_head.shape
    grouped = d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d)
    return grouped.sum(axis=2)


class InputGrads(NamedTuple):
    """Gradients of attention's three inputs."""

    d_q: Array
    d_k: Array
    d_v: Array


def attention_backward(d_heads: Array, q: Array, k: Array, v: Array, weights: Array) -> InputGrads:
    """Pull back through attention, from its weights."""
    return through_attention(d_heads, q, k, v, weights)


def grouped_backward(d_heads: Array, q: Array, k: Array, v: Array, weights: Array) -> InputGrads:
    """Pull back through attention whose heads share keys and values."""
    return attention_backward(d_heads, q, k, v, weights)


def through_attention(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array, row_sum: Array | None = None
) -> InputGrads:
    """Pull back through attention; the row sum of softmax may be known already."""
    H, H_kv = q.shape[1], k.shape[1]
    k, v = share(k, H), share(v, H)
    d_weights = d_heads @ v.swapaxes(-1, -2)
    if row_sum is None:
        row_sum = find_row_sum(d_weights, weights)
    d_scores = through_softmax(d_weights, weights, row_sum)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_q, d_k = through_scores(d_scores, q, k)
    if H_kv != H:
        d_k, d_v = sum_over_group(d_k, H_kv), sum_over_group(d_v, H_kv)
    return InputGrads(d_q, d_k, d_v)


def backward_from_lse(
    d_heads: Array, q: Array, k: Array, v: Array, heads: Array, lse: Array, mask: Array
) -> InputGrads:
    """Pull back through attention whose weights were not kept."""
    weights = recompute_weights(q, k, lse[..., None], mask)
    return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))


def recompute_weights(q: Array, k: Array, lse: Array, mask: Array) -> Array:
    """Return the weights e^(scores - lse), 0 where hidden."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return np.exp(np.where(mask, scores - lse, -np.inf))


def delta(d_heads: Array, heads: Array) -> Array:
    """Return the row sum of softmax, which is sum(d_heads * heads): (B, H, T_q, 1)."""
    return (d_heads * heads).sum(axis=-1, keepdims=True)
