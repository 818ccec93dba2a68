"""Right solutions in unusual styles: positions."""

import numpy as np


def rope_by_polar_coordinates(x, positions, base):
    first, second = np.array_split(x, 2, axis=-1)
    half = first.shape[-1]
    angle = np.arctan2(second, first) + positions[:, None] * base ** (-np.arange(half) / half)
    radius = np.hypot(first, second)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def rope_backward_unit_vectors_through_the_forward(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)

    def forward(x):
        x1, x2 = x[..., :half], x[..., half:]
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], axis=-1)

    columns = [(d_out * forward(np.broadcast_to(e, d_out.shape))).sum(-1)
               for e in np.eye(2 * half)]  # fmt: skip
    return np.stack(columns, axis=-1)


def rope_backward_inverse_of_the_matrices(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    rotation = np.zeros((len(positions), 2 * half, 2 * half))
    i = np.arange(half)
    rotation[:, i, i] = rotation[:, i + half, i + half] = np.cos(angles)
    rotation[:, i, i + half] = -np.sin(angles)
    rotation[:, i + half, i] = np.sin(angles)
    return (np.linalg.inv(rotation) @ d_out[..., None])[..., 0]
