"""Right gradients of attention where several query heads share a key/value head."""

import numpy as np


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


RIGHT = [
    loops_over_numbers,
    group_folded_into_the_queries,
    add_at_kv_heads,
    reduceat_over_heads,
    keys_in_place,
]
