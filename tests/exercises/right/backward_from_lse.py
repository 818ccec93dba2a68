from functools import partial
from typing import NamedTuple

import numpy as np


def whole_matrices(d_heads, q, k, v, heads, lse, mask):
    scale = 1 / np.sqrt(q.shape[-1])
    scores = scale * q @ k.swapaxes(-1, -2)
    exponent = np.where(mask, scores - np.where(np.isneginf(lse), 0, lse)[..., None], -np.inf)
    weights = np.exp(exponent)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (d_heads * heads).sum(axis=-1, keepdims=True))
    return scale * d_scores @ k, scale * d_scores.swapaxes(-1, -2) @ q, d_v


def row_by_row(d_heads, q, k, v, heads, lse, mask):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = q.shape[-1] ** -0.5
    for b, h, i in np.ndindex(lse.shape):
        if lse[b, h, i] == -np.inf:
            continue
        seen = mask[i]
        keys, values = k[b, h, seen], v[b, h, seen]
        p = np.exp(scale * keys @ q[b, h, i] - lse[b, h, i])
        g = d_heads[b, h, i]
        d_s = scale * p * (values @ g - g @ heads[b, h, i])
        d_q[b, h, i] = d_s @ keys
        d_k[b, h, seen] += np.outer(d_s, q[b, h, i])
        d_v[b, h, seen] += np.outer(p, g)
    return d_q, d_k, d_v


def blocks_of_rows(d_heads, q, k, v, heads, lse, mask, block=2):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    k_T, v_T = k.swapaxes(2, 3), v.swapaxes(2, 3)
    for start in range(0, q.shape[2], block):
        rows = slice(start, start + block)
        g, finite = d_heads[:, :, rows], np.isfinite(lse[:, :, rows])
        shift = np.where(finite, lse[:, :, rows], 0.0)[..., None]
        seen = mask[rows] & finite[..., None]
        s = q[:, :, rows] @ k_T / np.sqrt(q.shape[-1])
        p = np.exp(s - shift, out=np.zeros(s.shape), where=seen)
        row_dot = np.sum(g * heads[:, :, rows], axis=-1, keepdims=True)
        d_s = p * (g @ v_T - row_dot) / np.sqrt(q.shape[-1])
        d_q[:, :, rows] = d_s @ k
        d_k += d_s.swapaxes(2, 3) @ q[:, :, rows]
        d_v += p.swapaxes(2, 3) @ g
    return d_q, d_k, d_v


def blocks_of_columns(dO, Q, K, V, O, L, M, block=3):  # noqa: E741
    D = np.einsum("bhic,bhic->bhi", dO, O)
    L = np.where(np.isneginf(L), np.inf, L)  # e^(s - inf) = 0
    softmax_scale = 1 / np.sqrt(Q.shape[-1])
    dQ, dK, dV = np.zeros_like(Q), [], []
    for j in range(0, K.shape[2], block):
        Kj, Vj, Mj = K[:, :, j : j + block], V[:, :, j : j + block], M[:, j : j + block]
        S = softmax_scale * np.einsum("bhic,bhjc->bhij", Q, Kj)
        P = np.exp(np.where(Mj, S, -np.inf) - L[..., None])
        dP = np.einsum("bhic,bhjc->bhij", dO, Vj)
        dS = P * (dP - D[..., None])
        dV.append(np.einsum("bhij,bhic->bhjc", P, dO))
        dK.append(softmax_scale * np.einsum("bhij,bhic->bhjc", dS, Q))
        dQ += softmax_scale * np.einsum("bhij,bhjc->bhic", dS, Kj)
    return dQ, np.concatenate(dK, axis=2), np.concatenate(dV, axis=2)


