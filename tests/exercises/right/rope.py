"""Right ways to turn pairs of features by angles proportional to positions (halves layout)."""

import cmath
import math
from functools import lru_cache, partial

import numpy as np


def by_concatenate(x, positions, base):
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def by_rotate_half(x, positions, base):
    d = x.shape[-1]
    inv_freq = 1.0 / (base ** (np.arange(0, d, 2) / d))
    freqs = np.outer(positions, inv_freq)
    emb = np.concatenate((freqs, freqs), axis=-1)
    rotated = np.concatenate((-x[..., d // 2 :], x[..., : d // 2]), axis=-1)
    return x * np.cos(emb) + rotated * np.sin(emb)


def by_complex_numbers(x, positions, base):
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-2 * np.arange(half) / (2 * half))
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], axis=-1)


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


def by_cmath_loops(x, positions, base):
    half = x.shape[-1] // 2
    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        for i in range(half):
            angle = float(positions[index[-1]]) * float(base) ** (-i / half)
            z = complex(x[index][i], x[index][i + half]) * cmath.rect(1, angle)
            out[index][i], out[index][i + half] = z.real, z.imag
    return out


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


def by_loop_over_tokens(x, positions, base):
    half = x.shape[-1] // 2
    frequencies = base ** -np.linspace(0, 1, half, endpoint=False)
    tokens = []
    for t, position in enumerate(positions):
        c, s = np.cos(position * frequencies), np.sin(position * frequencies)
        a, b = x[..., t, :half], x[..., t, half:]
        tokens.append(np.concatenate([a * c - b * s, b * c + a * s], axis=-1))
    return np.stack(tokens, axis=-2)


