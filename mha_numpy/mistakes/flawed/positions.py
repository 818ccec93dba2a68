"""Rotary positions, and back."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made


def rope(x: Array, positions: Array, base: float, made: Made = RIGHT) -> Array:
    """Turn feature i and i + d/2 of (..., T, d) by position * base^(-2i/d)."""
    angles = _angles(positions, base, x.shape[-1] // 2, made)
    return _turn(x, -angles if "turned the other way" in made else angles, made)


def rope_backward(d_out: Array, positions: Array, base: float, made: Made = RIGHT) -> Array:
    """Turn back."""
    if "gradient not turned" in made:
        return d_out
    angles = _angles(positions, base, d_out.shape[-1] // 2, made)
    return _turn(d_out, angles if "gradient turned forward" in made else -angles, made)


def _angles(positions: Array, base: float, half: int, made: Made) -> Array:
    """Return the angle of each token and pair: (T, d/2)."""
    exponent = np.arange(half) / half
    if "frequencies over d, not d/2" in made:
        exponent = np.arange(half) / (2 * half)
    if "frequencies shifted by one" in made:
        exponent = (np.arange(half) + 1) / half
    if "frequencies inverted" in made:
        exponent = -exponent
    if "positions ignored" in made:
        positions = np.arange(len(positions))
    return positions[:, None] * (10000.0 if "base ignored" in made else base) ** -exponent


def _turn(x: Array, angles: Array, made: Made) -> Array:
    """Turn the pairs of each token by their angles."""
    if "turned by head, not by token" in made:  # (H, 1, d/2)
        angles = angles[:, None, :]
    cos, sin = np.cos(angles), np.sin(angles)
    if "sine and cosine swapped" in made:
        cos, sin = sin, cos
    if "pairs interleaved" in made:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * cos - odd * sin, even * sin + odd * cos]
        return np.stack(turned, axis=-1).reshape(x.shape)
    first, second = np.split(x, 2, axis=-1)
    if "frequencies repeated, not tiled" in made:
        cos, sin = np.repeat(cos, 2, axis=-1), np.repeat(sin, 2, axis=-1)
        return x * cos + np.concatenate([-second, first], axis=-1) * sin
    last = first * sin + second * cos
    if "a sign of the rotation" in made:
        last = second * cos - first * sin
    beginning = first * cos - second * sin
    if "the other sign of the rotation" in made:
        beginning = first * cos + second * sin
    return np.concatenate([beginning, last], axis=-1)
