"""The Gaussian error linear unit, exact and by tanh; forward and backward."""

import math
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_choice, check_type
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.layers.erf import erf, erf_slope
from mha_numpy.steps import constant, is_watched, step

APPROXIMATIONS = ("none", "tanh")
CUBIC = 0.044715
SLOPE = math.sqrt(2 / math.pi)


class GeluSteps(NamedTuple):
    """What forward's steps compute."""

    share: Array  # of each number that passes
    out: Array


def gelu_steps(x: Array, approximate: str) -> GeluSteps:
    """Multiply each number by the share of normally distributed numbers that lie below it."""
    # 1. share
    if approximate == "tanh":
        share = (1 + np.tanh(SLOPE * x * (1 + CUBIC * x**2))) / 2
    else:
        share = (1 + erf(x / math.sqrt(2))) / 2

    # 2. multiply
    out = x * share
    return GeluSteps(share, out)


def gelu_steps_backward(d_out: Array, x: Array, share: Array, approximate: str) -> Array:
    """Pull the gradient back to x, which counts twice: as itself and in its share."""
    # 2. out = x * share
    d_x = d_out * share
    d_share = d_out * x

    # 1. share = (1 + tanh(...)) / 2, or the same with erf
    if approximate == "tanh":
        inner_slope = SLOPE * (1 + 3 * CUBIC * x**2)
        slope = 2 * share * (1 - share) * inner_slope  # (1 - tanh^2) / 2 = 2 share (1 - share)
    else:
        slope = erf_slope(x / math.sqrt(2)) / math.sqrt(8)
    return d_x + d_share * slope


class GeluCache(NamedTuple):
    """What `gelu_backward` needs."""

    x: Array
    share: Array
    approximate: str
    dtype: np.dtype[Any]
    backend: str


class GeluGrads(NamedTuple):
    """The gradient of the one input."""

    d_x: Array


def gelu_forward(x: Array, *, approximate: str = "none") -> tuple[Array, GeluCache]:
    """Multiply each number by the probability that a normal one is smaller.

    ``out = x * (1 + erf(x / sqrt(2))) / 2``; with ``approximate="tanh"``
    ``out = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2``.

    Parameters
    ----------
    x : float array of any shape
    approximate : {"none", "tanh"}
        GPT-2 was trained with "tanh", BERT with "none"; they differ by at most 0.0005.

    Returns
    -------
    out : array like `x`
    cache : GeluCache

    Raises
    ------
    DTypeError, ConfigError, BackendError
        `x` is not a float array, or there is no such approximation.

    Notes
    -----
    GELU is a smooth ReLU. NumPy has no erf, so the exact form computes it by a series.
    Source: Hendrycks and Gimpel 2016, *Gaussian error linear units*, section 2. Derivation:
    ``docs/blocks.md``.

    Examples
    --------
    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(4)
    array([-0.1587,  0.    ,  0.8413])
    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]), approximate="tanh")[0].round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    check_choice("approximate", approximate, APPROXIMATIONS)
    dtype, (x,) = as_computed(x=x)
    kernels = find_kernels(ONE_PASS_KERNELS, x)
    share, out = (gelu_steps if kernels is None else kernels.gelu)(x, approximate)
    if is_watched():
        _record(x, approximate, share, out)
    return out.astype(dtype, copy=False), GeluCache(x, share, approximate, dtype, chosen_backend())


def gelu_backward(d_out: Array, cache: GeluCache) -> GeluGrads:
    """Pull a gradient back through GELU: ``d_x = d_out * (share + x * slope of share)``.

    Parameters
    ----------
    d_out : float array like `x`
    cache : GeluCache

    Returns
    -------
    GeluGrads
        ``d_x``.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Notes
    -----
    The share's slope is the normal density ``e^(-x^2 / 2) / sqrt(2 pi)``. Derivation:
    ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = gelu_forward(np.array([-1.0, 0.0, 1.0]))
    >>> gelu_backward(np.ones(3), cache).d_x.round(4)
    array([-0.0833,  0.5   ,  1.0833])
    """
    check_type("cache", cache, GeluCache, "gelu_forward")
    x, share, approximate, dtype, backend = cache
    d_out = as_gradient(d_out, x.shape, x.dtype)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, x, backend=backend)
    steps_backward = gelu_steps_backward if kernels is None else kernels.gelu_backward
    d_x = steps_backward(d_out, x, share, approximate)
    if is_watched():
        _record_backward(d_out, d_x, approximate)
    return GeluGrads(d_x.astype(dtype, copy=False))


def _record(x: Array, approximate: str, share: Array, out: Array) -> None:
    """Record forward's steps."""
    axes = axes_of(x, "F")
    step("x", x, axes)
    if approximate == "tanh":
        constant("slope", SLOPE)
        constant("cubic", CUBIC)
        step("share", share, axes, "(1 + np.tanh(slope * x * (1 + cubic * x ** 2))) / 2")
    else:
        step("share", share, axes, "(1 + erf(x / np.sqrt(2))) / 2")
    step("out", out, axes, "x * share")


def _record_backward(d_out: Array, d_x: Array, approximate: str) -> None:
    """Record backward's steps."""
    axes = axes_of(d_x, "F")
    step("d_out", d_out, axes)
    slope = "np.exp(-(x ** 2) / 2) / np.sqrt(2 * np.pi)"
    if approximate == "tanh":
        slope = "2 * share * (1 - share) * slope * (1 + 3 * cubic * x ** 2)"
    step("d_x", d_x, axes, f"d_out * (share + x * {slope})")
