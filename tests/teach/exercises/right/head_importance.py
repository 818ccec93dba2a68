"""Right ways to measure how important each head is."""

from collections import defaultdict
from math import fsum
from statistics import fmean

import numpy as np


def loops_over_numbers(d_gated, heads):
    B, H, T, d = heads.shape
    importance = np.zeros(H)
    for h in range(H):
        for b in range(B):
            total = 0.0
            for t in range(T):
                for c in range(d):
                    total += d_gated[b, h, t, c] * heads[b, h, t, c]
            importance[h] += abs(total) / B
    return importance


def sign_times_value(d_gated, heads):
    d_gate = np.sum(d_gated * heads, axis=(-1, -2))
    return (np.sign(d_gate) * d_gate).mean(axis=0)


def complex_step(d_gated, heads):
    tiny, (B, H) = 1e-60, heads.shape[:2]
    d_gate = np.zeros((B, H))
    for h in range(H):
        gate = np.ones((H, 1, 1), dtype=complex)
        gate[h] += 1j * tiny
        loss = (d_gated * (heads * gate)).sum(axis=(1, 2, 3))  # of each sequence
        d_gate[:, h] = loss.imag / tiny
    return np.abs(d_gate).mean(axis=0)


def dict_of_heads(d_gated, heads):
    found = defaultdict(list)
    for b, h in np.ndindex(heads.shape[:2]):
        found[h].append(abs(fsum((d_gated[b, h] * heads[b, h]).flat)))
    return np.array([fmean(found[h]) for h in sorted(found)])


def running_mean(d_gated, heads):
    mean = 0
    for n, (g, x) in enumerate(zip(d_gated, heads, strict=True), start=1):
        mean = mean + (np.abs((g * x).sum(axis=(1, 2))) - mean) / n
    return mean


RIGHT = [
    loops_over_numbers,
    complex_step,
    sign_times_value,
    dict_of_heads,
    running_mean,
]
