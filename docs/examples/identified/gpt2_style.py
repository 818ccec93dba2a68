"""Causal self-attention with one matrix for queries, keys and values, as in GPT-2."""

import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def causal_self_attention(x, c_attn_w, c_attn_b, c_proj_w, c_proj_b, n_head):
    """x: [n_seq, n_embd] -> [n_seq, n_embd]"""
    n_seq = x.shape[0]
    qkv = x @ c_attn_w + c_attn_b  # [n_seq, 3 * n_embd]
    q, k, v = (np.split(part, n_head, axis=-1) for part in np.split(qkv, 3, axis=-1))
    hidden = (1 - np.tri(n_seq)) * -1e10
    heads = [
        softmax(q @ k.T / np.sqrt(q.shape[-1]) + hidden) @ v
        for q, k, v in zip(q, k, v, strict=True)
    ]
    return np.hstack(heads) @ c_proj_w + c_proj_b
