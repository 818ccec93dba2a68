"""Root-mean-square normalisation, forward and backward."""

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


class RMSNormSteps(NamedTuple):
    """What forward's steps compute."""

    inverse_rms: Array  # (..., 1)
    x_hat: Array  # (..., D): of mean square 1
    out: Array  # (..., D)


def rms_norm_steps(x: Array, gain: Array, eps: float) -> RMSNormSteps:
    """Normalise each token (..., D) by its own root mean square."""
    # 1. divide by the root of the mean square
    inverse_rms = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = x * inverse_rms

    # 2. scale
    out = x_hat * gain
    return RMSNormSteps(inverse_rms, x_hat, out)


def rms_norm_steps_backward(
    d_out: Array, x_hat: Array, inverse_rms: Array, gain: Array
) -> tuple[Array, Array]:
    """Pull the gradient (..., D) back to x and gain."""
    # 2. out = x_hat * gain
    d_gain = sum_over_tokens(d_out * x_hat)
    d_x_hat = d_out * gain

    # 1. x_hat = x * inverse_rms: each feature also moves the root mean square of its token
    by_rms = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    d_x = inverse_rms * (d_x_hat - by_rms)
    return d_x, d_gain


class RMSNormCache(NamedTuple):
    """What `rms_norm_backward` needs."""

    x_hat: Array  # (..., D), in the dtype of the computation
    inverse_rms: Array  # (..., 1)
    gain: Array  # (D,)
    dtype: np.dtype[Any]
    backend: str


class RMSNormGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_gain: Array  # (D,)


def rms_norm_forward(x: Array, gain: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormCache]:
    """Give each token mean square 1, then scale each feature.

    ``out = x / sqrt(mean(x^2) + eps) * gain``, the mean over the D features of each token alone.

    Parameters
    ----------
    x : (..., D) float array
        Any number of leading axes; (B, T, D) for tokens.
    gain : (D,) float array
    eps : float
        > 0; keeps a token of zeros from being divided by 0.

    Returns
    -------
    out : (..., D) array
    cache : RMSNormCache

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        An argument is not a float array, the sizes do not match, or `eps` is not positive.

    Notes
    -----
    It is layer normalisation without centring and without a bias. Source: Zhang and Sennrich 2019,
    *Root mean square layer normalization*, eq. 4. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = rms_norm_forward(np.array([[3.0, -4.0]]), np.ones(2))
    >>> out.round(3)  # divided by the root of 12.5
    array([[ 0.849, -1.131]])
    """
    dtype, (x, gain) = as_computed(x=x, gain=gain)
    check_shape("gain", gain, "D", {})
    check_width(x, len(gain), f"gain {gain.shape}")
    eps = check_number("eps", eps, positive=True)

    kernels = find_kernels(ONE_PASS_KERNELS, x)
    if kernels is None:
        inverse_rms, x_hat, out = steps = rms_norm_steps(x, gain, eps)
        if is_watched():
            _record(x, gain, eps, steps)
    else:
        inverse_rms, x_hat, out = kernels.norm(x, gain, None, eps, centres=False)
    cache = RMSNormCache(x_hat, inverse_rms, gain, dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def rms_norm_backward(d_out: Array, cache: RMSNormCache) -> RMSNormGrads:
    """Pull a gradient back through the normalisation.

    ``d_x = (d_x_hat - x_hat * mean(d_x_hat * x_hat)) / rms`` with ``d_x_hat = d_out * gain``.

    Parameters
    ----------
    d_out : (..., D) float array
    cache : RMSNormCache

    Returns
    -------
    RMSNormGrads
        ``d_x`` and ``d_gain``.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Notes
    -----
    Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = rms_norm_forward(np.array([[3.0, -4.0]]), np.ones(2))
    >>> d_x, d_gain = rms_norm_backward(out, cache)  # along the token: its length is normalised
    >>> bool(np.allclose(d_x, 0, atol=1e-6))
    True
    """
    check_type("cache", cache, RMSNormCache, "rms_norm_forward")
    x_hat, inverse_rms, gain, dtype, backend = cache
    d_out = as_gradient(d_out, x_hat.shape, x_hat.dtype)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, x_hat, backend=backend)
    if kernels is None:
        d_x, d_gain = rms_norm_steps_backward(d_out, x_hat, inverse_rms, gain)
    else:
        d_x, d_gain, _ = kernels.norm_backward(d_out, x_hat, inverse_rms, gain, centres=False)
    if is_watched():
        _record_backward(d_out, d_x, d_gain)
    return RMSNormGrads(d_x.astype(dtype, copy=False), d_gain.astype(dtype, copy=False))


def _record(x: Array, gain: Array, eps: float, steps: RMSNormSteps) -> None:
    """Record forward's steps."""
    axes = axes_of(x)
    step("x", x, axes)
    constant("gain", gain, "D")
    constant("eps", eps)
    equation = "1 / np.sqrt((x ** 2).mean(axis=-1, keepdims=True) + eps)"
    step("inverse_rms", steps.inverse_rms, axes_of(x, "1"), equation)
    step("x_hat", steps.x_hat, axes, "x * inverse_rms")
    step("out", steps.out, axes, "x_hat * gain")


def _record_backward(d_out: Array, d_x: Array, d_gain: Array) -> None:
    """Record backward's steps."""
    axes = axes_of(d_out)
    step("d_out", d_out, axes)
    step("d_gain", d_gain, "D", sum_equation("d_out * x_hat", d_out))
    by_rms = "x_hat * (d_out * gain * x_hat).mean(axis=-1, keepdims=True)"
    step("d_x", d_x, axes, f"inverse_rms * (d_out * gain - {by_rms})")
