"""Dropout, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_broadcast, check_type
from mha_numpy.core.shapes import broadcast_axes
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import constant, is_watched, step


def dropout_steps(x: Array, dropout_mask: Array) -> Array:
    """Drop some numbers and enlarge the others."""
    # 1. multiply by 0 or 1 / (1 - p)
    return x * dropout_mask


def dropout_steps_backward(d_out: Array, dropout_mask: Array) -> Array:
    """Pull the gradient back to x: what was dropped has none."""
    # 1. out = x * dropout_mask
    return d_out * dropout_mask


class DropoutCache(NamedTuple):
    """What `dropout_backward` needs."""

    dropout_mask: Array  # 0 or 1 / (1 - p), broadcasts to the output
    shape: tuple[int, ...]  # of the output
    dtype: np.dtype[Any]


class DropoutGrads(NamedTuple):
    """The gradient of the one differentiable input."""

    d_x: Array


def dropout_forward(x: Array, dropout_mask: Array) -> tuple[Array, DropoutCache]:
    """Multiply by a mask of 0 and ``1 / (1 - p)``: ``out = x * dropout_mask``.

    Parameters
    ----------
    x : float array of any shape
    dropout_mask : float array that broadcasts to `x`
        Drawn outside, by the layer, so that a gradient can be checked.

    Returns
    -------
    out : array like `x`
    cache : DropoutCache

    Raises
    ------
    DTypeError, ShapeError
        An argument is not a float array, or the mask does not fit.

    Notes
    -----
    Source: Srivastava et al. 2014, *Dropout*; scaling what is kept: section 10, "inverted".

    Examples
    --------
    >>> dropout_forward(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0]))[0]
    array([0., 4., 6.])
    """
    dtype, (x, dropout_mask) = as_computed(x=x, dropout_mask=dropout_mask)
    check_broadcast("dropout_mask", dropout_mask, x.shape, axes_of(x))
    out = dropout_steps(x, dropout_mask)
    if is_watched():
        step("x", x, axes_of(x))
        mask_axes = broadcast_axes(dropout_mask.shape, axes_of(x), x.shape)
        constant("dropout_mask", dropout_mask, mask_axes)
        step("out", out, axes_of(x), "x * dropout_mask")
    return out.astype(dtype, copy=False), DropoutCache(dropout_mask, x.shape, dtype)


def dropout_backward(d_out: Array, cache: DropoutCache) -> DropoutGrads:
    """Pull a gradient back through dropout, by the same mask: ``d_x = d_out * dropout_mask``.

    Parameters
    ----------
    d_out : float array like `x`
    cache : DropoutCache

    Returns
    -------
    DropoutGrads
        ``d_x``.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Examples
    --------
    >>> out, cache = dropout_forward(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0]))
    >>> dropout_backward(np.ones(3), cache).d_x
    array([0., 2., 2.])
    """
    check_type("cache", cache, DropoutCache, "dropout_forward")
    dropout_mask, shape, dtype = cache
    d_out = as_gradient(d_out, shape, dropout_mask.dtype)
    d_x = dropout_steps_backward(d_out, dropout_mask)
    if is_watched():
        step("d_out", d_out, axes_of(d_out))
        step("d_x", d_x, axes_of(d_out), "d_out * dropout_mask")
    return DropoutGrads(d_x.astype(dtype, copy=False))
