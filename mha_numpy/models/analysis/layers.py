"""The attention layers of a model by their names."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from mha_numpy.checks import check_integer, check_shape
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.layers import Layer, MultiHeadAttention


def attention_layers(model: Layer) -> dict[str, MultiHeadAttention]:
    """Return all attention layers of a model by their dotted names, as `named_layers` orders them.

    Examples
    --------
    >>> from mha_numpy.models import TransformerLM
    >>> model = TransformerLM(vocab_size=65, max_tokens=32, embed_dim=16, num_heads=2)
    >>> list(attention_layers(model))
    ['blocks.0.attention.layer', 'blocks.1.attention.layer']
    """
    return {
        name: layer for name, layer in model.named_layers() if isinstance(layer, MultiHeadAttention)
    }


def check_counted(
    counted: Any, axes: str, sizes: dict[str, int], to_match: str, name: str = "counted"
) -> Array:
    """Return which tokens count, as bools of these axes; by default all."""
    shape = [sizes[axis] for axis in axes.split()]
    counted = np.ones(shape, bool) if counted is None else np.asarray(counted, bool)
    check_shape(name, counted, axes, sizes, to_match=to_match)
    return counted


def check_heads(heads: Any, layer: MultiHeadAttention) -> list[int]:
    """Return numbers of heads as a list, or raise a ConfigError."""
    numbers = [check_integer("heads", h) for h in np.atleast_1d(np.asarray(heads, object))]
    if not all(0 <= h < layer.num_heads for h in numbers):
        raise ConfigError(f"heads: expected numbers from 0 to {layer.num_heads - 1}; got {heads}")
    return numbers


def check_layers(model: Layer, names: Iterable[str]) -> dict[str, MultiHeadAttention]:
    """Return the attention layers of these names, or raise a ConfigError."""
    layers = attention_layers(model)
    for name in names:
        if name not in layers:
            meant = did_you_mean(str(name), layers) or "`attention_layers` lists them"
            raise ConfigError(f"heads: expected names of attention layers; got {name!r}; {meant}")
    return {name: layers[name] for name in names}
