"""Right ways to write multi-head self-attention with a mask."""

import math

import numpy as np


def _softmax(scores, mask):
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    powers = np.exp(masked - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def by_scalar_loops(x, params, num_heads, mask):
    B, T, _ = x.shape
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads

    def project(x, w, b):
        y = np.zeros((B, T, w.shape[1]))
        for n, t, o in np.ndindex(y.shape):
            y[n, t, o] = b[o] + sum(x[n, t, i] * w[i, o] for i in range(w.shape[0]))
        return y

    q = project(x, params.w_q, params.b_q)
    k = project(x, params.w_k, params.b_k)
    v = project(x, params.w_v, params.b_v)
    merged = np.zeros(v.shape)
    for n, h, i in np.ndindex(B, num_heads, T):
        columns = range(h * d_k, h * d_k + d_k)
        seen = [j for j in range(T) if mask[i, j]]
        scores = [sum(q[n, i, c] * k[n, j, c] for c in columns) / math.sqrt(d_k) for j in seen]
        powers = [math.exp(s - max(scores)) for s in scores]
        for power, j in zip(powers, seen, strict=True):
            for c in range(h * d_v, h * d_v + d_v):
                merged[n, i, c] += power / sum(powers) * v[n, j, c]
    return project(merged, params.w_o, params.b_o)


def by_folded_params(x, params, num_heads, mask):
    w_q, b_q, w_k, b_k, w_v, b_v = (np.split(array, num_heads, axis=-1) for array in params[:6])
    out = np.zeros(x.shape) + params.b_o
    for h, w_o in enumerate(np.split(params.w_o, num_heads, axis=0)):
        scores = x @ (w_q[h] @ w_k[h].T) @ x.swapaxes(1, 2)
        scores = scores + x @ (w_q[h] @ b_k[h])[:, None]
        scores = scores + (x @ (w_k[h] @ b_q[h]))[:, None, :] + b_q[h] @ b_k[h]
        weights = _softmax(scores / np.sqrt(len(b_q[h])), mask)
        out = out + weights @ (x @ (w_v[h] @ w_o) + b_v[h] @ w_o)
    return out


def by_selecting_features(x, params, num_heads, mask):
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = params
    q, k, v = x @ w_q + b_q, x @ w_k + b_k, x @ w_v + b_v
    d_k, d_v = q.shape[-1] // num_heads, v.shape[-1] // num_heads
    merged = np.zeros(v.shape)
    for h in range(num_heads):
        q_of_head = np.where(np.arange(q.shape[-1]) // d_k == h, q, 0)
        v_of_head = np.where(np.arange(v.shape[-1]) // d_v == h, v, 0)
        scores = q_of_head @ k.swapaxes(-1, -2) / np.sqrt(d_k)
        merged += _softmax(scores, mask) @ v_of_head
    return merged @ w_o + b_o


def by_logsumexp(x, params, num_heads, mask):
    def heads_of(w, b):
        return np.rollaxis((x @ w + b).reshape(*x.shape[:-1], num_heads, -1), 2, 1)

    q, k, v = heads_of(*params[:2]), heads_of(*params[2:4]), heads_of(*params[4:6])
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    heads = np.exp(scores - np.where(np.isinf(lse), 0, lse)) @ v
    return np.einsum("bhtd->bthd", heads).reshape(*x.shape[:2], -1) @ params.w_o + params.b_o


def by_masked_array(x, params, num_heads, mask):
    B, T, _ = x.shape

    def heads_of(w, b):
        return (x @ w + b).reshape(B, T, num_heads, -1).swapaxes(1, 2)

    q = heads_of(params.w_q, params.b_q)
    k = heads_of(params.w_k, params.b_k)
    v = heads_of(params.w_v, params.b_v)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    scores = np.ma.array(scores, mask=np.broadcast_to(~mask, scores.shape))
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.ma.filled(powers / powers.sum(axis=-1, keepdims=True), 0)
    return (weights @ v).swapaxes(1, 2).reshape(B, T, -1) @ params.w_o + params.b_o


RIGHT = [
    by_scalar_loops,
    by_folded_params,
    by_selecting_features,
    by_logsumexp,
    by_masked_array,
]
