from functools import partial
from typing import NamedTuple

import numpy as np


def matmul_and_swapaxes(d_heads, q, k, v, weights):
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    d_scores = d_scores / np.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, d_v


def einsum_scaled_at_the_end(d_heads, q, k, v, weights):
    d_weights = np.einsum("bhic,bhjc->bhij", d_heads, v)
    dot = np.einsum("bhij,bhij->bhi", d_weights, weights)
    d_scores = np.einsum("bhij,bhij->bhij", weights, d_weights - dot[..., None])
    d_q = np.einsum("bhij,bhjc->bhic", d_scores, k)
    d_k = np.einsum("bhij,bhic->bhjc", d_scores, q)
    d_v = np.einsum("bhij,bhic->bhjc", weights, d_heads)
    scale = 1 / q.shape[-1] ** 0.5
    return scale * d_q, scale * d_k, d_v


def dot_for_each_head(dO, Q, K, V, P):
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    B, H, _, d = Q.shape
    for b in range(B):
        for h in range(H):
            dV[b, h] = P[b, h].T.dot(dO[b, h])
            dP = dO[b, h].dot(V[b, h].T)
            dS = P[b, h] * (dP - np.sum(P[b, h] * dP, axis=1, keepdims=True))
            dQ[b, h] = dS.dot(K[b, h]) / np.sqrt(d)
            dK[b, h] = dS.T.dot(Q[b, h]) / np.sqrt(d)
    return dQ, dK, dV


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


def queries_in_place(d_heads, q, k, v, weights):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = 1 / np.sqrt(q.shape[-1])
    for i in range(q.shape[2]):
        p, g = weights[:, :, i, :, None], d_heads[:, :, i, None]  # (B, H, T_k, 1), (B, H, 1, d_v)
        d_v += p * g
        d_p = (g * v).sum(-1, keepdims=True)
        d_s = p * (d_p - (p * d_p).sum(2, keepdims=True)) * scale
        d_q[:, :, i] += (d_s * k).sum(2)
        d_k += d_s * q[:, :, i, None]
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


def broadcast_and_sum(d_heads, q, k, v, weights):
    d_weights = (d_heads[:, :, :, None] * v[:, :, None]).sum(-1)
    d_scores = weights * d_weights
    d_scores = d_scores - weights * d_scores.sum(-1)[..., None]
    d_scores = d_scores / np.sqrt(q.shape[-1])
    d_q = (d_scores[..., None] * k[:, :, None]).sum(3)
    d_k = (d_scores[..., None] * q[:, :, :, None]).sum(2)
    d_v = (weights[..., None] * d_heads[:, :, :, None]).sum(2)
    return d_q, d_k, d_v


def scale_in_q(d_heads, q, k, v, weights):
    scale = 1 / np.sqrt(q.shape[-1])
    scaled_q = q * scale
    d_weights = np.matmul(d_heads, np.swapaxes(v, 2, 3))
    d_scores = weights * (d_weights - np.sum(d_weights * weights, -1, keepdims=True))
    d_scaled_q = np.matmul(d_scores, k)
    d_k = np.matmul(np.swapaxes(d_scores, 2, 3), scaled_q)
    return {
        "d_q": d_scaled_q * scale,
        "d_k": d_k,
        "d_v": np.matmul(np.swapaxes(weights, 2, 3), d_heads),
    }


def heads_in_one_axis(d_heads, q, k, v, weights):
    d_heads, q3, k3, v3, p = (a.reshape(-1, *a.shape[-2:]) for a in (d_heads, q, k, v, weights))
    d_p = d_heads @ v3.transpose(0, 2, 1)
    d_s = p * (d_p - (p * d_p).sum(2, keepdims=True)) / np.sqrt(q.shape[-1])
    grads = d_s @ k3, d_s.transpose(0, 2, 1) @ q3, p.transpose(0, 2, 1) @ d_heads
    return tuple(g.reshape(a.shape) for g, a in zip(grads, (q, k, v), strict=True))


class Node:
    """Tiny tape: every node knows its parents and how to hand them their share."""

    def __init__(self, value, parents=()):
        self.value, self.parents, self.grad = value, parents, 0.0

    def __matmul__(self, other):
        a, b = self.value, other.value
        back_a, back_b = lambda g: g @ b.swapaxes(-1, -2), lambda g: a.swapaxes(-1, -2) @ g
        return Node(a @ b, [(self, back_a), (other, back_b)])

    def swapped(self):
        return Node(self.value.swapaxes(-1, -2), [(self, lambda g: g.swapaxes(-1, -2))])

    def scaled(self, factor):
        return Node(self.value * factor, [(self, lambda g: g * factor)])

    def softmaxed(self, p):
        return Node(p, [(self, lambda g: p * (g - (g * p).sum(-1, keepdims=True)))])

    def pull(self, grad):
        self.grad = self.grad + grad
        for parent, back in self.parents:
            parent.pull(back(grad))


def tape(d_heads, q, k, v, weights):
    q, k, v = Node(q), Node(k), Node(v)
    scores = (q @ k.swapped()).scaled(1 / np.sqrt(q.value.shape[-1]))
    heads = scores.softmaxed(weights) @ v
    heads.pull(d_heads)
    return q.grad, k.grad, v.grad


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


