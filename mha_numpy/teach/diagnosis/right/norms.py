"""Norms, which scale each token by its own numbers, and layer norm's way back."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array


def layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    """Give each token of x (B, T, D) mean 0 and variance 1, then scale and shift the features."""
    x_hat, _ = normalise(x, eps)
    scaled = x_hat * gain
    return scaled + bias


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """Give each token of x (B, T, D) mean square 1, then scale the features."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    normed = x / np.sqrt(mean_square + eps)
    return normed * gain


class LayerNormGrads(NamedTuple):
    """Gradients of layer norm's input, gain and bias."""

    d_x: Array
    d_gain: Array
    d_bias: Array


def layer_norm_backward(d_out: Array, x: Array, gain: Array, eps: float) -> LayerNormGrads:
    """Pull back through (x - mean) / sqrt(var + eps) * gain + bias for x (B, T, D)."""
    x_hat, inverse_std = normalise(x, eps)
    d_x = through_norm(d_out * gain, x_hat, inverse_std)
    d_gain = (d_out * x_hat).sum(axis=(0, 1))
    d_bias = d_out.sum(axis=(0, 1))
    return LayerNormGrads(d_x, d_gain, d_bias)


def normalise(x: Array, eps: float) -> tuple[Array, Array]:
    """Return (x - mean) / sqrt(var + eps) of each token, and 1 / sqrt(var + eps)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    inverse_std = 1 / np.sqrt(variance + eps)
    return centred * inverse_std, inverse_std


def through_norm(d_x_hat: Array, x_hat: Array, inverse_std: Array) -> Array:
    """Pull back through the normalisation: a feature moves its token's mean and variance, too."""
    by_mean = d_x_hat.mean(axis=-1, keepdims=True)
    by_variance = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    return inverse_std * (d_x_hat - by_mean - by_variance)
