from functools import partial
from typing import NamedTuple

import numpy as np


def matmul_and_swapaxes(d_scores, q, k):
    scale = 1 / np.sqrt(q.shape[-1])
    return scale * d_scores @ k, scale * d_scores.swapaxes(-1, -2) @ q


def einsum(d_scores, q, k):
    root = q.shape[-1] ** 0.5
    d_q = np.einsum("bhij,bhjc->bhic", d_scores, k) / root
    d_k = np.einsum("bhij,bhic->bhjc", d_scores, q) / root
    return d_q, d_k


def loops_over_numbers(d_scores, q, k):
    B, H, T_q, d = q.shape
    T_k = k.shape[2]
    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(T_k):
                    for c in range(d):
                        d_q[b, h, i, c] += d_scores[b, h, i, j] * k[b, h, j, c] / d**0.5
                        d_k[b, h, j, c] += d_scores[b, h, i, j] * q[b, h, i, c] / d**0.5
    return d_q, d_k


def dot_for_each_head(dS, Q, K):
    dQ = np.empty_like(Q)
    dK = np.empty_like(K)
    for b in range(len(Q)):
        for h in range(len(Q[b])):
            dQ[b, h] = np.dot(dS[b, h], K[b, h])
            dK[b, h] = np.dot(dS[b, h].T, Q[b, h])
    dQ /= np.sqrt(Q.shape[-1])
    dK /= np.sqrt(Q.shape[-1])
    return dQ, dK


def tokens_in_place(d_scores, q, k):
    d_q, d_k = np.zeros_like(q), np.zeros_like(k)
    scaled = d_scores / np.sqrt(q.shape[-1])
    for i in range(q.shape[2]):
        for j in range(k.shape[2]):
            d_q[:, :, i] += scaled[:, :, i, j, None] * k[:, :, j]
            d_k[:, :, j] += scaled[:, :, i, j, None] * q[:, :, i]
    return d_q, d_k


def broadcast_and_sum(d_scores, q, k):
    d_product = d_scores[..., None] * q.shape[-1] ** -0.5
    d_q = (d_product * k[:, :, None]).sum(axis=3)
    d_k = (d_product * q[:, :, :, None]).sum(axis=2)
    return [d_q, d_k]


def scale_in_q(d_scores, q, k):
    scale = 1.0 / np.sqrt(np.float64(k.shape[-1]))
    scaled_q = q * scale  # scores = scaled_q k^T
    d_scaled_q = np.matmul(d_scores, k)
    d_k = np.matmul(np.transpose(d_scores, (0, 1, 3, 2)), scaled_q)
    return d_scaled_q * scale, d_k


def heads_in_one_axis(d_scores, q, k):
    B, H, T_q, T_k = d_scores.shape
    flat = d_scores.reshape(B * H, T_q, T_k)
    d_q = flat @ k.reshape(B * H, T_k, -1)
    d_k = flat.transpose(0, 2, 1) @ q.reshape(B * H, T_q, -1)
    return d_q.reshape(q.shape) / np.sqrt(q.shape[-1]), d_k.reshape(k.shape) / np.sqrt(k.shape[-1])


def tensordot_for_each_head(d_scores, q, k):
    d_q, d_k = [], []
    for g, one_q, one_k in zip(
        d_scores.reshape(-1, *d_scores.shape[2:]),
        q.reshape(-1, *q.shape[2:]),
        k.reshape(-1, *k.shape[2:]),
        strict=True,
    ):
        d_q.append(np.tensordot(g, one_k, axes=(1, 0)))
        d_k.append(np.tensordot(g, one_q, axes=(0, 0)))
    d = np.sqrt(q.shape[-1])
    return np.array(d_q).reshape(q.shape) / d, np.array(d_k).reshape(k.shape) / d


def comprehensions(d_scores, q, k):
    s = 1 / np.sqrt(q.shape[-1])
    d_q = np.stack([[s * g @ m for g, m in zip(*pair, strict=True)]
                    for pair in zip(d_scores, k, strict=True)])  # fmt: skip
    d_k = np.stack([[s * g.T @ m for g, m in zip(*pair, strict=True)]
                    for pair in zip(d_scores, q, strict=True)])  # fmt: skip
    return d_q, d_k


