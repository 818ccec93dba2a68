"""Attention once more, in one plain implementation that makes mistakes on request.

Every function takes `made`, the names of the mistakes to make; without any it is right. A new
mistake is a line here and a row in the bank.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.dtypes import Array
from mha_numpy.core.multihead_params import MultiHeadParams

Made = frozenset[str]
RIGHT: Made = frozenset()


# heads


def split_heads(x: Array, num_heads: int, made: Made = RIGHT) -> Array:
    """Split: (B, T, H*d) -> (B, H, T, d)."""
    B, T, width = x.shape
    d = width // num_heads
    if "split without transpose" in made:
        return x.reshape(B, num_heads, T, d)
    if "heads interleaved when split" in made:
        return x.reshape(B, T, d, num_heads).transpose(0, 3, 1, 2)
    if "tokens reversed when split" in made:
        x = x[:, ::-1]
    return x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)


def merge_heads(heads: Array, made: Made = RIGHT) -> Array:
    """Merge: (B, H, T, d) -> (B, T, H*d)."""
    B, H, T, d = heads.shape
    if "merge without transpose" in made:
        return heads.reshape(B, T, H * d)
    if "heads merged in reverse" in made:
        heads = heads[:, ::-1]
    if "heads interleaved when merged" in made:
        return heads.transpose(0, 2, 3, 1).reshape(B, T, d * H)
    if "heads averaged instead of concatenated" in made:
        heads = np.broadcast_to(heads.mean(axis=1, keepdims=True), heads.shape)
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


# masks


def make_mask(
    lengths: Array, T_q: int, T_k: int, q_offset: int, left: int, made: Made = RIGHT
) -> Array:
    """Make a (B, 1, T_q, T_k) mask: causal, at most `left` keys back, no padding."""
    if "aligned at the bottom right" in made:
        q_offset = T_k - T_q
    if "q_offset ignored" in made:
        q_offset = 0
    if "q_offset subtracted" in made:
        q_offset = -q_offset
    query, key = np.arange(T_q)[:, None] + q_offset, np.arange(T_k)[None, :]
    causal = key <= query
    if "causal, strict" in made:
        causal = key < query
    if "causal, leaks one key" in made:
        causal = key <= query + 1
    if "causal, wrong triangle" in made:
        causal = key >= query
    if "causal forgotten" in made:
        causal = key <= T_k
    near = key >= query - left
    if "window one too wide" in made:
        near = key >= query - left - 1
    if "window one too narrow" in made:
        near = key > query - left
    if "window forgotten" in made:
        near = key >= 0
    is_token = key < np.asarray(lengths)[:, None, None, None]
    if "padding one too many" in made:
        is_token = key <= np.asarray(lengths)[:, None, None, None]
    if "padding forgotten" in made:
        is_token = np.broadcast_to(key >= 0, (len(lengths), 1, 1, T_k))
    if "padding inverted" in made:
        is_token = ~is_token
    mask = causal & near & is_token
    if "masks joined by or" in made:
        mask = causal & near | is_token
    return ~mask if "mask inverted" in made else mask


# scores, softmax, mix


def find_scale(d_k: int, D: int, made: Made = RIGHT) -> float:
    """Return 1 / sqrt(d_k)."""
    scale = 1 / np.sqrt(d_k)
    if "scale missing" in made:
        scale = 1.0
    if "scale 1/d_k" in made:
        scale = 1 / d_k
    if "scale 1/sqrt(D)" in made:
        scale = 1 / np.sqrt(D)
    if "scale times sqrt(d_k)" in made:
        scale = np.sqrt(d_k)
    return float(scale)


def match(q: Array, k: Array, scale: float, made: Made = RIGHT) -> Array:
    """Match (..., T_q, d_k) with (..., T_k, d_k): scores (..., T_q, T_k)."""
    if "k reshaped, not transposed" in made:
        return scale * q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    if "q and k swapped" in made:
        return scale * k @ q.swapaxes(-1, -2)
    return scale * q @ k.swapaxes(-1, -2)


def softmax(scores: Array, mask: Array | None, made: Made = RIGHT) -> Array:
    """Turn scores into weights; a row that sees nothing is 0."""
    if mask is None or "mask forgotten" in made:
        mask = np.ones_like(scores, dtype=bool)
    if "mask inverted" in made:
        mask = ~mask
    mask = np.broadcast_to(mask, scores.shape)
    axis: int | tuple[int, ...] = -1
    if "softmax over queries" in made:
        axis = -2
    if "softmax over heads" in made and scores.ndim == 4:
        axis = 1
    if "softmax over the whole matrix" in made:
        axis = (-2, -1)
    hidden = -np.inf
    if "-1e9 for -inf" in made:
        hidden = -1e9
    masked = np.where(mask, scores, hidden)
    if "mask after softmax" in made:
        masked = scores
    if "mask multiplied into the scores" in made:
        masked = scores * mask
    if "hidden scores lowered by 10" in made:
        masked = np.where(mask, scores, scores - 10)
    largest = masked.max(axis=axis, keepdims=True)
    if "one maximum for all" in made:
        largest = masked.max(keepdims=True)
    if "no maximum subtracted" in made:
        largest = np.zeros_like(largest)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        powers = np.exp(masked - np.where(np.isneginf(largest), 0.0, largest))
        total = powers.sum(axis=axis, keepdims=True)
        if "normalised by the mean" in made:
            total = total / scores.shape[-1]
        weights = powers / total
    if "NaN in a row that sees nothing" not in made:
        weights = np.where(total == 0, 0.0, weights)
    if "the mean in a row that sees nothing" in made:
        weights = np.where(mask.any(axis=-1, keepdims=True), weights, 1 / scores.shape[-1])
    return weights * mask if "mask after softmax" in made else weights


def mix(weights: Array, v: Array, made: Made = RIGHT) -> Array:
    """Mix the values (..., T_k, d_v) into heads (..., T_q, d_v)."""
    if "weights transposed in the mix" in made:
        return weights.swapaxes(-1, -2) @ v
    return weights @ v


def share(x: Array, num_heads: int, made: Made = RIGHT) -> Array:
    """Give query head h key/value head h // G: (B, H_kv, T, d) -> (B, H, T, d)."""
    G = num_heads // x.shape[1]
    if "groups tiled, not repeated" in made:
        return np.tile(x, (1, G, 1, 1))
    if "first key/value head for all" in made:
        return np.repeat(x[:, :1], num_heads, axis=1)
    return np.repeat(x, G, axis=1)