def tiles(d_heads, q, k, v, heads, lse, mask):
    scaled_q = q / np.sqrt(q.shape[-1])
    dot = (d_heads * heads).sum(-1)
    d_q, d_k, d_v = (np.zeros(a.shape) for a in (q, k, v))
    for i in range(0, q.shape[2], 2):
        for j in range(0, k.shape[2], 2):
            rows, columns = np.s_[:, :, i : i + 2], np.s_[:, :, j : j + 2]
            tile_mask = mask[i : i + 2, j : j + 2]
            if not tile_mask.any():
                continue
            s = scaled_q[rows] @ k[columns].swapaxes(2, 3)
            p = np.zeros_like(s)
            cells = np.broadcast_to(tile_mask, s.shape)
            shift = np.broadcast_to(lse[rows][..., None], s.shape)
            p[cells] = np.exp(s[cells] - shift[cells])
            d_s = p * (d_heads[rows] @ v[columns].swapaxes(2, 3) - dot[rows][..., None])
            d_q[rows] += d_s @ k[columns] / np.sqrt(q.shape[-1])
            d_k[columns] += d_s.swapaxes(2, 3) @ scaled_q[rows]
            d_v[columns] += p.swapaxes(2, 3) @ d_heads[rows]
    return [d_q, d_k, d_v]


def loops_over_numbers(d_heads, q, k, v, heads, lse, mask):
    B, H, T_q, d = q.shape
    T_k, d_v_width = v.shape[2:]
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                g, o = d_heads[b, h, i].tolist(), heads[b, h, i].tolist()
                row_dot = sum(g[c] * o[c] for c in range(d_v_width))
                for j in range(T_k):
                    if not mask[i, j]:
                        continue
                    score = sum(q[b, h, i, c] * k[b, h, j, c] for c in range(d)) / d**0.5
                    p = np.exp(score - lse[b, h, i])
                    d_p = sum(g[c] * v[b, h, j, c] for c in range(d_v_width))
                    d_s = p * (d_p - row_dot) / d**0.5
                    for c in range(d):
                        d_q[b, h, i, c] += d_s * k[b, h, j, c]
                        d_k[b, h, j, c] += d_s * q[b, h, i, c]
                    for c in range(d_v_width):
                        d_v[b, h, j, c] += p * g[c]
    return d_q, d_k, d_v


def dot_for_each_head(d_heads, q, k, v, heads, lse, mask):
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    sees = mask.any(axis=1)
    for b in range(len(q)):
        for h in range(len(q[b])):
            s = np.full(mask.shape, -np.inf)
            s[mask] = (np.dot(q[b, h], k[b, h].T) / np.sqrt(q.shape[-1]))[mask]
            p = np.zeros(mask.shape)
            p[sees] = np.exp(s[sees] - lse[b, h, sees, None])
            d_p = np.dot(d_heads[b, h], v[b, h].T)
            d_s = p * (d_p - np.sum(d_heads[b, h] * heads[b, h], axis=1, keepdims=True))
            d_q[b, h] = np.dot(d_s, k[b, h]) / np.sqrt(q.shape[-1])
            d_k[b, h] = np.dot(d_s.T, q[b, h]) / np.sqrt(q.shape[-1])
            d_v[b, h] = np.dot(p.T, d_heads[b, h])
    return d_q, d_k, d_v


def row_sum_of_the_weights(d_heads, q, k, v, heads, lse, mask):
    with np.errstate(invalid="ignore", over="ignore"):
        p = np.exp(np.einsum("bhic,bhjc->bhij", q, k) / q.shape[-1] ** 0.5 - lse[..., None])
    p = np.where(mask, p, 0.0)
    d_p = np.einsum("bhic,bhjc->bhij", d_heads, v)
    d_s = p * (d_p - np.einsum("bhij,bhij->bhi", p, d_p)[..., None]) / q.shape[-1] ** 0.5
    d_q = np.einsum("bhij,bhjc->bhic", d_s, k)
    d_k = np.einsum("bhij,bhic->bhjc", d_s, q)
    d_v = np.einsum("bhij,bhic->bhjc", p, d_heads)
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v}


def numpy_warns_of_infinity_less_infinity(d_heads, q, k, v, heads, lse, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[:, :, ~mask] = -np.inf
    weights = np.nan_to_num(np.exp(scores - lse[..., None]))  # nan in a row that sees nothing
    d_scores = d_heads @ v.swapaxes(-1, -2) - (d_heads * heads).sum(-1, keepdims=True)
    d_scores *= weights / np.sqrt(q.shape[-1])
    d_q, d_k = d_scores @ k, d_scores.swapaxes(-1, -2) @ q
    return d_q, d_k, weights.swapaxes(-1, -2) @ d_heads


def softmax_once_more(d_heads, q, k, v, heads, lse, mask):
    scores = np.where(mask, q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]), -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = powers.sum(axis=-1, keepdims=True)
    p = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)
    d_p = d_heads @ v.transpose(0, 1, 3, 2)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return d_s @ k, d_s.transpose(0, 1, 3, 2) @ q, p.transpose(0, 1, 3, 2) @ d_heads


