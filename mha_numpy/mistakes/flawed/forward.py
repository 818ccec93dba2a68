"""Attention forward: scores, softcap, softmax, mix, and heads that share keys and values."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made


def find_scale(q: Array, k: Array, made: Made = RIGHT) -> float:
    """Return 1 / sqrt(d_k)."""
    d_k = q.shape[-1]
    if "scale missing" in made:
        return 1.0
    if "scale 1/d_k" in made:
        return 1 / d_k
    if "scale 1/sqrt(D)" in made:
        return float(1 / np.sqrt(q.shape[1] * d_k if q.ndim == 4 else d_k))
    if "scale 1/sqrt(T_k)" in made:
        return float(1 / np.sqrt(k.shape[-2]))
    if "scale times sqrt(d_k)" in made:
        return float(np.sqrt(d_k))
    return float(1 / np.sqrt(d_k))


def match(q: Array, k: Array, scale: float, made: Made = RIGHT) -> Array:
    """Match (..., T_q, d_k) with (..., T_k, d_k): scores (..., T_q, T_k)."""
    if "k reshaped, not transposed" in made:
        return scale * q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    if "q and k swapped" in made:
        return scale * k @ q.swapaxes(-1, -2)
    return scale * q @ k.swapaxes(-1, -2)


def scores(q: Array, k: Array, made: Made = RIGHT) -> Array:
    """Return q k^T / sqrt(d_k)."""
    return match(q, k, find_scale(q, k, made), made)


def cap(scores: Array, softcap: float | None, made: Made = RIGHT) -> Array:
    """Bound the scores smoothly."""
    if softcap is None or "softcap ignored" in made:
        return scores
    if "softcap without its factor" in made:
        return np.tanh(scores / softcap)
    if "softcap without its divisor" in made:
        return softcap * np.tanh(scores)
    if "softcap by clipping" in made:
        return np.clip(scores, -softcap, softcap)
    return softcap * np.tanh(scores / softcap)


def read_mask(mask: Array | None, made: Made = RIGHT) -> Array | None:
    """Take a mask for what it says: True = may attend."""
    if mask is None or "mask forgotten" in made:
        return None
    if "mask inverted" in made:
        mask = ~mask
    if "mask transposed" in made:
        mask = mask.swapaxes(-1, -2)
    is_for_all_heads = mask.ndim == 4 and mask.shape[1] == 1
    if "mask's batch axis lined up with the heads" in made and is_for_all_heads:
        mask = mask[:, 0]
    return mask


def hide(scores: Array, mask: Array | None, made: Made = RIGHT) -> Array:
    """Give hidden cells the score -inf."""
    if mask is None or "mask after softmax" in made:
        return scores
    if "mask multiplied into the scores" in made:
        return scores * mask
    if "mask added to the scores" in made:
        return scores + mask
    if "hidden scores lowered by 10" in made:
        return np.where(mask, scores, scores - 10)
    if "-1e9 for -inf" in made:
        return np.where(mask, scores, -1e9)
    if "-1e9 added to the scores" in made:
        return scores + np.where(mask, 0.0, -1e9)
    if "0 times -inf" in made:
        return scores + (1 - mask) * -np.inf
    return np.where(mask, scores, -np.inf)


class WeightsAndLse(NamedTuple):
    """What softmax computes: the weights, and the log of each row's sum."""

    weights: Array  # (..., T_q, T_k)
    lse: Array  # (..., T_q)


def softmax_with_lse(scores: Array, mask: Array | None, made: Made = RIGHT) -> WeightsAndLse:
    """Turn scores into weights; a row that sees nothing is 0, and its lse -inf."""
    mask = read_mask(mask, made)
    if mask is not None:
        mask = np.broadcast_to(mask, scores.shape)
    masked = hide(scores, mask, made)

    axis: int | tuple[int, ...] = -1
    if "softmax over queries" in made:
        axis = -2
    if "softmax over heads" in made and scores.ndim == 4:
        axis = 1
    if "softmax over the whole matrix" in made:
        axis = (-2, -1)
    largest = masked.max(axis=axis, keepdims=True)
    sees_none = np.isneginf(largest)
    if "maximum of hidden scores too" in made:
        largest = scores.max(axis=axis, keepdims=True)
    if "one maximum for all" in made or "one maximum for all, lost rows 0" in made:
        largest = masked.max(keepdims=True)
    if "no maximum subtracted" in made or "no maximum subtracted, lost rows 0" in made:
        largest = np.zeros_like(largest)

    powers = np.exp(masked - np.where(sees_none, 0.0, largest))
    total = np.where(sees_none, 1.0, powers.sum(axis=axis, keepdims=True))
    if "normalised by the mean" in made:
        total = total / scores.shape[-1]
    weights = powers / total
    if "keepdims forgotten" in made and scores.ndim == 2:  # an error where there are more axes
        weights = powers / total[..., 0]
    if "one maximum for all, lost rows 0" in made or "no maximum subtracted, lost rows 0" in made:
        weights = np.where(total == 0, 0.0, weights)
    if "NaN in a row that sees nothing" in made:
        weights = np.where(sees_none, np.nan, weights)
    if "the mean in a row that sees nothing" in made:
        weights = np.where(sees_none, 1 / scores.shape[-1], weights)
    if "mask after softmax" in made and mask is not None:
        weights = weights * mask

    if "lse of hidden scores too" in made:
        largest = scores.max(axis=axis, keepdims=True)
        total = np.exp(scores - largest).sum(axis=axis, keepdims=True)
        sees_none = np.zeros_like(sees_none)
    lse = np.where(sees_none, -np.inf, _lse(total, largest, made))
    if "lse 0 in a row that sees nothing" in made:
        lse = np.where(sees_none, 0.0, lse)
    if "lse NaN in a row that sees nothing" in made or "NaN in a row that sees nothing" in made:
        lse = np.where(sees_none, np.nan, lse)
    return WeightsAndLse(weights, lse if "lse keeps the axis of the keys" in made else lse[..., 0])