class Attended(NamedTuple):
    """What a forward computes on its way."""

    scores: Array
    weights: Array
    heads: Array


def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, D: int = 0, made: Made = RIGHT
) -> Attended:
    """Attend, grouped where k has fewer heads; of rank 2 or 4."""
    if "k and v swapped" in made:
        k, v = v, k
    if q.ndim == 4:
        k, v = share(k, q.shape[1], made), share(v, q.shape[1], made)
    scores = match(q, k, find_scale(q.shape[-1], D or q.shape[-1], made), made)
    weights = softmax(scores, mask, made)
    return Attended(scores, weights, mix(weights, v, made))


# backward


def softmax_backward(d_weights: Array, weights: Array, made: Made = RIGHT) -> Array:
    """Return weights * (d_weights - sum_j weights_j d_weights_j)."""
    if "mask forgotten in backward" in made:
        weights = np.where(weights == 0, weights.max(axis=-1, keepdims=True) / 2, weights)
    row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)
    if "row sum left out" in made:
        row_mean = np.zeros_like(row_mean)
    if "row sum over queries" in made:
        row_mean = (weights * d_weights).sum(axis=-2, keepdims=True)
    if "row sum unweighted" in made:
        row_mean = d_weights.sum(axis=-1, keepdims=True)
    if "row mean instead of the weighted sum" in made:
        row_mean = d_weights.mean(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - row_mean)
    if "diagonal of the Jacobian alone" in made:
        d_scores = weights * (1 - weights) * d_weights
    if "factor p left out" in made:
        d_scores = d_weights - row_mean
    return -d_scores if "sign of d_scores" in made else d_scores


def sum_over_group(d_shared: Array, num_kv_heads: int, made: Made = RIGHT) -> Array:
    """Sum a shared head's gradients: (B, H, T, d) -> (B, H_kv, T, d)."""
    B, H, T, d = d_shared.shape
    G = H // num_kv_heads
    grouped = d_shared.reshape(B, num_kv_heads, G, T, d)
    if "gradients summed as if tiled" in made:
        grouped = d_shared.reshape(B, G, num_kv_heads, T, d).transpose(0, 2, 1, 3, 4)
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


