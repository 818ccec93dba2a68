"""Right RMS norms."""

import math

import numpy as np


def by_scalar_loops(x, gain, eps):
    out = np.zeros(x.shape)
    for b, sequence in enumerate(x):
        for t, token in enumerate(sequence):
            rms = math.sqrt(sum(value * value for value in token) / len(token) + eps)
            out[b, t] = [value / rms * g for value, g in zip(token, gain, strict=True)]
    return out


def by_einsum(x, gain, eps):
    squares = np.einsum("...d,...d->...", x, x)[..., None] / x.shape[-1]
    return np.einsum("btd,d,bte->btd", x, gain, (squares + eps) ** -0.5)


def by_length(x, gain, eps):
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return x * gain * np.sqrt(x.shape[-1] / (length**2 + x.shape[-1] * eps))


RIGHT = [
    by_scalar_loops,
    by_einsum,
    by_length,
]
