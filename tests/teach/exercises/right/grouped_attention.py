"""Right ways to attend where several query heads share a key/value head."""

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def by_scalar_loops(q, k, v):
    B, H, T_q, d_k = q.shape
    _, H_kv, T_k, d_v = v.shape
    heads = np.zeros((B, H, T_q, d_v))
    for b, h, i in np.ndindex(B, H, T_q):
        n = h * H_kv // H
        scores = np.zeros(T_k)
        for j in range(T_k):
            for m in range(d_k):
                scores[j] += q[b, h, i, m] * k[b, n, j, m] / math.sqrt(d_k)
        largest = max(scores)
        total = sum(math.exp(s - largest) for s in scores)
        for j in range(T_k):
            for m in range(d_v):
                heads[b, h, i, m] += math.exp(scores[j] - largest) / total * v[b, n, j, m]
    return heads


def by_strides(q, k, v):
    B, H, T_q, d_k = q.shape
    H_kv = k.shape[1]

    def share(x):
        of_b, of_h, of_t, of_i = x.strides
        shape = (B, H_kv, H // H_kv, *x.shape[2:])
        return as_strided(x, shape, (of_b, of_h, 0, of_t, of_i))

    q = q.reshape(B, H_kv, H // H_kv, T_q, d_k)
    scores = np.matmul(q, share(k).transpose(0, 1, 2, 4, 3)) / np.sqrt(d_k)
    return np.matmul(_softmax(scores), share(v)).reshape(B, H, T_q, -1)


def by_kron(q, k, v):
    H, H_kv = q.shape[1], k.shape[1]
    reads = np.kron(np.eye(H_kv), np.ones((H // H_kv, 1)))  # (H, H_kv)
    k, v = np.einsum("hn,bnkd->bhkd", reads, k), np.einsum("hn,bnkd->bhkd", reads, v)
    return _softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v


def by_every_gth_head(q, k, v):
    G = q.shape[1] // k.shape[1]
    heads = np.empty(q.shape[:3] + v.shape[3:])
    for g in range(G):  # one query head of each group at a time
        scores = q[:, g::G] @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
        heads[:, g::G] = _softmax(scores) @ v
    return heads


def by_logsumexp(q, k, v):
    B, H, T_q, d_k = q.shape
    q = q.reshape(B, k.shape[1], -1, T_q, d_k)
    scores = np.einsum("bngqd,bnkd->bngqk", q, k) / np.sqrt(d_k)
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return np.einsum("bngqk,bnkd->bngqd", weights, v).reshape(B, H, T_q, -1)


RIGHT = [
    by_scalar_loops,
    by_strides,
    by_kron,
    by_logsumexp,
    by_every_gth_head,
]
