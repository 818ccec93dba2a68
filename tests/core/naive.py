"""Attention by plain Python loops over single numbers: slow, and hard to get wrong twice."""

import math

import numpy as np


def naive_attention(
    q, k, v, *, mask=None, bias=None, is_causal=False, q_offset=0, window=None, softcap=None,
    scale=None, dropout_mask=None, sink=None, head_gate=None,
):  # fmt: skip
    """Return out, weights and lse for rank-4 inputs."""
    (B, H, T_q, d_k), (_, H_kv, T_k, _), d_v = q.shape, k.shape, v.shape[-1]
    cells = (B, H, T_q, T_k)
    mask = np.broadcast_to(True if mask is None else mask, cells)
    bias = np.broadcast_to(0.0 if bias is None else bias, cells)
    dropout_mask = np.broadcast_to(1.0 if dropout_mask is None else dropout_mask, cells)
    sink = np.broadcast_to(-np.inf if sink is None else sink, (B, H))
    head_gate = np.broadcast_to(1.0 if head_gate is None else head_gate, (B, H))
    offset = np.broadcast_to(q_offset, (B,))
    left, right = window or (None, None)
    scale = 1 / math.sqrt(d_k) if scale is None else scale

    out, weights, lse = np.zeros((B, H, T_q, d_v)), np.zeros(cells), np.full(cells[:-1], -np.inf)
    for b, h, i in np.ndindex(B, H, T_q):
        g, at = h // (H // H_kv), i + offset[b]
        seen = {}
        for j in range(T_k):
            hidden = (
                not mask[b, h, i, j]
                or bias[b, h, i, j] == -np.inf
                or (is_causal and j > at)
                or (left is not None and j < at - left)
                or (right is not None and j > at + right)
            )
            if not hidden:
                score = scale * sum(q[b, h, i, c] * k[b, g, j, c] for c in range(d_k))
                score = score if softcap is None else softcap * math.tanh(score / softcap)
                seen[j] = score + bias[b, h, i, j]
        if seen or sink[b, h] != -np.inf:
            scores = [*seen.values(), sink[b, h]]
            top = max(scores)
            total = sum(math.exp(s - top) for s in scores)
            lse[b, h, i] = top + math.log(total)
            for j, s in seen.items():
                weights[b, h, i, j] = math.exp(s - top) / total
                out[b, h, i] += (
                    weights[b, h, i, j] * dropout_mask[b, h, i, j] * head_gate[b, h] * v[b, g, j]
                )
    return out, weights, lse
