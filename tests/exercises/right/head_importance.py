from collections import defaultdict
from functools import partial
from math import fsum
from statistics import fmean

import numpy as np


def mean_of_absolute_sums(d_gated, heads):
    return np.abs((d_gated * heads).sum(axis=(2, 3))).mean(axis=0)


def einsum_then_mean(d_gated, heads):
    return np.mean(np.abs(np.einsum("bhtd,bhtd->bh", d_gated, heads)), axis=0)


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


def sequences_in_place(d_gated, heads):
    importance = np.zeros(heads.shape[1])
    for b in range(len(heads)):
        importance += abs(np.einsum("htd,htd->h", d_gated[b], heads[b]))
    importance /= len(heads)
    return importance


def vdot_for_each_head(d_gated, heads):
    B, H = heads.shape[:2]
    grads = [[np.vdot(d_gated[b, h], heads[b, h]) for h in range(H)] for b in range(B)]
    return np.mean(np.fabs(grads), axis=0)


def flat_rows(d_gated, heads):
    B, H, T, d = heads.shape
    g, x = d_gated.reshape(B * H, T * d), heads.reshape(B * H, T * d)
    per_sequence = (g * x).sum(axis=1).reshape(B, H)
    return np.absolute(per_sequence).sum(axis=0) / B


def matmul_of_rows_and_columns(d_gated, heads):
    B, H = heads.shape[:2]
    d_gate = d_gated.reshape(B, H, 1, -1) @ heads.reshape(B, H, -1, 1)
    return np.abs(d_gate).mean(0).squeeze((1, 2))


def tensordot_for_each_sequence(d_gated, heads):
    d_gate = np.array([
        np.diag(np.tensordot(g, x, axes=([1, 2], [1, 2])))
        for g, x in zip(d_gated, heads, strict=True)
    ])  # fmt: skip
    return np.average(np.abs(d_gate), axis=0)


def trace_for_each_head(d_gated, heads):
    d_gate = np.trace(d_gated @ heads.swapaxes(2, 3), axis1=2, axis2=3)
    return np.sqrt(d_gate**2).mean(axis=0)


def sign_times_value(d_gated, heads):
    d_gate = np.sum(d_gated * heads, axis=(-1, -2))
    return (np.sign(d_gate) * d_gate).mean(axis=0)


def larger_of_both_signs(d_gated, heads):
    d_gate = (d_gated * heads).reshape(*heads.shape[:2], -1).sum(axis=2)
    return np.maximum(d_gate, -d_gate).mean(axis=0)


def one_gate_at_a_time(d_gated, heads):
    importance = []
    for unit in np.identity(heads.shape[1]):
        change = heads * unit[:, None, None]
        per_sequence = (d_gated * change).sum(axis=(1, 2, 3))
        importance.append(np.abs(per_sequence).mean())
    return np.array(importance)


def complex_step(d_gated, heads):
    tiny, (B, H) = 1e-60, heads.shape[:2]
    d_gate = np.zeros((B, H))
    for h in range(H):
        gate = np.ones((H, 1, 1), dtype=complex)
        gate[h] += 1j * tiny
        loss = (d_gated * (heads * gate)).sum(axis=(1, 2, 3))  # of each sequence
        d_gate[:, h] = loss.imag / tiny
    return np.abs(d_gate).mean(axis=0)


def add_at_gates_of_sequences(d_gated, heads):
    B, H = heads.shape[:2]
    d_gate = np.zeros((B, H))
    b, h, _, _ = np.indices(heads.shape)
    np.add.at(d_gate, (b, h), d_gated * heads)
    return abs(d_gate).mean(axis=0)


def reduceat(d_gated, heads):
    B, H, T, d = heads.shape
    d_gate = np.add.reduceat((d_gated * heads).ravel(), np.arange(B * H) * (T * d))
    return np.linalg.norm(d_gate.reshape(B, H), ord=1, axis=0) / B


def in_longdouble(d_gated, heads):
    g, x = np.longdouble(d_gated), np.longdouble(heads)
    return np.abs((g * x).sum((2, 3))).mean(0).astype(np.float64)


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


def gate_for_each_sequence(d_gated, heads):
    d_gate = np.sum(d_gated * heads, axis=(2, 3), keepdims=True)  # of a gate (B, H, 1, 1)
    return np.abs(d_gate).mean(axis=(0, 2, 3))


def recursion_over_sequences(d_gated, heads):
    def total(g, x):
        if len(g) == 1:
            return np.abs(np.sum(g[0] * x[0], axis=(1, 2)))
        return total(g[:1], x[:1]) + total(g[1:], x[1:])

    return total(d_gated, heads) / len(heads)


class Importance:
    def __init__(self, reduce):
        self.reduce = reduce

    def __call__(self, d_gated, heads):
        heads_first = (d_gated * heads).transpose(1, 0, 2, 3)
        return self.reduce(np.abs(heads_first.sum(axis=(2, 3))), axis=1)


def of_norm(d_gated, heads, power):
    d_gate = np.einsum("bhtd,bhtd->hb", d_gated, heads)
    return (np.abs(d_gate) ** power).mean(axis=1) ** (1 / power)


RIGHT = [
    mean_of_absolute_sums,
    einsum_then_mean,
    loops_over_numbers,
    sequences_in_place,
    vdot_for_each_head,
    flat_rows,
    matmul_of_rows_and_columns,
    tensordot_for_each_sequence,
    trace_for_each_head,
    sign_times_value,
    larger_of_both_signs,
    one_gate_at_a_time,
    complex_step,
    add_at_gates_of_sequences,
    reduceat,
    in_longdouble,
    dict_of_heads,
    running_mean,
    gate_for_each_sequence,
    recursion_over_sequences,
    Importance(np.mean),
    partial(of_norm, power=1),
]