def by_loop_over_pairs(x, positions, base):
    d = x.shape[-1]
    out = np.empty_like(x)
    for i in range(d // 2):
        angle = positions * base ** (-2 * i / d)
        out[..., i] = np.cos(angle) * x[..., i] - np.sin(angle) * x[..., i + d // 2]
        out[..., i + d // 2] = np.sin(angle) * x[..., i] + np.cos(angle) * x[..., i + d // 2]
    return out


def by_in_place_steps(x, positions, base):
    half = x.shape[-1] // 2
    angles = np.multiply.outer(positions, np.power(base, -np.arange(half) / half))
    out = x.copy()
    out *= np.tile(np.cos(angles), 2)
    out[..., :half] -= x[..., half:] * np.sin(angles)
    out[..., half:] += x[..., :half] * np.sin(angles)
    return out


def by_rotation_matrices(x, positions, base):
    half = x.shape[-1] // 2
    angles = np.einsum("t,i->ti", positions, base ** (np.arange(half) / -half))
    c, s = np.cos(angles), np.sin(angles)
    matrices = np.array([[c, -s], [s, c]])  # (2, 2, T, d/2)
    pairs = x.reshape(*x.shape[:-1], 2, half)
    return np.einsum("mnti,...tni->...tmi", matrices, pairs).reshape(x.shape)


def by_one_large_matrix_per_token(x, positions, base):
    d = x.shape[-1]
    half = d // 2
    out = np.empty_like(x)
    for t in range(len(positions)):
        angles = positions[t] * base ** (-np.arange(half) / half)
        c, s = np.diag(np.cos(angles)), np.diag(np.sin(angles))
        out[..., t, :] = x[..., t, :] @ np.block([[c, -s], [s, c]]).T
    return out


def by_matmul_of_pairs(x, positions, base):
    half = x.shape[-1] // 2
    angles = positions[:, None] / base ** (np.arange(half) / half)
    rotations = np.empty((*angles.shape, 2, 2))
    rotations[..., 0, 0] = rotations[..., 1, 1] = np.cos(angles)
    rotations[..., 1, 0] = np.sin(angles)
    rotations[..., 0, 1] = -rotations[..., 1, 0]
    pairs = np.stack([x[..., :half], x[..., half:]], axis=-1)[..., None]
    return (rotations @ pairs)[..., 0].swapaxes(-1, -2).reshape(x.shape)


def by_polar_coordinates(x, positions, base):
    first, second = np.array_split(x, 2, axis=-1)
    half = first.shape[-1]
    angle = np.arctan2(second, first) + positions[:, None] * base ** (-np.arange(half) / half)
    radius = np.hypot(first, second)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def by_roll_and_signs(x, positions, base):
    d = x.shape[-1]
    signs = np.where(np.arange(d) < d // 2, -1, 1)
    exponents = (np.arange(d) % (d // 2)) * 2 / d
    angles = positions[..., None] * base**-exponents
    return x * np.cos(angles) + signs * np.roll(x, d // 2, axis=-1) * np.sin(angles)


def by_reshape_to_two_rows(x, positions, base):
    pairs = x.reshape(*x.shape[:-1], 2, -1)
    half = pairs.shape[-1]
    angles = positions[:, None, None] * base ** (-np.arange(half) / half)
    turned = pairs * np.cos(angles) + pairs[..., ::-1, :] * np.sin(angles) * [[-1], [1]]
    return turned.reshape(x.shape)


def by_repeated_product_of_frequencies(x, positions, base):
    half = x.shape[-1] // 2
    ratio = base ** (-1 / half)
    frequencies = np.cumprod(np.full(half, ratio)) / ratio
    angles = np.outer(positions, frequencies)
    out = np.zeros_like(x)
    out[..., :half] = x[..., :half] * np.cos(angles) - x[..., half:] * np.sin(angles)
    out[..., half:] = x[..., half:] * np.cos(angles) + x[..., :half] * np.sin(angles)
    return out


def by_logspace(x, positions, base):
    half = x.shape[-1] // 2
    frequencies = np.logspace(0, -1, half, endpoint=False, base=base)
    cos = np.concatenate([np.cos(np.outer(positions, frequencies))] * 2, axis=1)
    sin = np.concatenate([np.sin(np.outer(positions, frequencies))] * 2, axis=1)
    sin[:, :half] *= -1
    return x * cos + x[..., np.r_[half : 2 * half, 0:half]] * sin


def by_exp_of_log(x, positions, base):
    d = x.shape[-1]
    frequencies = np.exp(np.arange(0, d, 2) * (-math.log(base) / d))
    angles = np.asarray(positions, dtype=float).reshape(-1, 1) @ frequencies.reshape(1, -1)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate(
        (np.cos(angles) * a + np.cos(angles + np.pi / 2) * b,
         np.sin(angles) * a + np.sin(angles + np.pi / 2) * b),
        axis=-1,
    )  # fmt: skip


def by_adding_up_turns(x, positions, base):
    half = x.shape[-1] // 2
    one = np.exp(1j * base ** (-np.arange(half) / half))

    @lru_cache
    def turn(n):
        if n == 0:
            return np.ones(half, dtype=complex)
        root = turn(n // 2)
        return root * root * one if n % 2 else root * root

    def turn_of(position):
        whole = int(position)
        return turn(whole) * np.exp(np.log(one) * (position - whole))

    z = (x[..., :half] + 1j * x[..., half:]) * np.stack([turn_of(p) for p in positions.tolist()])
    return np.concatenate([z.real, z.imag], axis=-1)


def by_vectorize(x, positions, base):
    d = x.shape[-1]

    def feature(t, i):
        angle = positions[t] * base ** (-(i % (d // 2)) * 2 / d)
        return math.cos(angle), math.sin(angle) if i >= d // 2 else -math.sin(angle)

    cos, sin = np.vectorize(feature)(np.arange(len(positions))[:, None], np.arange(d))
    return cos * x + sin * x[..., (np.arange(d) + d // 2) % d]


def by_list_comprehensions(x, positions, base):
    half = x.shape[-1] // 2
    angles = [[p * base ** (-i / half) for i in range(half)] for p in positions.tolist()]
    cos, sin = np.cos(angles), np.sin(angles)
    halves = (np.hsplit(tokens, 2) for tokens in x.reshape(-1, *x.shape[-2:]))
    turned = [np.hstack([a * cos - b * sin, a * sin + b * cos]) for a, b in halves]
    return np.array(turned).reshape(x.shape)


def by_longdouble(x, positions, base):
    half = x.shape[-1] // 2
    wide = np.longdouble
    angles = positions.astype(wide)[:, None] * wide(base) ** (-np.arange(half, dtype=wide) / half)
    first, second = x[..., :half].astype(wide), x[..., half:].astype(wide)
    turned = (
        first * np.cos(angles) - second * np.sin(angles),
        first * np.sin(angles) + second * np.cos(angles),
    )
    return np.concatenate(turned, axis=-1).astype(np.float64)


def by_recursion_over_pairs(x, positions, base):
    half = x.shape[-1] // 2

    def turn(first, second, i):
        if first.shape[-1] == 0:
            return first, second
        angle = positions * base ** (-i / half)
        a, b = first[..., 0], second[..., 0]
        rest_a, rest_b = turn(first[..., 1:], second[..., 1:], i + 1)
        a, b = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
        return np.concatenate([a[..., None], rest_a], -1), np.concatenate(
            [b[..., None], rest_b], -1
        )

    return np.concatenate(turn(x[..., :half], x[..., half:], 0), axis=-1)


def in_fortran_order(x, positions, base):
    return np.asfortranarray(by_rotate_half(x, positions, base))


def as_view_with_features_first(x, positions, base):
    by_feature = np.moveaxis(x, -1, 0)
    half = len(by_feature) // 2
    angles = (positions[:, None] * base ** (-np.arange(half) / half)).T
    shape = (half, *[1] * (x.ndim - 2), len(positions))
    cos, sin = np.cos(angles).reshape(shape), np.sin(angles).reshape(shape)
    first, second = by_feature[:half], by_feature[half:]
    return np.moveaxis(np.vstack([first * cos - second * sin, first * sin + second * cos]), 0, -1)


class Rope:
    def __init__(self):
        self.table = {}

    def __call__(self, x, positions, base=10000.0):
        half = x.shape[-1] // 2
        turns = np.stack([self.turn(p, half, base) for p in positions.tolist()])
        turned = (x[..., :half] + 1j * x[..., half:]) * turns
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def turn(self, position, half, base):
        key = position, half, base
        if key not in self.table:
            angles = position * base ** (-np.arange(half) / half)
            self.table[key] = np.cos(angles) + 1j * np.sin(angles)
        return self.table[key]


def _rotate(sign, x, positions, base):
    half = x.shape[-1] // 2
    angles = sign * positions[:, None] * base ** -(np.arange(half) / half)
    c, s = np.cos(angles), np.sin(angles)
    return np.r_["-1", x[..., :half] * c - x[..., half:] * s, x[..., :half] * s + x[..., half:] * c]


by_class = Rope()
by_partial = partial(_rotate, 1)

RIGHT = [
    by_concatenate, by_rotate_half, by_complex_numbers, by_complex_view, by_complex_power,
    by_cmath_loops, by_scalar_loops, by_loop_over_tokens, by_loop_over_pairs, by_in_place_steps,
    by_rotation_matrices, by_one_large_matrix_per_token, by_matmul_of_pairs, by_polar_coordinates,
    by_roll_and_signs, by_reshape_to_two_rows, by_repeated_product_of_frequencies, by_logspace,
    by_exp_of_log, by_adding_up_turns, by_vectorize, by_list_comprehensions, by_longdouble,
    by_recursion_over_pairs, in_fortran_order, as_view_with_features_first, by_class, by_partial,
]  # fmt: skip
