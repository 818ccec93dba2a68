"""Params that an optimizer can move, in memory of their own, and gradients that fit them."""

from itertools import pairwise
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError, describe
from mha_numpy.layers import Layer


def movable_params(layer: Layer) -> dict[str, Array]:
    """Return a layer's params by their dotted names.

    Raises
    ------
    ConfigError
        There are none, one is not an array of float32 or wider, or two share memory: each would
        move what the other has just moved.

    Examples
    --------
    >>> from mha_numpy.layers import Linear
    >>> list(movable_params(Linear(3, 4)))
    ['w', 'b']
    """
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
    for first, second in pairwise(by_address):
        if np.shares_memory(params[first], params[second]):
            raise ConfigError(
                f"{second}: expected memory of its own; got some of {first}; write "
                "Unembedding(embedding) for a table that two layers use, and .copy() otherwise"
            )
    return params


def fitting_grads(layer: Layer) -> dict[str, Array]:
    """Return a layer's gradients by the dotted names of its params.

    Raises
    ------
    DTypeError, ShapeError
        One is not a float array of its param's shape.

    Examples
    --------
    >>> from mha_numpy.layers import Linear
    >>> fitting_grads(Linear(3, 4))["b"]  # zeros where none came
    array([0., 0., 0., 0.])
    """
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
    """Return what to write instead of a param that cannot move; nothing where it can."""
    if not isinstance(param, np.ndarray):
        return "np.array(params['{}'], float)"
    if param.dtype.kind != "f":
        return "params['{}'].astype(float)"
    return "layer.astype(np.float32)" if param.dtype == np.float16 else ""
