"""Right gradients of the scores."""

import numpy as np


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


RIGHT = [
    loops_over_numbers,
    one_block_matrix,
    add_at_every_cell,
    one_unit_vector_at_a_time,
    dict_of_gradients,
]