def in_longdouble(d_heads, q, k, v, weights):
    def times(a, b):
        return np.einsum("...ij,...jk->...ik", a, b)

    d_heads, q, k, v, p = (a.astype(np.longdouble) for a in (d_heads, q, k, v, weights))
    d_p = times(d_heads, v.swapaxes(2, 3))
    d_s = (d_p - (d_p * p).sum(3, keepdims=True)) * p / np.sqrt(np.longdouble(q.shape[3]))
    grads = times(d_s, k), times(d_s.swapaxes(2, 3), q), times(p.swapaxes(2, 3), d_heads)
    return tuple(g.astype(float) for g in grads)


def comprehensions(d_heads, q, k, v, weights):
    def one_head(g, q, k, v, p):
        d_p = g @ v.T
        d_s = p * (d_p - (p * d_p).sum(axis=1)[:, None]) / np.sqrt(q.shape[1])
        return d_s @ k, d_s.T @ q, p.T @ g

    B, H = q.shape[:2]
    inputs = d_heads, q, k, v, weights
    grads = [[one_head(*(a[b, h] for a in inputs)) for h in range(H)] for b in range(B)]
    return tuple(
        np.stack([np.stack([of_head[n] for of_head in row]) for row in grads]) for n in range(3)
    )


class Grads(NamedTuple):
    d_q: np.ndarray
    d_k: np.ndarray
    d_v: np.ndarray


def recursion_over_leading_axes(d_heads, q, k, v, weights):
    if q.ndim > 2:
        each = zip(d_heads, q, k, v, weights, strict=True)
        parts = [recursion_over_leading_axes(*one) for one in each]
        return Grads(*(np.array(part) for part in zip(*parts, strict=True)))
    d_weights = np.inner(d_heads, v)
    dot = np.einsum("ij,ij->i", weights, d_weights)
    d_scores = (weights * d_weights - weights * dot.reshape(-1, 1)) / np.sqrt(len(k[0]))
    return np.dot(d_scores, k), np.dot(d_scores.T, q), np.dot(weights.T, d_heads)


class AttentionBackward:
    def __call__(self, d_heads, q, k, v, weights):
        d_weights, d_v = self.mix(d_heads, weights, v)
        d_scores = self.softmax(d_weights, weights)
        d_q, d_k = self.match(d_scores, q, k)
        return d_q, d_k, d_v

    def mix(self, d_heads, weights, v):
        return d_heads @ v.swapaxes(-1, -2), weights.swapaxes(-1, -2) @ d_heads

    def softmax(self, d_weights, weights):
        return weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True))

    def match(self, d_scores, q, k):
        scale = q.shape[-1] ** -0.5
        return scale * (d_scores @ k), scale * (d_scores.swapaxes(-1, -2) @ q)


def transposed_all_along(d_heads, q, k, v, weights):
    d_heads_T, q_T, k_T = (a.swapaxes(2, 3) for a in (d_heads, q, k))
    p_T = weights.swapaxes(2, 3)  # (B, H, T_k, T_q)
    d_p_T = v @ d_heads_T
    d_s_T = p_T * (d_p_T - (p_T * d_p_T).sum(axis=2, keepdims=True)) / np.sqrt(q.shape[3])
    d_q, d_k, d_v = k_T @ d_s_T, q_T @ d_s_T.swapaxes(2, 3), d_heads_T @ weights
    return d_q.swapaxes(2, 3), d_k.swapaxes(2, 3), d_v.swapaxes(2, 3)


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


def tensordot_and_fortran(d_heads, q, k, v, weights, order="C"):
    d_q, d_k, d_v = (np.zeros(a.shape, order=order) for a in (q, k, v))
    for at in np.ndindex(q.shape[:2]):
        p, g = weights[at], d_heads[at]
        d_p = np.tensordot(g, v[at], axes=([1], [1]))
        d_s = p * (d_p - np.sum(p * d_p, axis=1, keepdims=True))
        d_s /= np.sqrt(q.shape[-1])
        d_q[at] = np.tensordot(d_s, k[at], axes=([1], [0]))
        d_k[at] = np.tensordot(d_s, q[at], axes=([0], [0]))
        d_v[at] = np.tensordot(p, g, axes=([0], [0]))
    return d_q, d_k, d_v


def root_of_scale_in_q_and_k(d_heads, q, k, v, weights):
    fourth_root = q.shape[-1] ** -0.25
    q, k = q * fourth_root, k * fourth_root
    d_weights = d_heads @ v.swapaxes(-1, -2)
    row_dot = np.sum(d_weights * weights, axis=-1, keepdims=True)
    d_scores = weights * d_weights
    d_scores -= weights * row_dot
    d_q, d_k = d_scores @ k, d_scores.swapaxes(-1, -2) @ q
    d_q *= fourth_root
    d_k *= fourth_root
    return d_q, d_k, weights.swapaxes(-1, -2) @ d_heads


RIGHT = [
    matmul_and_swapaxes,
    einsum_scaled_at_the_end,
    dot_for_each_head,
    loops_over_numbers,
    queries_in_place,
    keys_in_place,
    jacobian_of_each_row,
    broadcast_and_sum,
    scale_in_q,
    heads_in_one_axis,
    tape,
    complex_step,
    in_longdouble,
    comprehensions,
    recursion_over_leading_axes,
    AttentionBackward(),
    transposed_all_along,
    add_at_visible_cells,
    partial(tensordot_and_fortran, order="F"),
    root_of_scale_in_q_and_k,
]
