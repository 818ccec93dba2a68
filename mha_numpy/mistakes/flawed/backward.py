"""Attention backward: scores, softmax, shared heads, and linear maps."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.forward import share, softmax
from mha_numpy.mistakes.flawed.made import RIGHT, Made, by_batch


class ScoresGrads(NamedTuple):
    """Gradients of q and k."""

    d_q: Array
    d_k: Array


def scores_backward(d_scores: Array, q: Array, k: Array, made: Made = RIGHT) -> ScoresGrads:
    """Pull back through q k^T / sqrt(d_k)."""
    d_scores, made = by_batch(d_scores, made)
    d_scores_T = d_scores.swapaxes(-1, -2)
    if "d_scores not transposed" in made:
        d_scores_T = d_scores
    scale = 1 / np.sqrt(q.shape[-1])
    d_q = scale * d_scores @ (q if "d_q made from q" in made else k)
    d_k = scale * d_scores_T @ (k if "d_k made from k" in made else q)
    if "scale left out of backward" in made or "scale left out of d_q" in made:
        d_q = d_q / scale
    if "scale left out of backward" in made or "scale left out of d_k" in made:
        d_k = d_k / scale
    if "scale twice in backward" in made:
        d_q, d_k = scale * d_q, scale * d_k
    if "scale inverted in backward" in made:
        d_q, d_k = d_q / scale**2, d_k / scale**2
    if "sign of d_q" in made:
        d_q = -d_q
    if "sign of d_k" in made:
        d_k = -d_k
    if "d_q and d_k swapped" in made:
        d_q, d_k = d_k, d_q
    return ScoresGrads(d_q, d_k)


def find_row_sum(d_weights: Array, weights: Array, made: Made = RIGHT) -> Array:
    """Return sum_j weights_j d_weights_j of each row: (..., T_q, 1)."""
    if "row sum over queries" in made:
        return (weights * d_weights).sum(axis=-2, keepdims=True)
    if "row sum unweighted" in made:
        return d_weights.sum(axis=-1, keepdims=True)
    if "row mean instead of the weighted sum" in made:
        return d_weights.mean(axis=-1, keepdims=True)
    return (weights * d_weights).sum(axis=-1, keepdims=True)


def through_softmax(d_weights: Array, weights: Array, row_sum: Array, made: Made = RIGHT) -> Array:
    """Return weights * (d_weights - row_sum)."""
    if "row sum left out" in made:
        row_sum = np.zeros_like(row_sum)
    d_scores = weights * (d_weights - row_sum)
    if "row sum added" in made:
        d_scores = weights * (d_weights + row_sum)
    if "diagonal of the Jacobian alone" in made:
        d_scores = weights * (1 - weights) * d_weights
    if "factor p left out" in made:
        d_scores = d_weights - row_sum
    if "softmax skipped in backward" in made:
        d_scores = d_weights
    return -d_scores if "sign of d_scores" in made else d_scores


def softmax_backward(d_weights: Array, weights: Array, made: Made = RIGHT) -> Array:
    """Return weights * (d_weights - sum_j weights_j d_weights_j)."""
    d_weights, made = by_batch(d_weights, made)
    if "softmax of the weights" in made:
        weights = softmax(weights, None)
    return through_softmax(d_weights, weights, find_row_sum(d_weights, weights, made), made)


def sum_over_group(d_per_query_head: Array, num_kv_heads: int, made: Made = RIGHT) -> Array:
    """Sum a shared head's gradients: (B, H, T, d) -> (B, H_kv, T, d)."""
    B, H, T, d = d_per_query_head.shape
    G = H // num_kv_heads
    grouped = d_per_query_head.reshape(B, num_kv_heads, G, T, d)
    if "gradients summed as if tiled" in made:
        grouped = d_per_query_head.reshape(B, G, num_kv_heads, T, d).transpose(0, 2, 1, 3, 4)
    if "group not summed" in made:
        return d_per_query_head
    if "summed over the groups, not within" in made:
        return grouped.sum(axis=1)
    if "first of the group alone" in made:
        return grouped[:, :, 0]
    if "last of the group alone" in made:
        return grouped[:, :, -1]
    if "mean over the group" in made:
        return grouped.mean(axis=2)
    return grouped.sum(axis=2)


class InputGrads(NamedTuple):
    """Gradients of attention's three inputs."""

    d_q: Array
    d_k: Array
    d_v: Array


def through_attention(
    d_heads: Array,
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    row_sum: Array | None = None,
    made: Made = RIGHT,
) -> InputGrads:
    """Pull back through attention; the row sum of softmax may be known already."""
    H, H_kv = q.shape[1], k.shape[1]
    k, v = share(k, H, made), share(v, H, made)
    d_weights = d_heads @ (v if "v not transposed" in made else v.swapaxes(-1, -2))
    d_v = (weights if "weights not transposed" in made else weights.swapaxes(-1, -2)) @ d_heads

    if row_sum is None:
        row_sum = find_row_sum(d_weights, weights, made)
    d_scores = through_softmax(d_weights, weights, row_sum, made)
    if "d_scores divided by B" in made:
        d_scores = d_scores / len(d_scores)
    if "d_v made from d_scores" in made:
        d_v = d_scores.swapaxes(-1, -2) @ d_heads
    d_q, d_k = scores_backward(d_scores, q, k, made)
    if H_kv != H:
        d_k, d_v = sum_over_group(d_k, H_kv, made), sum_over_group(d_v, H_kv, made)
    if "d_k and d_v swapped" in made:
        d_k, d_v = d_v, d_k
    return InputGrads(d_q, d_k, d_v)


