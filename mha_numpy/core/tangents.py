"""Tangents: how fast the inputs of a function move, given by name or in order."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array, as_float_array, promote
from mha_numpy.errors import ConfigError, ShapeError, describe

Shapes = Mapping[str, tuple[int, ...] | None]  # of the inputs; None for one that was not passed


def tangents_of(
    tangents: Any, shapes: Shapes, inner: np.dtype[Any], *, called: str = "tangents"
) -> dict[str, Any]:
    """Return the tangent of each input, in a dtype to compute in: 0 where it does not move.

    `by_name` reads them. An input that was not passed has None.
    """
    given = by_name(tangents, list(shapes), called=called)
    return {name: _tangent(name, given[name], shape, inner) for name, shape in shapes.items()}


def tangents_with_params(
    tangents: Any,
    grads: Sequence[str],
    shapes: Shapes,
    of_params: Shapes,
    inner: np.dtype[Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tangents of the inputs and options by name, and those of the params.

    They come in the order of the gradients, of which ``d_params`` is one.
    """
    given = by_name(tangents, [name.removeprefix("d_") for name in grads])
    params_dot = tangents_of(given.pop("params"), of_params, inner, called="params")
    return tangents_of(given, shapes, inner), params_dot


def by_name(tangents: Any, names: Sequence[str], *, called: str = "tangents") -> dict[str, Any]:
    """Return the tangent of each name, None for those that are not given.

    They come as a dict by name, as a tuple in order, or by itself if there is only one name.
    """
    if isinstance(tangents, Mapping):
        for name in tangents:
            if name not in names:
                raise ConfigError(f"{called}: expected names among {list(names)}; got {name!r}")
        given = dict(tangents)
    elif len(names) == 1 and not (isinstance(tangents, tuple) and len(tangents) == 1):
        given = {names[0]: tangents}
    elif isinstance(tangents, (tuple, list)):
        if len(tangents) > len(names):
            raise ConfigError(f"{called}: expected {len(names)}, {names}; got {len(tangents)}")
        given = dict(zip(names, tangents, strict=False))
    elif tangents is None:
        given = {}
    else:
        raise ConfigError(
            f"{called}: expected a dict by the names {list(names)}, or a tuple in their order; "
            f"got {describe(tangents)}"
        )
    return {name: given.get(name) for name in names}


def shapes_of(arrays: Mapping[str, Array | None]) -> Shapes:
    """Return the shapes of inputs by name."""
    return {name: shape_of(x) for name, x in arrays.items()}


def shape_of(x: Array | None) -> tuple[int, ...] | None:
    """Return an input's shape, or None for an input that was not passed."""
    return None if x is None else x.shape


def _tangent(
    name: str, tangent: Any, shape: tuple[int, ...] | None, inner: np.dtype[Any]
) -> Array | None:
    if shape is None:
        if tangent is not None:
            raise ConfigError(f"{name}_dot: expected None, as forward had no {name}; got a tangent")
        return None
    if tangent is None:
        return np.zeros(shape, inner)
    tangent = as_float_array(f"{name}_dot", tangent)
    if tangent.shape != shape:
        raise ShapeError(f"{name}_dot: expected {shape}, as {name}; got {tangent.shape}")
    return tangent.astype(promote(inner, tangent.dtype), copy=False)
