"""Right layer norms."""

import numpy as np


def by_scalar_loops(x, gain, bias, eps):
    out = np.zeros(x.shape)
    for at in np.ndindex(x.shape[:-1]):
        row = x[at].tolist()
        mean = sum(row) / len(row)
        var = sum((value - mean) ** 2 for value in row) / len(row)
        out[at] = [
            (value - mean) / (var + eps) ** 0.5 * g + b
            for value, g, b in zip(row, gain, bias, strict=True)
        ]
    return out


def by_mean_and_var(x, gain, bias, eps):
    mean, var = np.mean(x, -1, keepdims=True), np.var(x, -1, keepdims=True)
    return bias + gain * (x - mean) * (var + eps) ** -0.5


def squares_less_square(x, gain, bias, eps):
    mean = np.einsum("btd->bt", x) / x.shape[-1]
    var = np.einsum("btd,btd->bt", x, x) / x.shape[-1] - mean * mean
    return ((x - mean[..., None]) / np.sqrt(var + eps)[..., None]) * gain + bias


def by_a_matrix_that_centres(x, gain, bias, eps):
    D = len(gain)
    centred = x @ (np.eye(D) - np.ones((D, D)) / D)
    lengths = np.linalg.norm(centred, axis=-1, keepdims=True)
    return centred / np.hypot(lengths / D**0.5, eps**0.5) @ np.diag(gain) + bias


RIGHT = [
    by_scalar_loops,
    by_mean_and_var,
    squares_less_square,
    by_a_matrix_that_centres,
]