def attention_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array, made: Made = RIGHT
) -> InputGrads:
    """Pull back through attention, from its weights."""
    d_heads, made = by_batch(d_heads, made)
    if "mask forgotten in backward" in made:
        all_keys = share(k, q.shape[1]).swapaxes(-1, -2)
        weights = softmax(q @ all_keys / np.sqrt(q.shape[-1]), None)
    return through_attention(d_heads, q, k, v, weights, made=made)


def grouped_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array, made: Made = RIGHT
) -> InputGrads:
    """Pull back through attention whose heads share keys and values."""
    return attention_backward(d_heads, q, k, v, weights, made)


def backward_from_lse(
    d_heads: Array,
    q: Array,
    k: Array,
    v: Array,
    heads: Array,
    lse: Array,
    mask: Array,
    made: Made = RIGHT,
) -> InputGrads:
    """Pull back through attention whose weights were not kept."""
    d_heads, made = by_batch(d_heads, made)
    scale = 1.0 if "scale missing in the recomputed scores" in made else 1 / np.sqrt(q.shape[-1])
    scores = scale * q @ k.swapaxes(-1, -2)
    weights = _recompute(scores, lse[..., None], mask, made)
    return through_attention(d_heads, q, k, v, weights, _delta(d_heads, v, heads, made), made)


def _recompute(scores: Array, lse: Array, mask: Array, made: Made) -> Array:
    """Return the weights e^(scores - lse), 0 where hidden."""
    if "mask inverted" in made:
        mask = ~mask
    if "mask forgotten in backward" in made:
        return np.exp(scores - lse)
    if "hidden cells recomputed, too" in made:
        return np.where(np.isneginf(lse), 0.0, np.exp(scores - lse))
    if "hidden cells made 0 after exp" in made:
        return np.exp(scores - np.where(np.isneginf(lse), 0.0, lse)) * mask
    if "-inf minus -inf" in made:
        return np.exp(np.where(mask, scores, -np.inf) - lse)
    if "divided by lse" in made:
        return np.where(mask, np.exp(scores) / lse, 0.0)
    if "e^scores over e^lse" in made:
        return np.where(mask, np.exp(scores) / np.exp(lse), 0.0)
    return np.exp(np.where(mask, scores - lse, -np.inf))


def _delta(d_heads: Array, v: Array, heads: Array, made: Made) -> Array:
    """Return the row sum of softmax, which is sum(d_heads * heads): (B, H, T_q, 1)."""
    if "delta from v, not heads" in made:
        return (d_heads * v).sum(axis=-1, keepdims=True)
    if "delta summed over queries" in made:
        return (d_heads * heads).sum(axis=-2, keepdims=True)
    if "delta laid along the keys" in made:
        return (d_heads * heads).sum(axis=-1)[..., None, :]
    if "delta from d_heads alone" in made:
        return d_heads.sum(axis=-1, keepdims=True)
    return (d_heads * heads).sum(axis=-1, keepdims=True)


class LinearGrads(NamedTuple):
    """Gradients of a linear map."""

    d_x: Array
    d_w: Array
    d_b: Array


def linear_backward(d_out: Array, x: Array, w: Array, made: Made = RIGHT) -> LinearGrads:
    """Pull back through ``x @ w + b`` for x (B, T, inputs)."""
    d_out, made = by_batch(d_out, made)
    d_x = d_out @ (w if "d_x by w, not its transpose" in made else w.T)
    return LinearGrads(d_x, _d_w(d_out, x, made), _d_b(d_out, made))


def _d_w(d_out: Array, x: Array, made: Made) -> Array:
    """Return x^T d_out, summed over the batch."""
    B, T, _ = x.shape
    if "d_w of the last sequence alone" in made:
        return x[-1].T @ d_out[-1]
    of_each = x.swapaxes(-1, -2) @ d_out  # (B, inputs, outputs)
    if "d_w not summed over the batch" in made:
        return of_each
    d_w = of_each.sum(axis=0)
    if "d_w: mean over the batch" in made:
        return d_w / B
    if "d_w: mean over batch and tokens" in made:
        return d_w / (B * T)
    return d_w.T if "d_w transposed" in made else d_w


def _d_b(d_out: Array, made: Made) -> Array:
    """Return d_out, summed over batch and tokens."""
    if "d_b of the last sequence alone" in made:
        return d_out[-1].sum(axis=0)
    if "d_b of the last token alone" in made:
        return d_out[:, -1].sum(axis=0)
    if "d_b: mean" in made:
        return d_out.mean(axis=(0, 1))
    if "d_b: mean over the batch" in made:
        return d_out.mean(axis=0).sum(axis=0)
    if "d_b: zero" in made:
        return np.zeros(d_out.shape[-1])
    if "d_b over one axis" in made:
        return d_out.sum(axis=0)
    if "d_b over the tokens alone" in made:
        return d_out.sum(axis=1)
    return d_out.sum(axis=(0, 1))
