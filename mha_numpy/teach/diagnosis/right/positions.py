"""Rotary positions, and back."""

import numpy as np

from mha_numpy.dtypes import Array


def rope(x: Array, positions: Array, base: float) -> Array:
    """Turn feature i and i + d/2 of (..., T, d) by position * base^(-2i/d)."""
    return turn(x, find_angles(positions, base, x.shape[-1] // 2))


def rope_backward(d_out: Array, positions: Array, base: float) -> Array:
    """Turn back."""
    return turn(d_out, -find_angles(positions, base, d_out.shape[-1] // 2))


def find_angles(positions: Array, base: float, half: int) -> Array:
    """Return the angle of each token and pair: (T, d/2)."""
    exponent = np.arange(half) / half
    frequency = base**-exponent
    return positions[:, None] * frequency


def turn(x: Array, angles: Array) -> Array:
    """Turn the pairs of each token by their angles."""
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(x, 2, axis=-1)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return np.concatenate(turned, axis=-1)
