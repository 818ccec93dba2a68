"""Attention by blocks of keys, as kernels compute it: no row of scores is ever complete."""

import numpy as np


def flash_attention(q, k, v, block_size=2):
    """(seq_q, d), (seq_k, d), (seq_k, d) -> output (seq_q, d), logsumexp (seq_q,)."""
    scale = q.shape[-1] ** -0.5
    m = np.full(q.shape[0], -np.inf)
    total = np.zeros(q.shape[0])
    acc = np.zeros((q.shape[0], v.shape[-1]))
    for start in range(0, k.shape[0], block_size):
        s = scale * q @ k[start : start + block_size].T
        m_new = np.maximum(m, s.max(axis=-1))
        alpha = np.exp(m - m_new)
        p = np.exp(s - m_new[:, None])
        total = alpha * total + p.sum(axis=-1)
        acc = alpha[:, None] * acc + p @ v[start : start + block_size]
        m = m_new
    return acc / total[:, None], m + np.log(total)
