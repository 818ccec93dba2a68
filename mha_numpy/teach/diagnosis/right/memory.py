"""Attention that remembers: with kept keys and values, and from block to block of keys."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.right.attention import attend, scores
from mha_numpy.teach.diagnosis.right.heads import merge_heads, split_heads
from mha_numpy.teach.diagnosis.right.layer import project_k, project_o, project_q, project_v


class Decoded(NamedTuple):
    """The output for the new token, and the keys and values of all."""

    out: Array  # (B, 1, D)
    k: Array  # (B, H_kv, T + 1, d)
    v: Array


def decode_step(
    x: Array, k_past: Array, v_past: Array, params: MultiHeadParams, num_heads: int
) -> Decoded:
    """Attend from one new token to all, whose keys and values (B, H_kv, T, d) were kept."""
    H_kv = k_past.shape[1]
    q = split_heads(project_q(x, params), num_heads)
    k = append(k_past, split_heads(project_k(x, params), H_kv))
    v = append(v_past, split_heads(project_v(x, params), H_kv))
    out = project_o(merge_heads(attend(q, k, v).heads), params)
    return Decoded(out, k, v)


def append(past: Array, new: Array) -> Array:
    """Put what is new behind the past."""
    return np.concatenate([past, new], axis=2)


def online_attention(q: Array, k: Array, v: Array, block: int) -> Array:
    """Attend with one head to `block` keys at a time: (T_q, d_k), (T_k, d_k), (T_k, d_v)."""
    T_q, T_k = len(q), len(k)
    largest = np.full((T_q, 1), -np.inf)
    total = np.zeros((T_q, 1))
    mixture = np.zeros((T_q, v.shape[-1]))
    for start in range(0, T_k, block):
        keys = slice(start, start + block)
        of_block = scores(q, k[keys])
        before, largest = largest, np.maximum(largest, of_block.max(axis=-1, keepdims=True))
        shrink = np.exp(before - largest)
        powers = np.exp(of_block - largest)
        total = shrink * total + powers.sum(axis=-1, keepdims=True)
        mixture = shrink * mixture + powers @ v[keys]
    return mixture / total
