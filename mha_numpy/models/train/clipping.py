"""Clipping: a gradient that is too long keeps its direction."""

import math

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, find_kernels
from mha_numpy.checks import check_number
from mha_numpy.dtypes import Array
from mha_numpy.layers import Layer
from mha_numpy.layers.layer import check_layer
from mha_numpy.models.train.movable import fitting_grads


def gradient_norm(layer: Layer) -> float:
    """Return the length of all gradients as one vector: ``sqrt(sum of squares)``.

    The squares are summed in float64, where those of float32 cannot overflow; those of float64 are
    divided by the largest first, where they would.

    Raises
    ------
    ConfigError
        `layer` is not a Layer.
    ShapeError, DTypeError
        A gradient is not a float array like its param.

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

    Parameters
    ----------
    layer : Layer
        With gradients; here and below.
    max_norm : float
        The greatest length that is left as it is.

    Returns
    -------
    float
        The length before, as `gradient_norm` gives it.

    Raises
    ------
    ConfigError
        `layer` is not a Layer, or `max_norm` not a number > 0.
    ShapeError, DTypeError
        A gradient is not a float array like its param.

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
