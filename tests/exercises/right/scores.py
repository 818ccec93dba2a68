"""Right ways to match queries with keys."""

import math
from functools import partial

import numpy as np


def by_matmul(q, k):
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


def by_transpose(q, k):
    d_k = q.shape[-1]
    return np.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(d_k)


def by_scaled_queries(q, k):
    q = q * q.shape[-1] ** -0.5
    return q @ np.moveaxis(k, -1, -2)


def by_scaling_both(q, k):
    root = np.float64(q.shape[-1]) ** 0.25
    return (q / root) @ (k / root).swapaxes(2, 3)


def by_einsum(q, k):
    return np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(k.shape[-1])


def by_einsum_with_scale(q, k):
    return np.einsum("...qd,...kd,->...qk", q, k, 1 / math.sqrt(q.shape[-1]))


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


def by_dot_per_head(q, k):
    B, H, T_q, d_k = q.shape
    scores = np.empty((B, H, T_q, k.shape[2]))
    for b in range(B):
        for h in range(H):
            scores[b, h] = np.dot(q[b, h], k[b, h].T) / np.sqrt(d_k)
    return scores


def by_inner_per_head(q, k):
    scores = [[np.inner(q_h, k_h) for q_h, k_h in zip(q_b, k_b)] for q_b, k_b in zip(q, k)]  # noqa: B905
    return np.array(scores) / np.sqrt(q.shape[-1])


def by_vdot_per_cell(q, k):
    shape = (*q.shape[:3], k.shape[2])
    scores = np.empty(shape)
    for b, h, i, j in np.ndindex(shape):
        scores[b, h, i, j] = np.vdot(q[b, h, i], k[b, h, j])
    scores /= math.sqrt(q.shape[-1])
    return scores


def by_broadcasting(q, k):
    products = q[:, :, :, None, :] * k[:, :, None, :, :]
    return products.sum(axis=-1) / np.sqrt(q.shape[-1])


def by_mean_of_products(q, k):
    return np.mean(q[..., None, :] * k[..., None, :, :], axis=-1) * np.sqrt(q.shape[-1])


def by_outer_products(q, k):
    scores = np.zeros(q.shape[:-1] + (k.shape[-2],))  # noqa: RUF005
    for m in range(q.shape[-1]):
        scores += q[..., m][..., :, None] * k[..., m][..., None, :]
    return scores * (1 / np.sqrt(q.shape[-1]))


def by_tensordot_per_head(q, k):
    scale = 1.0 / math.sqrt(q.shape[-1])
    return scale * np.stack(
        [
            np.stack([np.tensordot(q[b, h], k[b, h], axes=(1, 1)) for h in range(q.shape[1])])
            for b in range(q.shape[0])
        ]
    )


def by_tensordot_and_diagonal(q, k):
    B, H = q.shape[:2]
    all_pairs = np.tensordot(q, k, axes=(3, 3))  # (B, H, T_q, B, H, T_k)
    b, h = np.ogrid[:B, :H]
    return all_pairs[b, h, :, b, h] / np.sqrt(q.shape[-1])


def by_loop_over_queries(q, k):
    columns = [(k @ q[:, :, i, :, None])[..., 0] / np.sqrt(q.shape[-1]) for i in range(q.shape[2])]
    return np.stack(columns, axis=2)


def by_loop_over_keys(q, k):
    q = q / np.sqrt(q.shape[-1])
    scores = np.empty((*q.shape[:-1], k.shape[-2]))
    for j in range(k.shape[-2]):
        scores[..., j] = (q * k[..., j : j + 1, :]).sum(-1)
    return scores


def by_out_argument(q, k):
    scores = np.empty(q.shape[:-1] + k.shape[-2:-1])
    np.matmul(q, k.swapaxes(-1, -2), out=scores)
    np.divide(scores, np.sqrt(q.shape[-1]), out=scores)
    return scores


def as_transposed_view(q, k):
    return (k @ q.swapaxes(-1, -2) / np.sqrt(q.shape[-1])).swapaxes(-1, -2)


def in_fortran_order(q, k):
    return np.asfortranarray(q @ k.transpose(0, 1, 3, 2)) / np.sqrt(q.shape[-1])


def by_merging_batch_and_heads(q, k):
    B, H, T_q, d_k = q.shape
    q, k = q.reshape(B * H, T_q, d_k), k.reshape(B * H, -1, d_k)
    return (q @ k.transpose(0, 2, 1)).reshape(B, H, T_q, -1) / np.sqrt(d_k)


def by_vectorize(q, k):
    match = np.vectorize(lambda a, b: a @ b.T / np.sqrt(a.shape[1]), signature="(i,d),(j,d)->(i,j)")
    return match(q, k)


def by_longdouble(q, k):
    q, k = q.astype(np.longdouble), k.astype(np.longdouble)
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(np.longdouble(q.shape[-1]))
    return scores.astype(np.float64)


def by_math_fsum(q, k):
    keys, queries = k.tolist(), q.tolist()
    d_k = q.shape[-1]
    return np.array(
        [
            [
                [[math.fsum(map(float.__mul__, a, b)) / math.sqrt(d_k) for b in ks] for a in qs]
                for qs, ks in zip(queries[n], keys[n], strict=True)
            ]
            for n in range(len(queries))
        ]
    )


def by_recursion_over_features(q, k):
    def dot(a, b):
        if a.shape[-1] == 1:
            return a * b.swapaxes(-1, -2)
        half = a.shape[-1] // 2
        return dot(a[..., :half], b[..., :half]) + dot(a[..., half:], b[..., half:])

    return dot(q, k) / np.sqrt(q.shape[-1])


class ScaledDotProduct:
    def __init__(self, power=-0.5):
        self.power = power

    def __call__(self, q, k):
        self.scale = q.shape[-1] ** self.power
        return self.scale * (q @ k.swapaxes(-1, -2))


def _scores(subscripts, q, k):
    return np.einsum(subscripts, q, k, optimize=True) / np.sqrt(q.shape[-1])


by_class = ScaledDotProduct()
by_partial = partial(_scores, "bhqd, bhkd -> bhqk")

RIGHT = [
    by_matmul, by_transpose, by_scaled_queries, by_scaling_both, by_einsum, by_einsum_with_scale,
    by_scalar_loops, by_dot_per_head, by_inner_per_head, by_vdot_per_cell, by_broadcasting,
    by_mean_of_products, by_outer_products, by_tensordot_per_head, by_tensordot_and_diagonal,
    by_loop_over_queries, by_loop_over_keys, by_out_argument, as_transposed_view, in_fortran_order,
    by_merging_batch_and_heads, by_vectorize, by_longdouble, by_math_fsum,
    by_recursion_over_features, by_class, by_partial,
]  # fmt: skip
