"""Right gradients of attention with many heads."""

import numpy as np


def loops_over_numbers(d_heads, q, k, v, weights):
    B, H, T_q, T_k = weights.shape
    d_k_width, d_v_width = q.shape[3], v.shape[3]
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                p = weights[b, h, i].tolist()
                g = [
                    sum(d_heads[b, h, i, c] * v[b, h, j, c] for c in range(d_v_width))
                    for j in range(T_k)
                ]
                dot = sum(p[j] * g[j] for j in range(T_k))
                for j in range(T_k):
                    d_score = p[j] * (g[j] - dot) / d_k_width**0.5
                    for c in range(d_v_width):
                        d_v[b, h, j, c] += p[j] * d_heads[b, h, i, c]
                    for c in range(d_k_width):
                        d_q[b, h, i, c] += d_score * k[b, h, j, c]
                        d_k[b, h, j, c] += d_score * q[b, h, i, c]
    return d_q, d_k, d_v


def keys_in_place(d_heads, q, k, v, weights):
    heads = weights @ v
    dot = (d_heads * heads).sum(axis=-1)  # of weights and d_weights, without either
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for j in range(k.shape[2]):
        p = weights[..., j]
        d_p = np.einsum("bhic,bhc->bhi", d_heads, v[:, :, j])
        d_s = p * (d_p - dot) / np.sqrt(q.shape[-1])
        d_q += d_s[..., None] * k[:, :, j, None]
        d_k[:, :, j] = np.einsum("bhi,bhic->bhc", d_s, q)
        d_v[:, :, j] = np.einsum("bhi,bhic->bhc", p, d_heads)
    return d_q, d_k, d_v


def jacobian_of_each_row(d_heads, q, k, v, weights):
    d_weights = d_heads @ v.transpose(0, 1, 3, 2)
    d_scores = np.empty_like(weights)
    for b, h, i in np.ndindex(weights.shape[:3]):
        p = weights[b, h, i].reshape(-1, 1)
        jacobian = np.diagflat(p) - p @ p.T
        d_scores[b, h, i] = d_weights[b, h, i] @ jacobian
    d_scores *= q.shape[-1] ** -0.5
    d_q = d_scores @ k
    d_k = d_scores.transpose(0, 1, 3, 2) @ q
    d_v = weights.transpose(0, 1, 3, 2) @ d_heads
    return [d_q, d_k, d_v]


def complex_step(d_heads, q, k, v, weights):
    tiny = 1e-40
    grads = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for at in np.ndindex(q.shape[:2]):
        arrays, p = [a[at] for a in (q, k, v)], weights[at]
        for n, grad in enumerate(grads):
            for cell in np.ndindex(grad[at].shape):
                moved = [a.astype(complex) for a in arrays]
                moved[n][cell] += 1j * tiny
                change = moved[0] @ moved[1].T - arrays[0] @ arrays[1].T
                powers = p * np.exp(change.imag * 1j / np.sqrt(q.shape[-1]))
                total = powers.sum(axis=1, keepdims=True)
                heads = powers / np.where(total == 0, 1, total) @ moved[2]
                grad[at][cell] = (d_heads[at] * heads.imag).sum() / tiny
    return grads


def add_at_visible_cells(d_heads, q, k, v, weights):
    b, h, i, j = np.nonzero(weights)
    p = weights[b, h, i, j]
    d_p = (d_heads[b, h, i] * v[b, h, j]).sum(axis=1)
    dot = np.zeros(weights.shape[:3])
    np.add.at(dot, (b, h, i), p * d_p)
    d_s = p * (d_p - dot[b, h, i]) / np.sqrt(q.shape[-1])
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    np.add.at(d_q, (b, h, i), d_s[:, None] * k[b, h, j])
    np.add.at(d_k, (b, h, j), d_s[:, None] * q[b, h, i])
    np.add.at(d_v, (b, h, j), p[:, None] * d_heads[b, h, i])
    return d_q, d_k, d_v


RIGHT = [
    loops_over_numbers,
    jacobian_of_each_row,
    complex_step,
    keys_in_place,
    add_at_visible_cells,
]
