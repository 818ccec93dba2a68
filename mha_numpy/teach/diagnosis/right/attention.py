"""Attention forward: scores, softcap, softmax, mix, and heads that share keys and values."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array


def scores(q: Array, k: Array) -> Array:
    """Match (..., T_q, d_k) with (..., T_k, d_k): q k^T / sqrt(d_k)."""
    scale = 1 / np.sqrt(q.shape[-1])
    return scale * q @ k.swapaxes(-1, -2)


def cap(scores: Array, softcap: float | None) -> Array:
    """Bound the scores smoothly."""
    if softcap is None:
        return scores
    return softcap * np.tanh(scores / softcap)


def hide(scores: Array, mask: Array | None) -> Array:
    """Give hidden cells the score -inf; a mask says who may attend."""
    if mask is None:
        return scores
    visible = mask  # True = may attend
    return np.where(visible, scores, -np.inf)


class WeightsAndLse(NamedTuple):
    """What softmax computes: the weights, and the log of each row's sum."""

    weights: Array  # (..., T_q, T_k)
    lse: Array  # (..., T_q)


def softmax_with_lse(scores: Array, mask: Array | None) -> WeightsAndLse:
    """Turn scores into weights; a row that sees nothing is 0, and its lse -inf."""
    axis = -1
    masked = hide(scores, mask)
    largest = masked.max(axis=axis, keepdims=True)
    sees_none = np.isneginf(largest)
    powers = np.exp(masked - np.where(sees_none, 0.0, largest))
    total = np.where(sees_none, 1.0, powers.sum(axis=axis, keepdims=True))
    weights = powers / total
    lse = np.where(sees_none, -np.inf, largest + np.log(total))
    return WeightsAndLse(weights, lse[..., 0])


def softmax(scores: Array, mask: Array | None) -> Array:
    """Turn scores into weights; a row that sees nothing is 0."""
    return softmax_with_lse(scores, mask).weights


def share(x: Array, num_heads: int) -> Array:
    """Give query head h key/value head h // G: (B, H_kv, T, d) -> (B, H, T, d)."""
    H_kv = x.shape[1]
    if num_heads == H_kv:
        return x
    return np.repeat(x, num_heads // H_kv, axis=1)


class Attended(NamedTuple):
    """What a forward computes on its way."""

    weights: Array
    heads: Array


def attend(
    q: Array, k: Array, v: Array, mask: Array | None = None, softcap: float | None = None
) -> Attended:
    """Attend, grouped where k has fewer heads; of rank 2 or 4."""
    if q.ndim == 4:
        k, v = share(k, q.shape[1]), share(v, q.shape[1])
    capped = cap(scores(q, k), softcap)
    weights = softmax(capped, mask)
    return Attended(weights, weights @ v)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Attend with one head: (T_q, d_k), (T_k, d_k), (T_k, d_v) -> (T_q, d_v)."""
    return attend(q, k, v).heads


def one_query(q: Array, k: Array, v: Array) -> Array:
    """Attend from a single query: (d_k,), (T_k, d_k), (T_k, d_v) -> (d_v,)."""
    return attend(q[None], k, v).heads[0]


def grouped_attention(q: Array, k: Array, v: Array) -> Array:
    """Attend with heads that share keys and values."""
    return attend(q, k, v).heads


def masked_attention(q: Array, k: Array, v: Array, mask: Array, softcap: float | None) -> Array:
    """Attend to what the mask (B, 1, T_q, T_k) lets through, with scores bounded by softcap."""
    return attend(q, k, v, mask, softcap).heads
