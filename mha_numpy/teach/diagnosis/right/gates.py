"""Gradients of what multiplies weights and heads: dropout, gates, and the importance of a head."""

import numpy as np

from mha_numpy.dtypes import Array


def strongest_keys(weights: Array) -> Array:
    """Return for each query (H, T_q) the number of the key with the largest weight."""
    return weights.argmax(axis=2)


def dropout_backward(d_dropped: Array, keep: Array, p: float) -> Array:
    """Pull back through dropout, which enlarged the weights that it kept."""
    return d_dropped * keep / (1 - p)


def d_head_gate(d_gated: Array, heads: Array) -> Array:
    """Return the gradient (H,) of the gate in heads * gate[:, None, None]."""
    d_gates = d_gated * heads  # (B, H, T, d)
    return d_gates.sum(axis=(0, 2, 3))


def head_importance(d_gated: Array, heads: Array) -> Array:
    """Return the mean over sequences of each one's absolute gate gradient: (H,)."""
    shares = d_gated * heads  # (B, H, T, d)
    of_each = shares.sum(axis=(2, 3))  # (B, H)
    return np.abs(of_each).mean(axis=0)
