"""Params that an optimizer can move, and their gradients: checked, measured, clipped."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, find_kernels
from mha_numpy.checks import check_number
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError, describe
from mha_numpy.layers import Layer
from mha_numpy.layers.layer import check_layer


def movable_params(layer: Layer) -> dict[str, Array]:
    """Return a layer's params by their dotted names, or raise an error if one cannot move."""
    params = dict(layer.named_params())
    if not params:
        raise ConfigError(
            f"layer: expected one with params; got a {type(layer).__name__} without any"
        )
    for name, param in params.items():
        if advice := _advice(param):
            raise ConfigError(
                f"{name}: expected a float32 or float64 array, which can move in small steps; "
                f"got {describe(param)}; write {advice.format(name.rpartition('.')[2])}"
            )
    by_address = sorted(params, key=lambda name: params[name].ctypes.data)
    for first, second in pairwise(by_address):  # each would move what the other has just moved
        if np.shares_memory(params[first], params[second]):
            raise ConfigError(
                f"{second}: expected its own memory; it shares some with {first}; write "
                "Unembedding(embedding) for a table that two layers use, and .copy() otherwise"
            )
    return params


def fitting_grads(layer: Layer) -> dict[str, Array]:
    """Return a layer's gradients by the dotted names of its params; zeros if none came."""
    params = dict(layer.named_params())
    grads = {name: as_float_array(name, gradient) for name, gradient in layer.named_grads()}
    for name, gradient in grads.items():
        shape = np.shape(params[name])
        if gradient.shape != shape:
            raise ShapeError(
                f"{name}: expected a gradient {shape} like the param; got {gradient.shape}"
            )
    return grads


def _advice(param: Any) -> str:
    if not isinstance(param, np.ndarray):
        return "np.array(params['{}'], float)"
    if param.dtype.kind != "f":
        return "params['{}'].astype(float)"
    return "layer.astype(np.float32)" if param.dtype == np.float16 else ""


def gradient_norm(layer: Layer) -> float:
    """Return the length of all gradients as one vector: ``sqrt(sum of squares)``.

    The squares are summed in float64, in which squares of float32 numbers cannot overflow. If those
    of float64 numbers would, the numbers are first divided by the largest.

    Examples
    --------
    >>> from mha_numpy.layers import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([3.0, -4.0])
    >>> gradient_norm(layer)
    5.0
    """
    check_layer("layer", layer)
    grads = list(fitting_grads(layer).values())
    total = sum(_sum_of_squares(gradient, layer.backend) for gradient in grads)
    if total < math.inf or not all(np.isfinite(gradient).all() for gradient in grads):
        return math.sqrt(total)
    largest = max(np.abs(gradient).max(initial=0) for gradient in grads)  # whose square overflows
    return float(largest) * math.sqrt(sum(_sum_of_squares(g / largest, "numpy") for g in grads))


def _sum_of_squares(x: Array, backend: str | None) -> float:
    """Return the sum of all squares, taken in float64."""
    kernels = find_kernels(ONE_PASS_KERNELS, x, backend=backend)
    if kernels is not None:
        return kernels.sum_of_squares(x)
    flat = x.reshape(-1)
    return float(np.einsum("i,i", flat, flat, dtype=np.float64))


def clip_gradients(layer: Layer, max_norm: float) -> float:
    """Shorten all gradients by one factor, so that together they are no longer than `max_norm`.

    Return the length before, as `gradient_norm` does.

    Parameters
    ----------
    layer : Layer
        With gradients; here and below.
    max_norm : float
        The greatest length that stays unchanged.

    Notes
    -----
    Source: Pascanu et al. 2013, algorithm 1. PyTorch adds 1e-6 to the length that it divides by.

    Examples
    --------
    >>> from mha_numpy.layers import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([3.0, -4.0])
    >>> clip_gradients(layer, 1.0), layer.grads["gain"]
    (5.0, array([ 0.6, -0.8]))
    """
    max_norm = check_number("max_norm", max_norm, positive=True)
    norm = gradient_norm(layer)
    if norm > max_norm:
        for part in layer.layers():
            part.grads = {name: g * (max_norm / norm) for name, g in part.grads.items()}
    return norm