def attention_backward(
    d_heads: Array, q: Array, k: Array, v: Array, weights: Array, made: Made = RIGHT
) -> InputGrads:
    """Pull back through attention, from its weights; of rank 2 or 4."""
    H_kv = k.shape[1] if k.ndim == 4 else 0
    if "float32 inside" in made:
        d_heads, q, k, v, weights = (a.astype(np.float32) for a in (d_heads, q, k, v, weights))
    if H_kv:
        k, v = share(k, q.shape[1], made), share(v, q.shape[1], made)
    if "everything divided by B" in made:
        d_heads = d_heads / len(d_heads)
    scale = 1 / np.sqrt(q.shape[-1])
    is_square = weights.shape[-1] == weights.shape[-2]

    d_weights = d_heads @ v.swapaxes(-1, -2)
    weights_T = weights.swapaxes(-1, -2)
    if "weights not transposed" in made and is_square:
        weights_T = weights
    d_v = weights_T @ d_heads

    d_scores = softmax_backward(d_weights, weights, made)
    d_scores_T = d_scores.swapaxes(-1, -2)
    if "d_scores not transposed" in made and is_square:
        d_scores_T = d_scores
    d_q, d_k = scale * d_scores @ k, scale * d_scores_T @ q
    factor = 1 / scale
    if "scale left out of backward" in made:
        d_q, d_k = factor * d_q, factor * d_k
    if "scale left out of d_q" in made:
        d_q = factor * d_q
    if "scale left out of d_k" in made:
        d_k = factor * d_k
    if "scale twice in backward" in made:
        d_q, d_k = d_q / factor, d_k / factor
    if "sign of d_k" in made:
        d_k = -d_k
    if "d_q and d_k swapped" in made and is_square:
        d_q, d_k = d_k, d_q
    if H_kv:
        d_k, d_v = sum_over_group(d_k, H_kv, made), sum_over_group(d_v, H_kv, made)
    return InputGrads(d_q, d_k, d_v)


class LinearGrads(NamedTuple):
    """Gradients of a linear map."""

    d_x: Array
    d_w: Array
    d_b: Array


def linear_backward(d_out: Array, x: Array, w: Array, made: Made = RIGHT) -> LinearGrads:
    """Pull back through ``x @ w + b`` for x (B, T, inputs)."""
    B, T, _ = x.shape
    d_x = d_out @ w.T
    if "d_x by w, not its transpose" in made and w.shape[0] == w.shape[1]:
        d_x = d_out @ w
    d_w = np.einsum("bti,bto->io", x, d_out)
    if "d_w of the last sequence alone" in made:
        d_w = x[-1].T @ d_out[-1]
    if "d_w: mean over the batch" in made:
        d_w = d_w / B
    if "d_w: mean over batch and tokens" in made:
        d_w = d_w / (B * T)
    if "d_w transposed" in made and w.shape[0] == w.shape[1]:
        d_w = d_w.T
    d_b = d_out.sum(axis=(0, 1))
    if "d_b of the last sequence alone" in made:
        d_b = d_out[-1].sum(axis=0)
    if "d_b of the last token alone" in made:
        d_b = d_out[:, -1].sum(axis=0)
    if "d_b: mean" in made:
        d_b = d_out.mean(axis=(0, 1))
    if "d_b: mean over the batch" in made:
        d_b = d_b / B
    if "d_b: zero" in made:
        d_b = np.zeros_like(d_b)
    if "d_b over one axis" in made:
        d_b = d_out.sum(axis=0)
    return LinearGrads(d_x, d_w, d_b)


# multi-head


class Saved(NamedTuple):
    """What multi-head attention's backward needs."""

    x: Array  # (B, T_q, D)
    source: Array  # (B, T_k, D); x itself in self-attention
    q: Array  # (B, H, T_q, d)
    k: Array
    v: Array
    weights: Array
    merged: Array  # (B, T_q, H*d)


