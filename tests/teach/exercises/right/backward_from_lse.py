"""Right gradients of attention that computes its weights again from the lse."""

import numpy as np


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


RIGHT = [
    tiles,
    row_sum_of_the_weights,
    numpy_warns_of_infinity_less_infinity,
    visible_cells_only,
    lse_as_one_more_feature,
]
