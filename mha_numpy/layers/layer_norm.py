"""Layer normalisation, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_number, check_shape, check_type
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import (
    as_computed,
    as_gradient,
    axes_of,
    check_width,
    sum_equation,
    sum_over_tokens,
)
from mha_numpy.steps import constant, is_watched, step


class LayerNormSteps(NamedTuple):
    """What forward's steps compute."""

    centred: Array  # (..., D): each token less its own mean
    inverse_std: Array  # (..., 1)
    x_hat: Array  # (..., D): of mean 0 and variance 1
    out: Array  # (..., D)


def layer_norm_steps(x: Array, gain: Array, bias: Array | None, eps: float) -> LayerNormSteps:
    """Normalise each token (..., D) by its own mean and variance."""
    # 1. centre
    centred = x - x.mean(axis=-1, keepdims=True)

    # 2. divide by the standard deviation
    inverse_std = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = centred * inverse_std

    # 3. scale and shift
    out = x_hat * gain if bias is None else x_hat * gain + bias
    return LayerNormSteps(centred, inverse_std, x_hat, out)


def layer_norm_steps_backward(
    d_out: Array, x_hat: Array, inverse_std: Array, gain: Array
) -> tuple[Array, Array, Array]:
    """Pull the gradient (..., D) back to x, gain and bias."""
    # 3. out = x_hat * gain + bias
    d_gain = sum_over_tokens(d_out * x_hat)
    d_bias = sum_over_tokens(d_out)
    d_x_hat = d_out * gain

    # 2. x_hat = centred * inverse_std: each feature also moves the deviation of its token
    by_std = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    d_centred = inverse_std * (d_x_hat - by_std)

    # 1. centred = x - mean: each feature also moves the mean of its token
    d_x = d_centred - d_centred.mean(axis=-1, keepdims=True)
    return d_x, d_gain, d_bias


class LayerNormCache(NamedTuple):
    """What `layer_norm_backward` needs."""

    x_hat: Array  # (..., D), in the dtype of the computation
    inverse_std: Array  # (..., 1)
    gain: Array  # (D,)
    has_bias: bool
    dtype: np.dtype[Any]
    backend: str


class LayerNormGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_gain: Array  # (D,)
    d_bias: Array | None  # (D,)


def layer_norm_forward(
    x: Array,
    gain: Array,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
) -> tuple[Array, LayerNormCache]:
    """Give each token mean 0 and variance 1, then scale and shift each feature.

    ``out = (x - mean) / sqrt(variance + eps) * gain + bias``, mean and variance over the D
    features of each token alone.

    Parameters
    ----------
    x : (..., D) float array
        Any number of leading axes; (B, T, D) for tokens.
    gain : (D,) float array
    bias : (D,) float array, optional
    eps : float
        > 0; keeps a constant token from being divided by 0.

    Returns
    -------
    out : (..., D) array
    cache : LayerNormCache

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        An argument is not a float array, the sizes do not match, or `eps` is not positive.

    Notes
    -----
    The variance divides by D, not by D - 1. Source: Ba, Kiros and Hinton 2016, *Layer
    normalization*, eq. 3. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = layer_norm_forward(np.array([[1.0, 3.0], [5.0, 5.0]]), np.ones(2))
    >>> out.round(3)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    dtype, (x, gain, bias) = as_computed(x=x, gain=gain, bias=bias)
    sizes: dict[str, int] = {}
    check_shape("gain", gain, "D", sizes)
    if bias is not None:
        check_shape("bias", bias, "D", sizes, to_match=f"gain {gain.shape}")
    check_width(x, sizes["D"], f"gain {gain.shape}")
    eps = check_number("eps", eps, positive=True)

    kernels = find_kernels(ONE_PASS_KERNELS, x)
    if kernels is None:
        steps = layer_norm_steps(x, gain, bias, eps)
        _, inverse_std, x_hat, out = steps
        if is_watched():
            _record(x, gain, bias, eps, steps)
    else:
        inverse_std, x_hat, out = kernels.norm(x, gain, bias, eps, centres=True)
    cache = LayerNormCache(x_hat, inverse_std, gain, bias is not None, dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def layer_norm_backward(d_out: Array, cache: LayerNormCache) -> LayerNormGrads:
    """Pull a gradient back through layer normalisation.

    ``d_x = (d_x_hat - mean(d_x_hat) - x_hat * mean(d_x_hat * x_hat)) / std`` with
    ``d_x_hat = d_out * gain``: what does not change the normalised token has no gradient.

    Parameters
    ----------
    d_out : (..., D) float array
    cache : LayerNormCache

    Returns
    -------
    LayerNormGrads
        ``d_x``, ``d_gain``, and ``d_bias`` (None if there was no bias).

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Notes
    -----
    Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = layer_norm_forward(np.array([[1.0, 3.0, 8.0]]), np.ones(3), np.zeros(3))
    >>> d_x, d_gain, d_bias = layer_norm_backward(np.array([[1.0, 1.0, 1.0]]), cache)
    >>> bool(np.allclose(d_x, 0)), d_bias  # the same shift of all features changes nothing
    (True, array([1., 1., 1.]))
    """
    check_type("cache", cache, LayerNormCache, "layer_norm_forward")
    x_hat, inverse_std, gain, has_bias, dtype, backend = cache
    d_out = as_gradient(d_out, x_hat.shape, x_hat.dtype)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, x_hat, backend=backend)
    if kernels is None:
        d_x, d_gain, d_bias = layer_norm_steps_backward(d_out, x_hat, inverse_std, gain)
    else:
        d_x, d_gain, d_bias = kernels.norm_backward(d_out, x_hat, inverse_std, gain, centres=True)
    if is_watched():
        _record_backward(d_out, d_x, d_gain, d_bias if has_bias else None)
    d_x, d_gain, d_bias = (d.astype(dtype, copy=False) for d in (d_x, d_gain, d_bias))
    return LayerNormGrads(d_x, d_gain, d_bias if has_bias else None)


def _record(x: Array, gain: Array, bias: Array | None, eps: float, steps: LayerNormSteps) -> None:
    """Record forward's steps."""
    axes = axes_of(x)
    step("x", x, axes)
    constant("gain", gain, "D")
    constant("eps", eps)
    step("centred", steps.centred, axes, "x - x.mean(axis=-1, keepdims=True)")
    std = "np.sqrt((centred ** 2).mean(axis=-1, keepdims=True) + eps)"
    step("inverse_std", steps.inverse_std, axes_of(x, "1"), f"1 / {std}")
    step("x_hat", steps.x_hat, axes, "centred * inverse_std")
    if bias is not None:
        constant("bias", bias, "D")
    step("out", steps.out, axes, "x_hat * gain" + (" + bias" if bias is not None else ""))


def _record_backward(d_out: Array, d_x: Array, d_gain: Array, d_bias: Array | None) -> None:
    """Record backward's steps."""
    axes = axes_of(d_out)
    step("d_out", d_out, axes)
    step("d_gain", d_gain, "D", sum_equation("d_out * x_hat", d_out))
    if d_bias is not None:
        step("d_bias", d_bias, "D", sum_equation("d_out", d_out))
    by_mean = "(d_out * gain).mean(axis=-1, keepdims=True)"
    by_std = "x_hat * (d_out * gain * x_hat).mean(axis=-1, keepdims=True)"
    step("d_x", d_x, axes, f"inverse_std * (d_out * gain - {by_mean} - {by_std})")
