from functools import partial
from typing import NamedTuple

import numpy as np


def repeat_then_sum(d_heads, q, k, v, weights):
    B, H, T_q, d = q.shape
    H_kv, T_k = k.shape[1:3]
    G = H // H_kv
    k_all, v_all = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ v_all.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    d_scores = d_scores / np.sqrt(d)
    d_q, d_k = d_scores @ k_all, d_scores.swapaxes(-1, -2) @ q
    d_k = d_k.reshape(B, H_kv, G, T_k, -1).sum(axis=2)
    d_v = d_v.reshape(B, H_kv, G, T_k, -1).sum(axis=2)
    return d_q, d_k, d_v


def five_axes(d_heads, q, k, v, weights):
    B, H, T_q, d_k = q.shape
    shape = (B, k.shape[1], H // k.shape[1], T_q, -1)
    d_heads, q5, p = d_heads.reshape(shape), q.reshape(shape), weights.reshape(shape)
    k5, v5 = k[:, :, None], v[:, :, None]
    d_p = d_heads @ v5.swapaxes(-1, -2)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) / d_k**0.5
    d_q = (d_s @ k5).reshape(q.shape)
    return d_q, (d_s.swapaxes(-1, -2) @ q5).sum(2), (p.swapaxes(-1, -2) @ d_heads).sum(2)


