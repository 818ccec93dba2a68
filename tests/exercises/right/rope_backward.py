import cmath
import math
from functools import partial

import numpy as np


def negative_positions(d_out, positions, base):
    def rope(x, positions):
        half = x.shape[-1] // 2
        angles = positions[:, None] * base ** (-np.arange(half) / half)
        first, second = x[..., :half], x[..., half:]
        turned_first = first * np.cos(angles) - second * np.sin(angles)
        turned_second = first * np.sin(angles) + second * np.cos(angles)
        return np.concatenate([turned_first, turned_second], axis=-1)

    return rope(d_out, -positions)


def transposed_by_hand(d_out, positions, base):
    d = d_out.shape[-1]
    theta = 1.0 / base ** (np.arange(0, d, 2) / d)
    angles = np.outer(positions, theta)
    cos, sin = np.cos(angles), np.sin(angles)
    g1, g2 = np.split(d_out, 2, axis=-1)
    # out1 = x1 cos - x2 sin; out2 = x2 cos + x1 sin
    d_x = np.empty_like(d_out)
    d_x[..., : d // 2] = g1 * cos + g2 * sin
    d_x[..., d // 2 :] = g2 * cos - g1 * sin
    return d_x


def complex_conjugates(d_out, positions, base):
    half = d_out.shape[-1] // 2
    frequencies = base ** -(np.arange(half) / half)
    turns = np.exp(1j * positions[:, None] * frequencies)
    d_z = (d_out[..., :half] + 1j * d_out[..., half:]) * turns.conj()
    return np.concatenate([d_z.real, d_z.imag], axis=-1)


def loops_over_numbers(d_out, positions, base):
    *leading, T, d = d_out.shape
    d_x = np.zeros(d_out.shape)
    for at in np.ndindex(*leading):
        for t in range(T):
            for i in range(d // 2):
                angle = positions[t] / base ** (2 * i / d)
                one, two = d_out[at][t, i], d_out[at][t, i + d // 2]
                d_x[at][t, i] = math.cos(angle) * one + math.sin(angle) * two
                d_x[at][t, i + d // 2] = math.cos(angle) * two - math.sin(angle) * one
    return d_x


def rotation_matrix_of_each_token(d_out, positions, base):
    half = d_out.shape[-1] // 2
    d_x = np.zeros_like(d_out)
    for t, position in enumerate(positions):
        angles = position * base ** (-np.arange(half) / half)
        cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
        rotation = np.block([[cos, -sin], [sin, cos]])  # out = rotation x
        d_x[..., t, :] = d_out[..., t, :] @ rotation  # rows: rotation.T d_out
    return d_x


def two_by_two_matrices(d_out, positions, base):
    half = d_out.shape[-1] // 2
    a = np.einsum("t,i->ti", positions, base ** (np.arange(half) / -half))
    rotation = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])  # (2, 2, T, half)
    pairs = d_out.reshape(*d_out.shape[:-1], 2, half)
    return np.einsum("mnti,...tmi->...tni", rotation, pairs).reshape(d_out.shape)


def rotate_half(d_out, positions, base):
    def rotate_half_transposed(g):
        first, second = np.split(g, 2, axis=-1)
        return np.concatenate((second, -first), axis=-1)

    dim = d_out.shape[-1]
    inv_freq = 1.0 / (base ** (np.arange(0, dim, 2).astype(np.float64) / dim))
    freqs = np.einsum("i,j->ij", positions.astype(np.float64), inv_freq)
    emb = np.concatenate((freqs, freqs), axis=-1)
    return d_out * np.cos(emb) + rotate_half_transposed(d_out * np.sin(emb))


def pairs_stacked(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions.reshape(-1, 1) * np.power(base, -np.arange(half) / half)
    c, s = np.cos(angles), np.sin(angles)
    g = np.moveaxis(d_out, -1, 0)
    c, s = c.T, s.T  # (half, T)
    c, s = (a.reshape(half, *[1] * (d_out.ndim - 2), -1) for a in (c, s))
    d_x = np.stack([g[:half] * c + g[half:] * s, g[half:] * c - g[:half] * s])
    return np.moveaxis(d_x.reshape(g.shape), 0, -1)


def swapped_halves_with_signs(d_out, positions, base):
    d = d_out.shape[-1]
    angles = positions[:, np.newaxis] * base ** -(2 * np.arange(d // 2) / d)
    signs = np.repeat([1.0, -1.0], d // 2)
    cos, sin = np.tile(np.cos(angles), 2), np.tile(np.sin(angles), 2)
    return d_out * cos + signs * sin * np.roll(d_out, d // 2, axis=-1)


def in_place_on_a_copy(d_out, positions, base):
    d_x = d_out.copy()
    half = d_x.shape[-1] // 2
    for i in range(half):
        angle = positions * base ** (-i / half)
        old = d_x[..., i].copy()
        d_x[..., i] *= np.cos(angle)
        d_x[..., i] += d_x[..., i + half] * np.sin(angle)
        d_x[..., i + half] *= np.cos(angle)
        d_x[..., i + half] -= old * np.sin(angle)
    return d_x


def unit_vectors_through_the_forward(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)

    def forward(x):
        x1, x2 = x[..., :half], x[..., half:]
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], axis=-1)

    columns = [(d_out * forward(np.broadcast_to(e, d_out.shape))).sum(-1)
               for e in np.eye(2 * half)]  # fmt: skip
    return np.stack(columns, axis=-1)


def in_longdouble(d_out, positions, base):
    half = d_out.shape[-1] // 2
    exponent = -np.arange(half, dtype=np.longdouble) / half
    angles = positions[:, None] * np.longdouble(base) ** exponent
    cos, sin = np.cos(angles), np.sin(angles)
    one, two = d_out[..., :half], d_out[..., half:]
    return np.concatenate([one * cos + two * sin, two * cos - one * sin], -1).astype(np.float64)


def powers_of_one_turn(d_out, positions, base):
    half = d_out.shape[-1] // 2
    d_x = np.zeros(d_out.shape, order="F")
    for i in range(half):
        back = cmath.exp(-1j * base ** (-i / half))
        for t, n in enumerate(positions.tolist()):
            z = (d_out[..., t, i] + 1j * d_out[..., t, half + i]) * back**n
            d_x[..., t, i], d_x[..., t, half + i] = z.real, z.imag
    return d_x


def log_of_the_base(d_out, positions, base):
    d = d_out.shape[-1]
    div_term = np.exp(np.arange(0, d, 2) * (-np.log(base) / d))
    phase = np.exp(-1j * np.multiply.outer(positions, div_term))
    pairs = d_out.reshape(*d_out.shape[:-1], 2, d // 2).swapaxes(-1, -2)  # (..., T, d/2, 2)
    z = np.ascontiguousarray(pairs).view(np.complex128)[..., 0] * phase
    return np.ascontiguousarray(z)[..., None].view(np.float64).swapaxes(-1, -2).reshape(d_out.shape)


def recursion_over_pairs(d_out, positions, base):
    def turn_back(first, second, i, half):
        if first.shape[-1] == 0:
            return [], []
        a = positions * base ** (-i / half)
        one, two = first[..., 0], second[..., 0]
        ones, twos = turn_back(first[..., 1:], second[..., 1:], i + 1, half)
        turned = one * np.cos(a) + two * np.sin(a), two * np.cos(a) - one * np.sin(a)
        return [turned[0], *ones], [turned[1], *twos]

    half = d_out.shape[-1] // 2
    ones, twos = turn_back(d_out[..., :half], d_out[..., half:], 0, half)
    return np.stack(ones + twos, axis=-1)


def inverse_of_the_matrices(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    rotation = np.zeros((len(positions), 2 * half, 2 * half))
    i = np.arange(half)
    rotation[:, i, i] = rotation[:, i + half, i + half] = np.cos(angles)
    rotation[:, i, i + half] = -np.sin(angles)
    rotation[:, i + half, i] = np.sin(angles)
    return (np.linalg.inv(rotation) @ d_out[..., None])[..., 0]


class Rope:
    def __init__(self, sign):
        self.sign = sign

    def __call__(self, x, positions, base):
        half = x.shape[-1] // 2
        angles = self.sign * positions[:, None] / base ** (np.arange(half) / half)
        cos, sin = np.cos(angles), np.sin(angles)
        parts = x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin
        return np.concatenate(parts, axis=-1)


def rope(x, positions, base, back=False):
    half = x.shape[-1] // 2
    turn = np.exp(np.outer(positions, base ** (-np.arange(half) / half)) * (-1j if back else 1j))
    z = turn * (x[..., :half] + 1j * x[..., half:])
    return np.c_["-1", z.real, z.imag]


RIGHT = [
    negative_positions,
    transposed_by_hand,
    complex_conjugates,
    loops_over_numbers,
    rotation_matrix_of_each_token,
    two_by_two_matrices,
    rotate_half,
    pairs_stacked,
    swapped_halves_with_signs,
    in_place_on_a_copy,
    unit_vectors_through_the_forward,
    in_longdouble,
    powers_of_one_turn,
    log_of_the_base,
    recursion_over_pairs,
    inverse_of_the_matrices,
    Rope(-1),
    partial(rope, back=True),
]