def visible_cells_only(d_heads, q, k, v, heads, lse, mask):
    i, j = np.argwhere(mask).T
    scale = 1 / np.sqrt(q.shape[-1])
    p = np.exp(scale * (q[:, :, i] * k[:, :, j]).sum(-1) - lse[:, :, i])  # (B, H, cells)
    d_p = (d_heads[:, :, i] * v[:, :, j]).sum(-1)
    d_s = scale * p * (d_p - (d_heads * heads).sum(-1)[:, :, i])
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    np.add.at(d_q, np.s_[:, :, i], d_s[..., None] * k[:, :, j])
    np.add.at(d_k, np.s_[:, :, j], d_s[..., None] * q[:, :, i])
    np.add.at(d_v, np.s_[:, :, j], p[..., None] * d_heads[:, :, i])
    return d_q, d_k, d_v


def rows_that_see_something(d_heads, q, k, v, heads, lse, mask):
    sees = mask.any(axis=-1)
    g, seen_q = d_heads[:, :, sees], q[:, :, sees] / np.sqrt(q.shape[-1])
    s = seen_q @ k.swapaxes(-1, -2) - lse[:, :, sees, None]
    p = np.exp(np.where(mask[sees], s, -np.inf))
    d_s = p * (g @ v.swapaxes(-1, -2) - (g * heads[:, :, sees]).sum(-1, keepdims=True))
    d_q = np.zeros_like(q)
    d_q[:, :, sees] = d_s @ k / np.sqrt(q.shape[-1])
    return d_q, d_s.swapaxes(-1, -2) @ seen_q, p.swapaxes(-1, -2) @ g


def keys_in_place(d_heads, q, k, v, heads, lse, mask):
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    row_dot = (d_heads * heads).sum(axis=-1)
    for j in range(k.shape[2]):
        rows = np.flatnonzero(mask[:, j])
        s = (q[:, :, rows] * k[:, :, j, None]).sum(-1) / np.sqrt(q.shape[-1])
        p = np.exp(s - lse[:, :, rows])
        g = d_heads[:, :, rows]
        d_s = p * ((g * v[:, :, j, None]).sum(-1) - row_dot[:, :, rows]) / np.sqrt(q.shape[-1])
        d_q[:, :, rows] += d_s[..., None] * k[:, :, j, None]
        d_k[:, :, j] += (d_s[..., None] * q[:, :, rows]).sum(2)
        d_v[:, :, j] += (p[..., None] * g).sum(2)
    return d_q, d_k, d_v


class FlashGrads(NamedTuple):
    d_q: np.ndarray
    d_k: np.ndarray
    d_v: np.ndarray


def in_longdouble(d_heads, q, k, v, heads, lse, mask):
    d_heads, q, k, v, heads = (a.astype(np.longdouble) for a in (d_heads, q, k, v, heads))
    scale = 1 / np.sqrt(np.longdouble(q.shape[-1]))
    lse = np.where(np.isinf(lse), 0, lse).astype(np.longdouble)
    s = scale * np.einsum("...ic,...jc->...ij", q, k) - lse[..., None]
    p = np.exp(np.where(mask, s, -np.inf))
    d_p = np.einsum("...ic,...jc->...ij", d_heads, v)
    d_s = p * (d_p - np.sum(d_heads * heads, -1, keepdims=True)) * scale
    d_q = np.einsum("...ij,...jc->...ic", d_s, k)
    d_k = np.einsum("...ij,...ic->...jc", d_s, q)
    d_v = np.einsum("...ij,...ic->...jc", p, d_heads)
    return FlashGrads(*(np.float64(grad) for grad in (d_q, d_k, d_v)))