def einsum_over_the_group(d_heads, q, k, v, weights):
    B, H, T_q, d = q.shape
    n = k.shape[1]
    g, q5, p = (a.reshape(B, n, H // n, T_q, a.shape[-1]) for a in (d_heads, q, weights))
    d_p = np.einsum("bngic,bnjc->bngij", g, v)
    d_s = p * (d_p - np.einsum("bngij,bngij->bngi", p, d_p)[..., None])
    d_q = np.einsum("bngij,bnjc->bngic", d_s, k) / np.sqrt(d)
    d_k = np.einsum("bngij,bngic->bnjc", d_s, q5) / np.sqrt(d)
    return d_q.reshape(q.shape), d_k, np.einsum("bngij,bngic->bnjc", p, g)


def loop_over_query_heads(dO, Q, K, V, P):
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    group = Q.shape[1] // K.shape[1]
    for h in range(Q.shape[1]):
        kv = h // group
        dP = dO[:, h] @ V[:, kv].transpose(0, 2, 1)
        dS = P[:, h] * (dP - np.sum(dP * P[:, h], axis=-1, keepdims=True)) / np.sqrt(Q.shape[-1])
        dQ[:, h] = dS @ K[:, kv]
        dK[:, kv] += dS.transpose(0, 2, 1) @ Q[:, h]
        dV[:, kv] += P[:, h].transpose(0, 2, 1) @ dO[:, h]
    return dQ, dK, dV


def loop_over_kv_heads(d_heads, q, k, v, weights):
    G = q.shape[1] // k.shape[1]
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for j in range(k.shape[1]):
        group = slice(j * G, (j + 1) * G)
        p, g = weights[:, group], d_heads[:, group]
        d_p = g @ v[:, j, None].swapaxes(2, 3)
        d_s = p * (d_p - (p * d_p).sum(axis=3, keepdims=True)) * q.shape[3] ** -0.5
        d_q[:, group] = d_s @ k[:, j, None]
        d_k[:, j] = (d_s.swapaxes(2, 3) @ q[:, group]).sum(axis=1)
        d_v[:, j] = (p.swapaxes(2, 3) @ g).sum(axis=1)
    return d_q, d_k, d_v


def loops_over_numbers(d_heads, q, k, v, weights):
    B, H, T_q, T_k = weights.shape
    G = H // k.shape[1]
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for b in range(B):
        for h in range(H):
            n = h // G
            for i in range(T_q):
                g = d_heads[b, h, i].tolist()
                d_p = [sum(x * y for x, y in zip(g, row, strict=True)) for row in v[b, n].tolist()]
                dot = sum(weights[b, h, i, j] * d_p[j] for j in range(T_k))
                for j in range(T_k):
                    p = weights[b, h, i, j]
                    d_s = p * (d_p[j] - dot) / q.shape[3] ** 0.5
                    for c in range(q.shape[3]):
                        d_q[b, h, i, c] += d_s * k[b, n, j, c]
                        d_k[b, n, j, c] += d_s * q[b, h, i, c]
                    for c in range(v.shape[3]):
                        d_v[b, n, j, c] += p * g[c]
    return d_q, d_k, d_v


def group_folded_into_the_queries(d_heads, q, k, v, weights):
    """Use that a group's queries only stand below each other: G * T_q queries for one head."""
    B, H_kv = k.shape[:2]
    g, long_q, p = (a.reshape(B, H_kv, -1, a.shape[-1]) for a in (d_heads, q, weights))
    d_p = g @ v.swapaxes(-1, -2)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    d_long_q, d_k, d_v = d_s @ k, d_s.swapaxes(-1, -2) @ long_q, p.swapaxes(-1, -2) @ g
    return d_long_q.reshape(q.shape), d_k, d_v


def add_at_kv_heads(d_heads, q, k, v, weights):
    of_head = np.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    scale = 1 / np.sqrt(q.shape[-1])
    scaled_q = scale * q
    d_p = np.einsum("bhic,bhjc->bhij", d_heads, v[:, of_head])
    d_s = weights * (d_p - np.sum(weights * d_p, axis=-1, keepdims=True))
    d_q = scale * np.einsum("bhij,bhjc->bhic", d_s, np.take(k, of_head, axis=1))
    d_k, d_v = np.zeros_like(k), np.zeros_like(v)
    np.add.at(d_k, (slice(None), of_head), np.einsum("bhij,bhic->bhjc", d_s, scaled_q))
    np.add.at(d_v, (slice(None), of_head), np.einsum("bhij,bhic->bhjc", weights, d_heads))
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v}


def reduceat_over_heads(d_heads, q, k, v, weights):
    G = q.shape[1] // k.shape[1]
    k_all = np.kron(k, np.ones((1, G, 1, 1))) if G > 1 else k
    v_all = np.kron(v, np.ones((1, G, 1, 1))) if G > 1 else v
    d_p = np.matmul(d_heads, v_all.transpose(0, 1, 3, 2))
    pd_p = weights * d_p
    d_s = (pd_p - weights * pd_p.sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    starts = np.arange(0, q.shape[1], G)
    d_k = np.add.reduceat(d_s.transpose(0, 1, 3, 2) @ q, starts, axis=1)
    d_v = np.add.reduceat(weights.transpose(0, 1, 3, 2) @ d_heads, starts, axis=1)
    return [d_s @ k_all, d_k, d_v]


def jacobian_of_each_row(d_heads, q, k, v, weights):
    G = q.shape[1] // k.shape[1]
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b, h, i in np.ndindex(q.shape[:3]):
        p, g, n = weights[b, h, i], d_heads[b, h, i], h // G
        jacobian = np.diag(p) - np.outer(p, p)
        d_s = jacobian @ (v[b, n] @ g) / np.sqrt(q.shape[-1])
        d_q[b, h, i] = d_s @ k[b, n]
        d_k[b, n] += np.outer(d_s, q[b, h, i])
        d_v[b, n] += np.outer(p, g)
    return d_q, d_k, d_v


class Var:
    def __init__(self, value, *parents):
        self.value, self.parents, self.grad = value, parents, None

    def receive(self, grad):
        self.grad = grad if self.grad is None else self.grad + grad
        for parent, pull in self.parents:
            parent.receive(pull(grad))


def transpose(a):
    return np.swapaxes(a, -1, -2)


def shared(x, G):
    B, H_kv, T, d = x.value.shape
    return Var(np.repeat(x.value, G, 1), (x, lambda g: g.reshape(B, H_kv, G, T, d).sum(2)))


def product_with_transposed(a, b):
    return Var(
        a.value @ transpose(b.value),
        (a, lambda g: g @ b.value),
        (b, lambda g: transpose(g) @ a.value),
    )


def tape(d_heads, q, k, v, weights):
    q, k, v = Var(q), Var(k), Var(v)
    G = q.value.shape[1] // k.value.shape[1]
    scaled_q = Var(q.value / q.value.shape[-1] ** 0.5, (q, lambda g: g / q.value.shape[-1] ** 0.5))
    scores = product_with_transposed(scaled_q, shared(k, G))
    p = Var(weights, (scores, lambda g: weights * (g - (weights * g).sum(-1)[..., None])))
    v_T = shared(v, G)
    v_T = Var(transpose(v_T.value), (v_T, transpose))
    product_with_transposed(p, v_T).receive(d_heads)
    return q.grad, k.grad, v.grad


def in_longdouble(d_heads, q, k, v, weights):
    G = q.shape[1] // k.shape[1]
    d_heads, q, k, v, p = (np.asarray(a, np.longdouble) for a in (d_heads, q, k, v, weights))
    k_all, v_all = (np.concatenate([a[:, h // G, None] for h in range(q.shape[1])], axis=1)
                    for a in (k, v))  # fmt: skip
    d_p = np.einsum("bhic,bhjc->bhij", d_heads, v_all)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True))
    d_s /= np.sqrt(np.longdouble(q.shape[-1]))
    d_k = np.einsum("bhij,bhic->bhjc", d_s, q)
    d_v = np.einsum("bhij,bhic->bhjc", p, d_heads)
    grads = [np.einsum("bhij,bhjc->bhic", d_s, k_all)]
    grads += [sum(a[:, g::G] for g in range(G)) for a in (d_k, d_v)]
    return tuple(grad.astype(np.float64) for grad in grads)


class GroupedGrads(NamedTuple):
    d_q: np.ndarray
    d_k: np.ndarray
    d_v: np.ndarray


def split_into_groups(d_heads, q, k, v, weights):
    H_kv = k.shape[1]
    parts = []
    for j, (g, one_q, p) in enumerate(
        zip(*(np.split(a, H_kv, axis=1) for a in (d_heads, q, weights)), strict=True)
    ):
        heads = np.einsum("bgij,bjc->bgic", p, v[:, j])
        row = (g * heads).sum(-1, keepdims=True)  # of weights and d_weights
        d_s = p * (np.einsum("bgic,bjc->bgij", g, v[:, j]) - row) / np.sqrt(q.shape[-1])
        parts.append((
            np.einsum("bgij,bjc->bgic", d_s, k[:, j]),
            np.einsum("bgij,bgic->bjc", d_s, one_q)[:, None],
            np.einsum("bgij,bgic->bjc", p, g)[:, None],
        ))  # fmt: skip
    return GroupedGrads(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def broadcast_without_a_copy(d_heads, q, k, v, weights):
    B, H, T_q, T_k = weights.shape
    H_kv = k.shape[1]

    def view(a):
        wide = np.broadcast_to(a[:, :, None], (B, H_kv, H // H_kv, *a.shape[2:]))
        return wide.reshape(B, H, *a.shape[2:])

    d_v = (weights[..., None] * d_heads[:, :, :, None]).sum(2)
    d_p = (d_heads[:, :, :, None] * view(v)[:, :, None]).sum(-1)
    d_s = weights * (d_p - (weights * d_p).sum(-1, keepdims=True))
    d_q = (d_s[..., None] * view(k)[:, :, None]).sum(3) / np.sqrt(q.shape[-1])
    d_k = (d_s[..., None] * q[:, :, :, None]).sum(2) / np.sqrt(q.shape[-1])
    d_k, d_v = (np.sum(np.split(a, H_kv, axis=1), axis=2).swapaxes(0, 1) for a in (d_k, d_v))
    return d_q, d_k, d_v


def keys_in_place(d_heads, q, k, v, weights):
    B, H, _, d = q.shape
    H_kv = k.shape[1]
    owner = np.arange(H) // (H // H_kv)
    belongs = np.equal.outer(np.arange(H_kv), owner).astype(np.float64)
    row = (d_heads * (weights @ v[:, owner])).sum(-1)
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for j in range(k.shape[2]):
        d_p = (d_heads * v[:, owner, j, None]).sum(-1)
        d_s = weights[..., j] * (d_p - row) / np.sqrt(d)
        d_q += d_s[..., None] * k[:, owner, j, None]
        d_k[:, :, j] = belongs @ (d_s[..., None] * q).sum(axis=2)
        d_v[:, :, j] = belongs @ (weights[..., j, None] * d_heads).sum(axis=2)
    return d_q, d_k, d_v


def one_group(d_heads, q, k, v, weights):
    d_p = np.tensordot(d_heads, v, axes=(2, 1))  # (G, T_q, T_k)
    d_s = weights * (d_p - np.sum(weights * d_p, axis=2, keepdims=True)) / np.sqrt(k.shape[1])
    d_k = np.tensordot(d_s, q, axes=([0, 1], [0, 1]))
    d_v = np.tensordot(weights, d_heads, axes=([0, 1], [0, 1]))
    return np.tensordot(d_s, k, axes=(2, 0)), d_k, d_v


def comprehensions(d_heads, q, k, v, weights, backward=one_group):
    B, H_kv = k.shape[:2]
    d_heads, q5, p = (a.reshape(B, H_kv, -1, *a.shape[2:]) for a in (d_heads, q, weights))
    grads = [[backward(d_heads[b, j], q5[b, j], k[b, j], v[b, j], p[b, j]) for j in range(H_kv)]
             for b in range(B)]  # fmt: skip
    d_q, d_k, d_v = (np.array([[g[n] for g in row] for row in grads]) for n in range(3))
    return d_q.reshape(q.shape), d_k, np.asfortranarray(d_v)


RIGHT = [
    repeat_then_sum,
    five_axes,
    einsum_over_the_group,
    loop_over_query_heads,
    loop_over_kv_heads,
    loops_over_numbers,
    group_folded_into_the_queries,
    add_at_kv_heads,
    reduceat_over_heads,
    jacobian_of_each_row,
    tape,
    in_longdouble,
    split_into_groups,
    broadcast_without_a_copy,
    keys_in_place,
    partial(comprehensions, backward=one_group),
]
