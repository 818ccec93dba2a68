"""Right ways to attend with one head."""

import math

import numpy as np


def by_einsum(q, k, v):
    scores = np.einsum("qd,kd->qk", q, k) / np.sqrt(q.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = np.einsum("qk,q->qk", powers, 1 / powers.sum(axis=1))
    return np.einsum("qk,kd->qd", weights, v)


def by_scalar_loops(q, k, v):
    T_q, d_k = q.shape
    T_k, d_v = v.shape
    heads = np.zeros((T_q, d_v))
    for i in range(T_q):
        scores = []
        for j in range(T_k):
            score = 0.0
            for m in range(d_k):
                score += q[i, m] * k[j, m]
            scores.append(score / math.sqrt(d_k))
        largest = max(scores)
        powers = [math.exp(score - largest) for score in scores]
        total = sum(powers)
        for j in range(T_k):
            for n in range(d_v):
                heads[i, n] += powers[j] / total * v[j, n]
    return heads


def by_logsumexp(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    return np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, None]) @ v


def by_sorting_keys(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    order = np.argsort(-scores, axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    powers = np.exp(scores - scores[:, :1])
    return np.einsum("qk,qkd->qd", powers / powers.cumsum(axis=1)[:, -1:], v[order])


def by_recursion_over_keys(q, k, v):
    def attend(k, v):
        if len(k) == 1:
            return q @ k[0] / np.sqrt(q.shape[1]), np.tile(v, (len(q), 1))
        half = len(k) // 2
        (lse_a, a), (lse_b, b) = attend(k[:half], v[:half]), attend(k[half:], v[half:])
        lse = np.logaddexp(lse_a, lse_b)
        return lse, np.exp(lse_a - lse)[:, None] * a + np.exp(lse_b - lse)[:, None] * b

    return attend(k, v)[1]


RIGHT = [
    by_scalar_loops,
    by_einsum,
    by_logsumexp,
    by_recursion_over_keys,
    by_sorting_keys,
]
