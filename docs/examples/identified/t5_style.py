"""Self-attention with a learned bias per distance and no scale, as in T5's encoder."""

import numpy as np


def buckets_of(distance, num_buckets, max_distance):
    """Return the bucket of each distance key - query: near ones exactly, far ones by their log."""
    half = num_buckets // 2
    bucket = np.where(distance > 0, half, 0)
    distance = np.abs(distance)
    exact = half // 2
    far = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact)
    far = np.minimum(exact + (far * (half - exact)).astype(int), half - 1)
    return bucket + np.where(distance < exact, distance, far)


def t5_attention(q, k, v, rel_bias, max_distance=128):
    """q, k, v: (batch, heads, length, dim); rel_bias: (num_buckets, heads)."""
    distance = np.arange(k.shape[2])[None, :] - np.arange(q.shape[2])[:, None]
    bias = rel_bias[buckets_of(distance, len(rel_bias), max_distance)]  # (q_len, k_len, heads)
    scores = q @ k.transpose(0, 1, 3, 2) + bias.transpose(2, 0, 1)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True) @ v
