from itertools import pairwise

import numpy as np


def textbook(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))


def einsum_row_by_row_mean(d_weights, weights):
    mean = np.einsum("...j,...j->...", d_weights, weights)
    return weights * (d_weights - mean[..., np.newaxis])


def two_terms(dP, P):
    PdP = P * dP
    return PdP - P * np.sum(PdP, axis=-1, keepdims=True)


def jacobian_of_each_row(d_weights, weights):
    d_scores = np.zeros_like(weights)
    for index in np.ndindex(weights.shape[:-1]):
        p = weights[index]
        jacobian = np.diag(p) - np.outer(p, p)
        d_scores[index] = jacobian @ d_weights[index]
    return d_scores


def all_jacobians_at_once(d_weights, weights):
    eye = np.eye(weights.shape[-1])
    jacobian = eye * weights[..., None] - weights[..., None] * weights[..., None, :]
    return np.einsum("...ij,...j->...i", jacobian, d_weights)


def jacobian_cell_by_cell(d_weights, weights):
    T_k = weights.shape[-1]
    d_scores = np.zeros(weights.shape)
    for *row, j in np.ndindex(weights.shape):
        row = tuple(row)
        for other in range(T_k):
            delta = 1.0 if j == other else 0.0
            slope = weights[row][other] * (delta - weights[row][j])
            d_scores[(*row, j)] += d_weights[row][other] * slope
    return d_scores


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


def recursion_down_to_rows(d_weights, weights):
    if weights.ndim == 1:
        return weights * (d_weights - weights.dot(d_weights))
    pairs = zip(d_weights, weights, strict=True)
    return np.stack([recursion_down_to_rows(g, p) for g, p in pairs])


def rows_in_two_axes(d_weights, weights):
    shape = weights.shape
    p, g = weights.reshape(-1, shape[-1]), d_weights.reshape(-1, shape[-1])
    dot = np.array([np.dot(p[i], g[i]) for i in range(len(p))])
    return ((g - dot[:, None]) * p).reshape(shape)


def matmul_of_row_and_column(d_weights, weights):
    dot = weights[..., None, :] @ d_weights[..., :, None]  # (..., 1, 1)
    return weights * (d_weights - dot[..., 0])


def complex_step(d_weights, weights):
    tiny, d_scores = 1e-30, np.zeros(weights.shape)
    sees_any = weights.any(axis=-1, keepdims=True)
    for j in range(weights.shape[-1]):
        shift = np.zeros(weights.shape, dtype=complex)
        shift[..., j] = 1j * tiny
        powers = weights * np.exp(shift)  # a score of log(weight), without the log of 0
        moved = powers / np.where(sees_any, powers.sum(axis=-1, keepdims=True), 1)
        d_scores[..., j] = (d_weights * moved.imag).sum(axis=-1) / tiny
    return d_scores


def in_longdouble(d_weights, weights):
    p, g = np.asarray(weights, np.longdouble), np.asarray(d_weights, np.longdouble)
    return (p * (g - (p * g).sum(-1, keepdims=True))).astype(np.float64)


def chain_of_small_steps(d_weights, weights):
    powers, total = weights, 1.0  # softmax does not mind a factor
    # weights = powers * inverse
    d_inverse = (d_weights * powers).sum(axis=-1, keepdims=True)
    d_powers = d_weights / total
    # inverse = 1 / total
    d_total = -d_inverse / total**2
    # total = sum of powers
    d_powers = d_powers + d_total * np.ones_like(powers)
    # powers = exp(scores)
    return d_powers * powers


def along_the_axis(d_weights, weights):
    both = np.concatenate([d_weights, weights], axis=-1)

    def row_backward(row):
        g, p = np.split(row, 2)
        return p * (g - p @ g)

    return np.apply_along_axis(row_backward, -1, both)


one_row = np.vectorize(lambda g, p: p * (g - np.inner(p, g)), signature="(n),(n)->(n)")


def differences_of_pairs(d_weights, weights):
    gaps = d_weights[..., :, None] - d_weights[..., None, :]
    return (weights[..., :, None] * weights[..., None, :] * gaps).sum(axis=-1)


def keys_first(d_weights, weights):
    p, g = np.moveaxis(weights, -1, 0), np.moveaxis(d_weights, -1, 0)
    dot = sum(p[j] * g[j] for j in range(len(p)))
    return np.moveaxis(p * (g - dot), 0, -1)


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


def slices_of_the_flat_arrays(d_weights, weights):
    T_k = weights.shape[-1]
    p, g = weights.flatten(), d_weights.flatten()
    for start, stop in pairwise(range(0, p.size + 1, T_k)):
        g[start:stop] -= p[start:stop] @ g[start:stop]
    g *= p
    return g.reshape(weights.shape)


def in_place_fortran(d_weights, weights):
    d_scores = np.array(d_weights, order="F")
    d_scores -= np.sum(weights * d_weights, axis=-1, keepdims=True)
    d_scores *= weights
    return d_scores


def mean_with_tensordot(d_weights, weights):
    ones = np.ones(weights.shape[-1])
    dot = np.tensordot(weights * d_weights, ones, axes=1)
    return weights * d_weights - np.einsum("...j,...->...j", weights, dot)


RIGHT = [
    textbook,
    einsum_row_by_row_mean,
    two_terms,
    jacobian_of_each_row,
    all_jacobians_at_once,
    jacobian_cell_by_cell,
    loops_over_numbers,
    recursion_down_to_rows,
    rows_in_two_axes,
    matmul_of_row_and_column,
    complex_step,
    in_longdouble,
    chain_of_small_steps,
    along_the_axis,
    one_row,
    differences_of_pairs,
    keys_first,
    visible_cells_only,
    reduceat_of_the_flat_product,
    slices_of_the_flat_arrays,
    in_place_fortran,
    mean_with_tensordot,
]
