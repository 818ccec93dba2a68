"""Gradients beside attention's own: dropout, head gates, head importance, layer norm."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.mistakes.flawed.made import RIGHT, Made, by_batch


def dropout_backward(d_dropped: Array, keep: Array, p: float, made: Made = RIGHT) -> Array:
    """Pull back through weights * keep / (1 - p)."""
    d_dropped, made = by_batch(d_dropped, made)
    if "dropout ignored in backward" in made:
        return d_dropped
    if "keep not applied" in made:
        return d_dropped / (1 - p)
    if "keep inverted" in made:
        keep = ~keep
    if "dropout not undone by 1/(1-p)" in made:
        return d_dropped * keep
    if "dropout: times 1-p" in made:
        return d_dropped * keep * (1 - p)
    if "dropout: divided by p" in made:
        return d_dropped * keep / p
    return d_dropped * keep / (1 - p)


def d_head_gate(d_gated: Array, heads: Array, made: Made = RIGHT) -> Array:
    """Return the gradient (H,) of the gate in heads * gate[:, None, None]."""
    shares = d_gated * heads  # (B, H, T, d)
    if "gate gradient from d_gated alone" in made:
        shares = d_gated
    if "gate gradient from heads alone" in made:
        shares = heads
    if "gate gradient not summed" in made:
        return shares
    if "gate gradient of each sequence" in made:
        return shares.sum(axis=(2, 3))
    if "gate gradient of each feature" in made:
        return shares.sum(axis=(0, 2))
    if "gate gradient summed over the heads" in made:
        return shares.sum(axis=(1, 2, 3))
    if "gate gradient of the last sequence alone" in made:
        return shares[-1].sum(axis=(1, 2))
    if "gate gradient: mean over the batch" in made:
        return shares.sum(axis=(2, 3)).mean(axis=0)
    if "gate gradient: mean" in made:
        return shares.mean(axis=(0, 2, 3))
    return shares.sum(axis=(0, 2, 3))


def head_importance(d_gated: Array, heads: Array, made: Made = RIGHT) -> Array:
    """Return the mean over sequences of each one's absolute gate gradient: (H,)."""
    shares = d_gated * heads  # (B, H, T, d)
    if "importance from d_gated alone" in made:
        shares = d_gated
    if "importance from heads alone" in made:
        shares = heads
    if "absolute value of each number" in made:
        shares = np.abs(shares)
    of_each = shares.sum(axis=(2, 3))  # (B, H)
    if "absolute value of each token" in made:
        of_each = np.abs(shares.sum(axis=3)).sum(axis=2)
    if "importance: mean over the tokens" in made:
        of_each = shares.sum(axis=3).mean(axis=2)
    if "absolute value after the sum" in made:
        return np.abs(of_each.sum(axis=0))
    if "absolute value after the mean" in made:
        return np.abs(of_each.mean(axis=0))
    if "no absolute value" in made:
        return of_each.mean(axis=0)
    if "squares for absolute values" in made:
        return (of_each**2).mean(axis=0)
    if "importance summed over the batch" in made:
        return np.abs(of_each).sum(axis=0)
    if "importance: mean over the heads" in made:
        return np.abs(of_each).mean(axis=1)
    importance = np.abs(of_each).mean(axis=0)
    if "importance divided by its norm" in made:
        return importance / np.linalg.norm(importance)
    return importance


class LayerNormGrads(NamedTuple):
    """Gradients of layer norm's input, gain and bias."""

    d_x: Array
    d_gain: Array
    d_bias: Array


def layer_norm_backward(
    d_out: Array, x: Array, gain: Array, eps: float, made: Made = RIGHT
) -> LayerNormGrads:
    """Pull back through (x - mean) / sqrt(var + eps) * gain + bias for x (B, T, D)."""
    d_out, made = by_batch(d_out, made)
    axis: int | tuple[int, ...] = -1
    if "norm over the tokens" in made:
        axis = -2
    if "norm over batch and tokens" in made:
        axis = (0, 1)
    centred = x - x.mean(axis=axis, keepdims=True)
    inverse = _inverse_deviation(centred, axis, eps, made)
    x_hat = centred * inverse

    d_x_hat = d_out if "gain forgotten" in made else d_out * gain
    mean = np.sum if "norm: sums instead of means" in made else np.mean
    d_x = d_x_hat
    if "gradient through the mean left out" not in made:
        d_x = d_x - mean(d_x_hat, axis=axis, keepdims=True)
    if "gradient through the variance left out" not in made:
        d_x = d_x - x_hat * mean(d_x_hat * x_hat, axis=axis, keepdims=True)
    if "1/std left out" not in made:
        d_x = inverse * d_x

    d_gain = d_out * (x if "d_gain made from x" in made else x_hat)
    return LayerNormGrads(d_x, _sum(d_gain, "d_gain", made), _sum(d_out, "d_bias", made))


def _inverse_deviation(
    centred: Array, axis: int | tuple[int, ...], eps: float, made: Made
) -> Array:
    """Return 1 / sqrt(var + eps)."""
    variance = (centred**2).mean(axis=axis, keepdims=True)
    if "variance by n - 1" in made:
        n = centred.size // variance.size
        variance = variance * n / (n - 1)
    if "eps left out" in made:
        return 1 / np.sqrt(variance)
    if "eps outside the root" in made:
        return 1 / (np.sqrt(variance) + eps)
    return 1 / np.sqrt(variance + eps)


def _sum(shares: Array, name: str, made: Made) -> Array:
    """Sum (B, T, D) over batch and tokens."""
    if f"{name} of the last sequence alone" in made:
        return shares[-1].sum(axis=0)
    if f"{name} over the batch alone" in made:
        return shares.sum(axis=0)
    if f"{name}: mean" in made:
        return shares.mean(axis=(0, 1))
    return shares.sum(axis=(0, 1))
