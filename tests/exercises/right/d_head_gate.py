from functools import partial
from math import fsum

import numpy as np


def multiply_and_sum(d_gated, heads):
    return (d_gated * heads).sum(axis=(0, 2, 3))


def einsum(d_gated, heads):
    return np.einsum("bhtd,bhtd->h", d_gated, heads)


def loops_over_numbers(d_gated, heads):
    B, H, T, d = heads.shape
    d_gate = np.zeros(H)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                for c in range(d):
                    d_gate[h] += d_gated[b, h, t, c] * heads[b, h, t, c]
    return d_gate


def vdot_for_each_head(d_gated, heads):
    return np.array([np.vdot(d_gated[:, h], heads[:, h]) for h in range(heads.shape[1])])


def sequences_in_place(d_gated, heads):
    d_gate = np.zeros(heads.shape[1])
    for g, x in zip(d_gated, heads, strict=True):
        d_gate += (g * x).sum(axis=-1).sum(axis=-1)
    return d_gate


def tokens_in_place(d_gated, heads):
    d_gate = np.zeros_like(heads[0, :, 0, 0])
    for b in range(heads.shape[0]):
        for t in range(heads.shape[2]):
            d_gate += np.sum(d_gated[b, :, t] * heads[b, :, t], axis=1)
    return d_gate


def heads_first_and_flat(d_gated, heads):
    H = heads.shape[1]
    g, x = (np.moveaxis(a, 1, 0).reshape(H, -1) for a in (d_gated, heads))
    return np.array([np.dot(g[h], x[h]) for h in range(H)])


def diagonal_of_all_pairs(d_gated, heads):
    return np.tensordot(d_gated, heads, axes=([0, 2, 3], [0, 2, 3])).diagonal()


def matmul_of_rows_and_columns(d_gated, heads):
    products = d_gated[..., None, :] @ heads[..., :, None]  # (B, H, T, 1, 1)
    return products.sum(axis=(0, 2)).ravel()


def trace_for_each_head(d_gated, heads):
    products = d_gated.swapaxes(-1, -2) @ heads  # (B, H, d, d)
    return np.trace(products, axis1=-2, axis2=-1).sum(axis=0)


def gate_stretched_then_summed(d_gated, heads):
    gate = np.ones((heads.shape[1], 1, 1))
    d_stretched = d_gated * heads  # of the gate broadcast to (B, H, T, d)
    while d_stretched.ndim > gate.ndim:
        d_stretched = d_stretched.sum(axis=0)
    for axis, size in enumerate(gate.shape):
        if size == 1:
            d_stretched = d_stretched.sum(axis=axis, keepdims=True)
    return d_stretched.squeeze(axis=(1, 2))


def one_gate_at_a_time(d_gated, heads):
    d_gate = []
    for unit in np.eye(heads.shape[1]):  # linear in the gate, so this is exact
        change = heads * unit[:, None, None]
        d_gate.append(np.sum(d_gated * change))
    return np.asarray(d_gate)


def complex_step(d_gated, heads):
    tiny, H = 1e-50, heads.shape[1]
    d_gate = np.zeros(H)
    for h in range(H):
        gate = np.ones(H, dtype=complex)
        gate[h] += tiny * 1j
        gated = heads * gate[:, None, None]
        d_gate[h] = np.sum(d_gated * gated).imag / tiny
    return d_gate


def add_at(d_gated, heads):
    B, H, T, d = heads.shape
    d_gate = np.zeros(H)
    owner = np.broadcast_to(np.arange(H)[:, None, None], heads.shape)
    np.add.at(d_gate, owner, d_gated * heads)
    return d_gate


def bincount(d_gated, heads):
    owner = np.indices(heads.shape)[1]
    return np.bincount(owner.ravel(), weights=(d_gated * heads).ravel())


def reduceat(d_gated, heads):
    B, H, T, d = heads.shape
    flat = (d_gated * heads).transpose(1, 0, 2, 3).ravel()
    return np.add.reduceat(flat, np.arange(H) * (B * T * d))


def in_longdouble(d_gated, heads):
    products = d_gated.astype(np.longdouble) * heads.astype(np.longdouble)
    return products.sum(axis=3).sum(axis=2).sum(axis=0).astype(np.float64)


def exact_sums(d_gated, heads):
    return np.array([fsum((d_gated * heads)[:, h].flat) for h in range(heads.shape[1])])


def recursion_over_sequences(d_gated, heads):
    if len(heads) == 1:
        return np.einsum("htc,htc->h", d_gated[0], heads[0])
    half = len(heads) // 2
    left = recursion_over_sequences(d_gated[:half], heads[:half])
    return left + recursion_over_sequences(d_gated[half:], heads[half:])


def column_of_a_larger_array(d_gated, heads):
    table = np.zeros((heads.shape[1], 3))
    table[:, 1] = np.apply_over_axes(np.sum, d_gated * heads, [0, 2, 3])[0, :, 0, 0]
    return table[:, 1]


class HeadGate:
    def __init__(self, H):
        self.grad = np.zeros(H)

    def backward(self, d_gated, heads):
        for h, (g, x) in enumerate(zip(d_gated.swapaxes(0, 1), heads.swapaxes(0, 1), strict=True)):
            self.grad[h] += np.multiply(g, x).sum()
        return self.grad


RIGHT = [
    multiply_and_sum,
    einsum,
    loops_over_numbers,
    vdot_for_each_head,
    sequences_in_place,
    tokens_in_place,
    heads_first_and_flat,
    diagonal_of_all_pairs,
    matmul_of_rows_and_columns,
    trace_for_each_head,
    gate_stretched_then_summed,
    one_gate_at_a_time,
    complex_step,
    add_at,
    bincount,
    reduceat,
    in_longdouble,
    exact_sums,
    recursion_over_sequences,
    column_of_a_larger_array,
    partial(np.einsum, "ahbc,ahbc->h"),
    lambda d_gated, heads: HeadGate(heads.shape[1]).backward(d_gated, heads),
]
