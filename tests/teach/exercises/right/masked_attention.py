"""Right ways to attend with a mask, a softcap and shared key/value heads."""

import math

import numpy as np


def _cap(scores, softcap):
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def _softmax(scores, mask):
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    powers = np.exp(masked - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def by_scalar_loops(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    H_kv, T_k, d_v = v.shape[1:]
    heads = np.zeros((B, H, T_q, d_v))
    for b, h, i in np.ndindex(B, H, T_q):
        n = h * H_kv // H
        scores = {}
        for j in range(T_k):
            if mask[b, 0, i, j]:
                score = sum(q[b, h, i, m] * k[b, n, j, m] for m in range(d_k)) / math.sqrt(d_k)
                scores[j] = score if softcap is None else softcap * math.tanh(score / softcap)
        if scores:
            largest = max(scores.values())
            total = sum(math.exp(s - largest) for s in scores.values())
            for j, score in scores.items():
                for m in range(d_v):
                    heads[b, h, i, m] += math.exp(score - largest) / total * v[b, n, j, m]
    return heads


def by_masked_array(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = k.repeat(G, axis=1), v.repeat(G, axis=1)
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.ma.masked_where(np.broadcast_to(~mask, scores.shape), scores)
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights.filled(0) @ v


def by_repairing_nan_with_warnings(q, k, v, mask, softcap):
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    v = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = _cap(np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, float("-inf"))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers @ v / powers.sum(axis=-1, keepdims=True)
    heads[np.isnan(heads)] = 0.0
    return heads


def by_large_negative_number_and_mask(q, k, v, mask, softcap):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, -1e30)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.where(mask, weights, 0) @ v


def by_tanh_of_exponentials(q, k, v, mask, softcap):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap is not None:
        e = np.exp(-2 * np.abs(scores) / softcap)
        scores = np.sign(scores) * softcap * (1 - e) / (1 + e)
    return _softmax(scores, mask) @ v


RIGHT = [
    by_scalar_loops,
    by_masked_array,
    by_repairing_nan_with_warnings,
    by_large_negative_number_and_mask,
    by_tanh_of_exponentials,
]
