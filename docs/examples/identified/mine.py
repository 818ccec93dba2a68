"""Multi-head attention from a blog post, which gives other numbers than PyTorch's layer."""

import numpy as np


def attention(x, w_q, w_k, w_v, w_o, heads, mask=None):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, T, heads, -1).swapaxes(1, 2) for w in (w_q, w_k, w_v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(D)
    if mask is not None:
        scores = np.where(mask, -1e9, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).swapaxes(1, 2).reshape(B, T, -1) @ w_o