def in_longdouble(d_scores, q, k):
    d_scores, q, k = (a.astype(np.longdouble) for a in (d_scores, q, k))
    d_scores = d_scores / np.sqrt(np.longdouble(q.shape[-1]))
    d_q = np.einsum("...ij,...jc->...ic", d_scores, k)
    d_k = np.einsum("...ij,...ic->...jc", d_scores, q)
    return d_q.astype(np.float64), d_k.astype(np.float64)


class ScoresGrads(NamedTuple):
    d_q: np.ndarray
    d_k: np.ndarray


def own_named_tuple_of_transposed_views(d_scores, q, k):
    root = np.sqrt(q.shape[-1])
    d_q_T = k.swapaxes(2, 3) @ d_scores.swapaxes(2, 3) / root  # (B, H, d, T_q)
    d_k_T = q.swapaxes(2, 3) @ d_scores / root
    return ScoresGrads(d_q=d_q_T.swapaxes(2, 3), d_k=d_k_T.swapaxes(2, 3))


def dict_of_gradients(d_scores, q, k):
    def product_backward(d_product, left, right):
        return d_product @ right, (left.swapaxes(-1, -2) @ d_product).swapaxes(-1, -2)

    d_product = d_scores / np.sqrt(q.shape[-1])
    d_q, d_k = product_backward(d_product, q, k)
    return {"d_k": d_k, "d_q": d_q}


def one_block_matrix(d_scores, q, k):
    B, H, T_q, T_k = d_scores.shape
    both = np.zeros((B, H, T_q + T_k, T_q + T_k))
    both[..., :T_q, T_q:] = d_scores
    both[..., T_q:, :T_q] = d_scores.swapaxes(-1, -2)
    grads = both @ np.concatenate([q, k], axis=2) / np.sqrt(q.shape[-1])
    return grads[:, :, :T_q], grads[:, :, T_q:]


def add_at_every_cell(d_scores, q, k):
    b, h, i, j = np.indices(d_scores.shape).reshape(4, -1)
    g = d_scores.ravel()[:, None] / np.sqrt(q.shape[-1])
    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    np.add.at(d_q, (b, h, i), g * k[b, h, j])
    np.add.at(d_k, (b, h, j), g * q[b, h, i])
    return d_q, d_k


def one_unit_vector_at_a_time(d_scores, q, k):
    def scores(q, k):
        return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])

    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    for grad, forward in (d_q, lambda e: scores(e, k)), (d_k, lambda e: scores(q, e)):
        for cell in np.ndindex(grad.shape):  # linear in q and in k, so this is exact
            unit = np.zeros(grad.shape)
            unit[cell] = 1
            grad[cell] = np.sum(d_scores * forward(unit))
    return d_q, d_k


class MatchBackward:
    def __init__(self, order):
        self.order = order

    def __call__(self, d_scores, q, k):
        scale = np.reciprocal(np.sqrt(q.shape[-1]))
        d_q = np.zeros(q.shape, order=self.order)
        d_k = np.zeros(k.shape, order=self.order)
        np.matmul(d_scores, k, out=d_q)
        np.matmul(d_scores.swapaxes(-1, -2), q, out=d_k)
        return scale * d_q, scale * d_k


def with_options(d_scores, q, k, scale=None, path=False):
    scale = scale or q.shape[-1] ** -0.5
    d_q = np.einsum("bhij,bhjc,->bhic", d_scores, k, scale, optimize=path)
    d_k = np.einsum("bhij,bhic,->bhjc", d_scores, q, scale, optimize=path)
    return d_q, d_k


RIGHT = [
    matmul_and_swapaxes,
    einsum,
    loops_over_numbers,
    dot_for_each_head,
    tokens_in_place,
    broadcast_and_sum,
    scale_in_q,
    heads_in_one_axis,
    tensordot_for_each_head,
    comprehensions,
    in_longdouble,
    own_named_tuple_of_transposed_views,
    dict_of_gradients,
    one_block_matrix,
    add_at_every_cell,
    one_unit_vector_at_a_time,
    MatchBackward("F"),
    partial(with_options, path=True),
    lambda g, q, k: (
        g @ k / q.shape[3] ** 0.5,
        (q.swapaxes(2, 3) @ g).swapaxes(2, 3) / k.shape[3] ** 0.5,
    ),
]