def lse_as_one_more_feature(d_heads, q, k, v, heads, lse, mask):
    ones = np.ones((*k.shape[:3], 1))
    shift = np.where(mask.any(axis=1), lse, 0)[..., None]
    long_q = np.concatenate([q / np.sqrt(q.shape[-1]), -shift], axis=-1)
    p = mask * np.exp(np.where(mask, long_q @ np.concatenate([k, ones], -1).swapaxes(2, 3), 0))
    row_dot = np.sum(d_heads * heads, axis=-1, keepdims=True)
    long_g = np.concatenate([d_heads, -row_dot], axis=-1)
    d_s = p * (long_g @ np.concatenate([v, ones], -1).swapaxes(2, 3))
    d_k = d_s.swapaxes(2, 3) @ long_q[..., :-1]
    return d_s @ k / np.sqrt(q.shape[-1]), d_k, (p.swapaxes(2, 3) @ long_g)[..., :-1]


def recursion_over_rows(d_heads, q, k, v, heads, lse, mask):
    if len(mask) > 1:
        half = len(mask) // 2
        first, last = np.s_[:, :, :half], np.s_[:, :, half:]
        upper, lower = (
            recursion_over_rows(d_heads[s], q[s], k, v, heads[s], lse[s], mask[s[2]])
            for s in (first, last)
        )
        d_q = np.concatenate([upper[0], lower[0]], axis=2)
        return d_q, upper[1] + lower[1], upper[2] + lower[2]
    if not mask.any():
        return np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = 1 / np.sqrt(q.shape[-1])
    s = np.where(mask, scale * (q * k).sum(-1)[:, :, None], -np.inf)  # (B, H, 1, T_k)
    p = np.exp(s - lse[..., None])
    d_p = (d_heads * v).sum(-1)[:, :, None]
    d_s = scale * p * (d_p - (d_heads * heads).sum(-1, keepdims=True))
    columns = (a.swapaxes(2, 3) for a in (d_s, p))
    return d_s @ k, next(columns) * q, next(columns) * d_heads


def jacobian_of_each_row(d_heads, q, k, v, heads, lse, mask):
    d_s = np.zeros((*lse.shape, k.shape[2]))
    weights = np.zeros_like(d_s)
    for b, h, i in np.ndindex(lse.shape):
        s = k[b, h] @ q[b, h, i] / np.sqrt(q.shape[-1])
        if mask[i].any():
            weights[b, h, i] = np.exp(np.where(mask[i], s, -np.inf) - lse[b, h, i])
        p = weights[b, h, i]
        d_s[b, h, i] = (np.diag(p) - np.outer(p, p)) @ (v[b, h] @ d_heads[b, h, i])
    d_q_T = k.swapaxes(2, 3) @ d_s.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    d_k_T = q.swapaxes(2, 3) @ d_s / np.sqrt(q.shape[-1])
    return (
        d_q_T.swapaxes(2, 3),
        d_k_T.swapaxes(2, 3),
        (d_heads.swapaxes(2, 3) @ weights).swapaxes(2, 3),
    )


def powers_clipped(d_heads, q, k, v, heads, lse, mask):
    B, H, T_q, d = q.shape
    q3, k3, v3, g3, o3 = (a.reshape(B * H, *a.shape[2:]) for a in (q, k, v, d_heads, heads))
    exponent = q3 @ k3.transpose(0, 2, 1) / d**0.5 - lse.reshape(B * H, T_q, 1)
    p = np.exp(np.minimum(exponent, 1.0)) * mask  # a visible exponent is not above 0
    d_s = p * (g3 @ v3.transpose(0, 2, 1) - (g3 * o3).sum(2, keepdims=True)) / d**0.5
    d_k3, d_v3 = d_s.transpose(0, 2, 1) @ q3, p.transpose(0, 2, 1) @ g3
    return (d_s @ k3).reshape(q.shape), d_k3.reshape(k.shape), d_v3.reshape(v.shape)


RIGHT = [
    whole_matrices,
    row_by_row,
    blocks_of_rows,
    blocks_of_columns,
    tiles,
    loops_over_numbers,
    dot_for_each_head,
    row_sum_of_the_weights,
    numpy_warns_of_infinity_less_infinity,
    softmax_once_more,
    visible_cells_only,
    rows_that_see_something,
    keys_in_place,
    in_longdouble,
    lse_as_one_more_feature,
    recursion_over_rows,
    jacobian_of_each_row,
    powers_clipped,
    partial(blocks_of_rows, block=128),
    partial(blocks_of_columns, block=1),
]
