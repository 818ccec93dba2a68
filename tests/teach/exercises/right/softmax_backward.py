"""Right gradients of softmax."""

import numpy as np


def all_jacobians_at_once(d_weights, weights):
    eye = np.eye(weights.shape[-1])
    jacobian = eye * weights[..., None] - weights[..., None] * weights[..., None, :]
    return np.einsum("...ij,...j->...i", jacobian, d_weights)


def loops_over_numbers(d_weights, weights):
    T_k = weights.shape[-1]
    p, g = weights.reshape(-1, T_k), d_weights.reshape(-1, T_k)
    d_scores = np.empty(p.shape)
    for i in range(len(p)):
        dot = 0.0
        for j in range(T_k):
            dot += p[i][j] * g[i][j]
        for j in range(T_k):
            d_scores[i, j] = p[i, j] * (g[i, j] - dot)
    return d_scores.reshape(weights.shape)


def differences_of_pairs(d_weights, weights):
    gaps = d_weights[..., :, None] - d_weights[..., None, :]
    return (weights[..., :, None] * weights[..., None, :] * gaps).sum(axis=-1)


def visible_cells_only(d_weights, weights):
    row_of = np.arange(weights[..., 0].size).reshape(*weights.shape[:-1], 1)
    row_of = np.broadcast_to(row_of, weights.shape)
    seen = weights > 0
    dot = np.zeros(weights[..., 0].size)
    np.add.at(dot, row_of[seen], weights[seen] * d_weights[seen])
    d_scores = np.zeros_like(d_weights)
    d_scores[seen] = weights[seen] * (d_weights[seen] - dot[row_of[seen]])
    return d_scores


def reduceat_of_the_flat_product(d_weights, weights):
    product = (weights * d_weights).ravel()
    starts = np.arange(0, product.size, weights.shape[-1])
    dot = np.add.reduceat(product, starts)
    return (product - np.repeat(dot, weights.shape[-1]) * weights.ravel()).reshape(weights.shape)


RIGHT = [
    loops_over_numbers,
    all_jacobians_at_once,
    differences_of_pairs,
    visible_cells_only,
    reduceat_of_the_flat_product,
]
