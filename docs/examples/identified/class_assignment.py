"""An assignment: attention of H heads, for a batch of sentences."""

import numpy as np


def multi_head_attention(query, key, value, params, num_heads, attn_mask=None):
    """
    Inputs:
    - query: (N, S, E); key and value: (N, T, E)
    - params: dict with W_q, b_q, W_k, b_k, W_v, b_v, W_o, b_o
    - attn_mask: (S, T), where mask[i, j] == 0 means that token i must not look at token j

    Returns: output of shape (N, S, E)
    """
    N, S, E = query.shape
    T = value.shape[1]
    H = num_heads

    q = (query @ params["W_q"] + params["b_q"]).reshape(N, H, S, E // H)
    k = (key @ params["W_k"] + params["b_k"]).reshape(N, H, T, E // H)
    v = (value @ params["W_v"] + params["b_v"]).reshape(N, H, T, E // H)

    scores = np.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(E / H)
    if attn_mask is not None:
        scores = np.where(attn_mask == 0, -np.inf, scores)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights /= np.sum(weights, axis=-1, keepdims=True)

    y = np.matmul(weights, v)
    y = y.transpose(0, 2, 1, 3).reshape(N, S, E)
    return y @ params["W_o"] + params["b_o"]
