"""The rectified linear unit, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_type
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import is_watched, step


def relu_steps(x: Array) -> Array:
    """Keep what is positive."""
    # 1. cut off below 0
    return np.where(x.real <= 0, 0, x)  # NaN stays NaN


def relu_steps_backward(d_out: Array, x: Array) -> Array:
    """Pull the gradient back to x: it passes where x did."""
    # 1. out = x where x > 0, else 0
    return np.where(x.real <= 0, 0, d_out)


class ReluCache(NamedTuple):
    """What `relu_backward` needs."""

    x: Array
    dtype: np.dtype[Any]
    backend: str


class ReluGrads(NamedTuple):
    """The gradient of the one input."""

    d_x: Array


def relu_forward(x: Array) -> tuple[Array, ReluCache]:
    """Replace every negative number by 0: ``out = max(x, 0)``.

    Parameters
    ----------
    x : float array of any shape

    Returns
    -------
    out : array like `x`
    cache : ReluCache

    Raises
    ------
    DTypeError, ConfigError, BackendError
        `x` is not a float array.

    Notes
    -----
    At 0, where there are two slopes, the gradient is 0, as in PyTorch. Source: Nair and Hinton
    2010, *Rectified linear units improve restricted Boltzmann machines*.

    Examples
    --------
    >>> relu_forward(np.array([-2.0, 0.0, 3.0]))[0]
    array([0., 0., 3.])
    """
    dtype, (x,) = as_computed(x=x)
    kernels = find_kernels(ONE_PASS_KERNELS, x)
    out = (relu_steps if kernels is None else kernels.relu)(x)
    if is_watched():
        step("x", x, axes_of(x, "F"))
        step("out", out, axes_of(x, "F"), "np.maximum(x, 0)")
    return out.astype(dtype, copy=False), ReluCache(x, dtype, chosen_backend())


def relu_backward(d_out: Array, cache: ReluCache) -> ReluGrads:
    """Pull a gradient back through ReLU: ``d_x = d_out`` where ``x > 0``, else 0.

    Parameters
    ----------
    d_out : float array like `x`
    cache : ReluCache

    Returns
    -------
    ReluGrads
        ``d_x``.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Examples
    --------
    >>> out, cache = relu_forward(np.array([-2.0, 0.0, 3.0]))
    >>> relu_backward(np.array([5.0, 6.0, 7.0]), cache).d_x
    array([0., 0., 7.])
    """
    check_type("cache", cache, ReluCache, "relu_forward")
    x, dtype, backend = cache
    d_out = as_gradient(d_out, x.shape, x.dtype)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, x, backend=backend)
    d_x = (relu_steps_backward if kernels is None else kernels.relu_backward)(d_out, x)
    if is_watched():
        step("d_out", d_out, axes_of(x, "F"))
        step("d_x", d_x, axes_of(x, "F"), "np.where(x > 0, d_out, 0)")
    return ReluGrads(d_x.astype(dtype, copy=False))