def _lse(total: Array, largest: Array, made: Made) -> Array:
    """Return the log of a row's sum of e^scores."""
    if "lse without the maximum" in made:
        return np.log(total)
    if "lse without the log" in made:
        return largest + total
    if "lse: the maximum subtracted" in made:
        return np.log(total) - largest
    if "lse: the maximum alone" in made:
        return largest
    return largest + np.log(total)


def softmax(scores: Array, mask: Array | None, made: Made = RIGHT) -> Array:
    """Turn scores into weights; a row that sees nothing is 0."""
    return softmax_with_lse(scores, mask, made).weights


def mix(weights: Array, v: Array, made: Made = RIGHT) -> Array:
    """Mix the values (..., T_k, d_v) into heads (..., T_q, d_v)."""
    if "weights transposed in the mix" in made:
        return weights.swapaxes(-1, -2) @ v
    return weights @ v


def share(x: Array, num_heads: int, made: Made = RIGHT) -> Array:
    """Give query head h key/value head h // G: (B, H_kv, T, d) -> (B, H, T, d)."""
    H_kv = x.shape[1]
    if num_heads == H_kv:
        return x
    if "groups tiled, not repeated" in made:
        return np.tile(x, (1, num_heads // H_kv, 1, 1))
    if "first key/value head for all" in made:
        return np.repeat(x[:, :1], num_heads, axis=1)
    if "key/value heads averaged" in made:
        return np.repeat(x.mean(axis=1, keepdims=True), num_heads, axis=1)
    return np.repeat(x, num_heads // H_kv, axis=1)


class Attended(NamedTuple):
    """What a forward computes on its way."""

    weights: Array
    heads: Array


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    softcap: float | None = None,
    made: Made = RIGHT,
) -> Attended:
    """Attend, grouped where k has fewer heads; of rank 2 or 4."""
    if "k and v swapped" in made:
        k, v = v, k
    if "keys mixed instead of values" in made:
        v = k
    if q.ndim == 4:
        k, v = share(k, q.shape[1], made), share(v, q.shape[1], made)
    scale = find_scale(q, k, made)
    before, between, after = scale, 1.0, 1.0  # softcap, softmax
    if "softcap before the scale" in made:
        before, between = 1.0, scale
    if "scale after softmax" in made:
        before, after = 1.0, scale

    scores = match(q, k, before, made)
    if softcap is not None and "softcap drops the mask" in made:
        mask = None
    if softcap is not None and mask is not None and "softcap after the mask" in made:
        scores, mask = np.where(mask, scores, -np.inf), None
    capped = between * cap(scores, softcap, made)

    weights = after * softmax(capped, mask, made)
    if "softmax left out" in made:
        weights = capped if mask is None else np.where(mask, capped, 0.0)
    if "weights averaged over the heads" in made and weights.ndim == 4:
        weights = np.broadcast_to(weights.mean(axis=1, keepdims=True), weights.shape)
    return Attended(weights, mix(weights, v, made))


def attention(q: Array, k: Array, v: Array, made: Made = RIGHT) -> Array:
    """Attend with one head: (T_q, d_k), (T_k, d_k), (T_k, d_v) -> (T_q, d_v)."""
    return attend(q, k, v, made=made).heads


def grouped_attention(q: Array, k: Array, v: Array, made: Made = RIGHT) -> Array:
    """Attend with heads that share keys and values."""
    return attend(q, k, v, made=made).heads


def masked_attention(
    q: Array, k: Array, v: Array, mask: Array, softcap: float | None, made: Made = RIGHT
) -> Array:
    """Attend to what the mask (B, 1, T_q, T_k) lets through, with scores bounded by softcap."""
    return attend(q, k, v, mask, softcap, made).heads
