"""Right ways to match queries with keys."""

import numpy as np


def by_scalar_loops(q, k):
    B, H, T_q, d_k = q.shape
    T_k = k.shape[2]
    scores = np.zeros((B, H, T_q, T_k))
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(T_k):
                    total = 0.0
                    for m in range(d_k):
                        total += q[b, h, i, m] * k[b, h, j, m]
                    scores[b, h, i, j] = total / d_k**0.5
    return scores


def by_mean_of_products(q, k):
    return np.mean(q[..., None, :] * k[..., None, :, :], axis=-1) * np.sqrt(q.shape[-1])


def by_tensordot_and_diagonal(q, k):
    B, H = q.shape[:2]
    all_pairs = np.tensordot(q, k, axes=(3, 3))  # (B, H, T_q, B, H, T_k)
    b, h = np.ogrid[:B, :H]
    return all_pairs[b, h, :, b, h] / np.sqrt(q.shape[-1])


def by_out_argument(q, k):
    scores = np.empty(q.shape[:-1] + k.shape[-2:-1])
    np.matmul(q, k.swapaxes(-1, -2), out=scores)
    np.divide(scores, np.sqrt(q.shape[-1]), out=scores)
    return scores


def by_recursion_over_features(q, k):
    def dot(a, b):
        if a.shape[-1] == 1:
            return a * b.swapaxes(-1, -2)
        half = a.shape[-1] // 2
        return dot(a[..., :half], b[..., :half]) + dot(a[..., half:], b[..., half:])

    return dot(q, k) / np.sqrt(q.shape[-1])


RIGHT = [
    by_scalar_loops,
    by_out_argument,
    by_mean_of_products,
    by_tensordot_and_diagonal,
    by_recursion_over_features,
]
