"""Right solutions in unusual styles: norms."""

import numpy as np


def layer_norm_squares_less_square(x, gain, bias, eps):
    mean = np.einsum("btd->bt", x) / x.shape[-1]
    var = np.einsum("btd,btd->bt", x, x) / x.shape[-1] - mean * mean
    return ((x - mean[..., None]) / np.sqrt(var + eps)[..., None]) * gain + bias


def layer_norm_by_a_matrix_that_centres(x, gain, bias, eps):
    D = len(gain)
    centred = x @ (np.eye(D) - np.ones((D, D)) / D)
    lengths = np.linalg.norm(centred, axis=-1, keepdims=True)
    return centred / np.hypot(lengths / D**0.5, eps**0.5) @ np.diag(gain) + bias


def layer_norm_backward_mean_of_squares_less_square_of_mean(d_out, x, gain, eps):
    m, m2 = np.mean(x, axis=-1, keepdims=True), np.mean(x * x, axis=-1, keepdims=True)
    s = (m2 - m * m + eps) ** -0.5  # out = (x - m) s gain + bias
    g = d_out * gain
    d_s = np.sum(g * (x - m), axis=-1, keepdims=True)
    d_var = d_s * -0.5 * s**3
    d_m = -np.sum(g * s, axis=-1, keepdims=True) - 2 * m * d_var
    d_x = g * s + d_m / x.shape[-1] + d_var * 2 * x / x.shape[-1]
    tokens = tuple(range(x.ndim))[:-1]
    return d_x, np.sum(d_out * (x - m) * s, axis=tokens), np.sum(d_out, axis=tokens)


def layer_norm_backward_complex_step(d_out, x, gain, eps):
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
