"""Right ways to turn pairs of features by angles proportional to positions (halves layout)."""

import math

import numpy as np


def by_complex_view(x, positions, base):
    first, second = np.split(x, 2, axis=-1)
    pairs = np.stack([first, second], axis=-1).view(np.complex128)[..., 0]
    half = first.shape[-1]
    turned = pairs * np.exp(1j * np.outer(positions, base ** -(np.arange(half) / half)))
    return np.moveaxis(turned.view(np.float64).reshape(*first.shape, 2), -1, -2).reshape(x.shape)


def by_complex_power(x, positions, base):
    half = x.shape[-1] // 2
    turn = np.exp(1j * base ** (-np.arange(half) / half))  # of one position
    z = (x[..., :half] + 1j * x[..., half:]) * turn ** positions[:, None]
    return np.append(np.real(z), np.imag(z), axis=-1)


def by_scalar_loops(x, positions, base):
    *leading, T, d = x.shape
    out = np.empty(x.shape)
    for index in np.ndindex(*leading):
        for t in range(T):
            for i in range(d // 2):
                angle = positions[t] / base ** (2 * i / d)
                a, c = x[index][t, i], x[index][t, i + d // 2]
                out[index][t, i] = a * math.cos(angle) - c * math.sin(angle)
                out[index][t, i + d // 2] = a * math.sin(angle) + c * math.cos(angle)
    return out


def by_rotation_matrices(x, positions, base):
    half = x.shape[-1] // 2
    angles = np.einsum("t,i->ti", positions, base ** (np.arange(half) / -half))
    c, s = np.cos(angles), np.sin(angles)
    matrices = np.array([[c, -s], [s, c]])  # (2, 2, T, d/2)
    pairs = x.reshape(*x.shape[:-1], 2, half)
    return np.einsum("mnti,...tni->...tmi", matrices, pairs).reshape(x.shape)


def by_polar_coordinates(x, positions, base):
    first, second = np.array_split(x, 2, axis=-1)
    half = first.shape[-1]
    angle = np.arctan2(second, first) + positions[:, None] * base ** (-np.arange(half) / half)
    radius = np.hypot(first, second)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


RIGHT = [
    by_scalar_loops,
    by_complex_view,
    by_complex_power,
    by_rotation_matrices,
    by_polar_coordinates,
]
