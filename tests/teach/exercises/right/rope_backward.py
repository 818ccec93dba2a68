"""Right gradients of turning pairs of features."""

import cmath
import math

import numpy as np


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


def powers_of_one_turn(d_out, positions, base):
    half = d_out.shape[-1] // 2
    d_x = np.zeros(d_out.shape, order="F")
    for i in range(half):
        back = cmath.exp(-1j * base ** (-i / half))
        for t, n in enumerate(positions.tolist()):
            z = (d_out[..., t, i] + 1j * d_out[..., t, half + i]) * back**n
            d_x[..., t, i], d_x[..., t, half + i] = z.real, z.imag
    return d_x


def inverse_of_the_matrices(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    rotation = np.zeros((len(positions), 2 * half, 2 * half))
    i = np.arange(half)
    rotation[:, i, i] = rotation[:, i + half, i + half] = np.cos(angles)
    rotation[:, i, i + half] = -np.sin(angles)
    rotation[:, i + half, i] = np.sin(angles)
    return (np.linalg.inv(rotation) @ d_out[..., None])[..., 0]


RIGHT = [
    loops_over_numbers,
    powers_of_one_turn,
    unit_vectors_through_the_forward,
    inverse_of_the_matrices,
]