def multi_head(
    x: Array,
    source: Array,
    params: MultiHeadParams,
    num_heads: int,
    mask: Array | None = None,
    made: Made = RIGHT,
) -> tuple[Array, Saved]:
    """Project, split, attend, merge, project."""
    if "source ignored" in made:
        source = x
    if "queries from the source" in made:
        x, source = source, x
    biases = {
        letter: 0.0 if f"b_{letter} left out" in made else getattr(params, f"b_{letter}")
        for letter in "qkvo"
    }
    weights = {
        letter: getattr(params, f"w_{letter}").T
        if f"w_{letter} transposed" in made
        else getattr(params, f"w_{letter}")
        for letter in "qkvo"
    }
    k_from = x if "keys from the queries' input" in made else source
    v_from = x if "values from the queries' input" in made else source
    q = split_heads(x @ weights["q"] + biases["q"], num_heads, made)
    H_kv = params.w_k.shape[1] // q.shape[-1]
    k = split_heads(k_from @ weights["k"] + biases["k"], H_kv, made)
    v = split_heads(v_from @ weights["v"] + biases["v"], H_kv, made)
    attended = attention(q, k, v, mask, D=x.shape[-1], made=made)
    merged = merge_heads(attended.heads, made)
    out = merged @ weights["o"] + biases["o"]
    if "output projection left out" in made:
        out = merged
    return out, Saved(x, source, q, k, v, attended.weights, merged)


class SelfGrads(NamedTuple):
    """Gradients of multi-head self-attention."""

    d_x: Array
    d_params: MultiHeadParams


def multi_head_backward(
    d_out: Array, params: MultiHeadParams, saved: Saved, made: Made = RIGHT
) -> SelfGrads:
    """Pull back through multi-head self-attention."""
    d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o, made)
    if "output projection skipped in backward" in made:
        d_merged = d_out
    if "d_w_o from the output" in made:
        out = saved.merged @ params.w_o + params.b_o
        d_w_o = np.einsum("bti,bto->io", out, d_out)
    d_heads = split_heads(d_merged, saved.q.shape[1], made)
    d_q, d_k, d_v = attention_backward(d_heads, *saved[2:6], made=made)
    parts = [
        linear_backward(merge_heads(d, made), x, w, made)
        for d, x, w in (
            (d_q, saved.x, params.w_q), (d_k, saved.source, params.w_k),
            (d_v, saved.source, params.w_v),
        )
    ]  # fmt: skip
    kept = parts
    for letter, left in (("q", 0), ("k", 1), ("v", 2)):
        if f"branch of {letter} forgotten" in made:
            kept = [part for i, part in enumerate(parts) if i != left]
        if f"branch of {letter} alone" in made:
            kept = [parts[left]]
    d_x = np.sum([part.d_x for part in kept], axis=0)
    (_, d_w_q, d_b_q), (_, d_w_k, d_b_k), (_, d_w_v, d_b_v) = parts
    return SelfGrads(d_x, MultiHeadParams(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o))


# positions


def rope(x: Array, positions: Array, base: float, made: Made = RIGHT) -> Array:
    """Turn feature i and i + d/2 of (..., T, d) by position * base^(-2i/d)."""
    half = x.shape[-1] // 2
    exponent = np.arange(half) / half
    if "frequencies over d, not d/2" in made:
        exponent = np.arange(half) / (2 * half)
    if "frequencies shifted by one" in made:
        exponent = (np.arange(half) + 1) / half
    angles = positions[:, None] * base**-exponent
    if "frequencies inverted" in made:
        angles = positions[:, None] * base**exponent
    if "positions ignored" in made:
        angles = np.arange(len(positions))[:, None] * base**-exponent
    if "turned the other way" in made:
        angles = -angles
    cos, sin = np.cos(angles), np.sin(angles)
    if "sine and cosine swapped" in made:
        cos, sin = sin, cos
    if "pairs interleaved" in made:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * cos - odd * sin, even * sin + odd * cos]
        return np.stack(turned, axis=-1).reshape(x.shape)
    first, second = x[..., :half], x[..., half:]
    last = first * sin + second * cos
    if "a sign of the rotation" in made:
        last = second * cos - first * sin
    return np.concatenate([first * cos - second * sin, last], axis=-1)


def rope_backward(d_out: Array, positions: Array, base: float, made: Made = RIGHT) -> Array:
    """Turn back."""
    if "gradient turned forward" in made:
        return rope(d_out, positions, base, made)
    return rope(d_out, -positions, base, made)
