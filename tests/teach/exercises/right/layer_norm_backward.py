"""Right gradients of layer norm."""

import numpy as np


def all_jacobians_at_once(d_out, x, gain, eps):
    D = x.shape[-1]
    centre = np.eye(D) - np.full((D, D), 1 / D)
    centred = x @ centre
    std = np.sqrt((centred**2).sum(-1) / D + eps)[..., None, None]
    outer = centred[..., :, None] * centred[..., None, :]
    jacobian = (np.diag(gain) @ centre) / std - gain[:, None] * outer / (D * std**3)  # out by x
    d_x = np.einsum("...o,...oi->...i", d_out, jacobian)
    normal = centred / std[..., 0]
    d_gain = np.einsum("ni,ni->i", d_out.reshape(-1, D), normal.reshape(-1, D))
    return d_x, d_gain, d_out.reshape(-1, D).sum(axis=0)


def loops_over_numbers(d_out, x, gain, eps):
    D = x.shape[-1]
    d_x, d_gain, d_bias = np.zeros(x.shape), np.zeros(D), np.zeros(D)
    for at in np.ndindex(x.shape[:-1]):
        row, g = x[at].tolist(), d_out[at].tolist()
        mean = sum(row) / D
        var = sum((value - mean) ** 2 for value in row) / D
        normal = [(value - mean) / (var + eps) ** 0.5 for value in row]
        d_normal = [g[n] * gain[n] for n in range(D)]
        total = sum(d_normal)
        dot = sum(d_normal[n] * normal[n] for n in range(D))
        for n in range(D):
            d_gain[n] += g[n] * normal[n]
            d_bias[n] += g[n]
            d_x[(*at, n)] = (d_normal[n] - total / D - normal[n] * dot / D) / (var + eps) ** 0.5
    return d_x, d_gain, d_bias


def mean_of_squares_less_square_of_mean(d_out, x, gain, eps):
    m, m2 = np.mean(x, axis=-1, keepdims=True), np.mean(x * x, axis=-1, keepdims=True)
    s = (m2 - m * m + eps) ** -0.5  # out = (x - m) s gain + bias
    g = d_out * gain
    d_s = np.sum(g * (x - m), axis=-1, keepdims=True)
    d_var = d_s * -0.5 * s**3
    d_m = -np.sum(g * s, axis=-1, keepdims=True) - 2 * m * d_var
    d_x = g * s + d_m / x.shape[-1] + d_var * 2 * x / x.shape[-1]
    tokens = tuple(range(x.ndim))[:-1]
    return d_x, np.sum(d_out * (x - m) * s, axis=tokens), np.sum(d_out, axis=tokens)


def complex_step(d_out, x, gain, eps):
    tiny = 1e-40

    def forward(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        var = (centred * centred).mean(-1, keepdims=True)
        return centred / np.sqrt(var + eps) * gain + bias

    bias, d_x, d_gain, d_bias = np.zeros_like(gain), np.zeros_like(x), [], []
    for n, unit in enumerate(1j * tiny * np.eye(len(gain))):
        d_x[..., n] = (d_out * forward(x + unit, gain, bias).imag).sum(-1) / tiny
        d_gain.append((d_out * forward(x, gain + unit, bias).imag).sum() / tiny)
        d_bias.append((d_out * forward(x, gain, bias + unit).imag).sum() / tiny)
    return d_x, np.array(d_gain), np.array(d_bias)


def two_projections(d_out, x, gain, eps):
    D = x.shape[-1]

    def centre(a):
        return a - np.sum(a, axis=-1, keepdims=True) / D

    c = centre(x)
    squares = np.sum(c * c, axis=-1, keepdims=True) + D * eps
    d_c = centre(d_out * gain)
    d_x = np.sqrt(D / squares) * (d_c - c * np.sum(c * d_c, axis=-1, keepdims=True) / squares)
    normal = c * np.sqrt(D / squares)
    ones = np.ones(x[..., 0].size)
    return [d_x, ones @ (d_out * normal).reshape(-1, D), ones @ d_out.reshape(-1, D)]


RIGHT = [
    loops_over_numbers,
    mean_of_squares_less_square_of_mean,
    all_jacobians_at_once,
    complex_step,
    two_projections,
]
