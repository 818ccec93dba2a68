"""Right solutions in unusual styles: gates."""

from math import fsum

import numpy as np


def d_head_gate_complex_step(d_gated, heads):
    tiny, H = 1e-50, heads.shape[1]
    d_gate = np.zeros(H)
    for h in range(H):
        gate = np.ones(H, dtype=complex)
        gate[h] += tiny * 1j
        gated = heads * gate[:, None, None]
        d_gate[h] = np.sum(d_gated * gated).imag / tiny
    return d_gate


def d_head_gate_bincount(d_gated, heads):
    owner = np.indices(heads.shape)[1]
    return np.bincount(owner.ravel(), weights=(d_gated * heads).ravel())


def d_head_gate_exact_sums(d_gated, heads):
    return np.array([fsum((d_gated * heads)[:, h].flat) for h in range(heads.shape[1])])


def dropout_backward_masked_array_filled(d_dropped, keep, p):
    masked = np.ma.masked_array(d_dropped, mask=~keep)
    return (masked / (1 - p)).filled(0.0)


def dropout_backward_directional_derivative(d_dropped, keep, p):
    def forward(weights):
        return weights * keep / (1 - p)

    tiny = 1e-20
    return d_dropped * forward(np.full(keep.shape, 1j * tiny)).imag / tiny  # cell by cell


def head_importance_sign_times_value(d_gated, heads):
    d_gate = np.sum(d_gated * heads, axis=(-1, -2))
    return (np.sign(d_gate) * d_gate).mean(axis=0)


def head_importance_running_mean(d_gated, heads):
    mean = 0
    for n, (g, x) in enumerate(zip(d_gated, heads, strict=True), start=1):
        mean = mean + (np.abs((g * x).sum(axis=(1, 2))) - mean) / n
    return mean
