"""Grouped heads and rotary positions, as in Llama."""

import numpy as np


def rotate_half(x):
    x1, x2 = np.split(x, 2, axis=-1)
    return np.concatenate([-x2, x1], axis=-1)


def apply_rope(x, theta=10000.0):
    d = x.shape[-1]
    inv_freq = theta ** (-np.arange(d // 2) / d)
    angles = np.arange(x.shape[2])[:, None] * inv_freq
    angles = np.concatenate([angles, angles], axis=-1)
    return x * np.cos(angles) + rotate_half(x) * np.sin(angles)


def attention(xq, xk, xv):
    """xq: (bsz, n_heads, seqlen, head_dim); xk, xv: (bsz, n_kv_heads, seqlen, head_dim)."""
    xq, xk = apply_rope(xq), apply_rope(xk)
    n_rep = xq.shape[1] // xk.shape[1]
    xk, xv = np.repeat(xk, n_rep, axis=1), np.repeat(xv, n_rep, axis=1)
    scores = xq @ xk.swapaxes(2, 3) / np.sqrt(xq.shape[-1])
    T = scores.shape[-1]
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True) @ xv
