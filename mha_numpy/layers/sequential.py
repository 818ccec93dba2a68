"""Layers one after the other."""

from collections.abc import Iterator
from typing import overload

from mha_numpy.core.pair import axes_of
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError
from mha_numpy.layers.layer import Layer, check_layer
from mha_numpy.steps import step


class Sequential(Layer):
    """Layers one after the other: each reads what the one before returns.

    Parameters
    ----------
    *parts : Layer
        At least one. Each takes one array and returns one. ``layer[0]`` is the first, and
        ``layer[1:]`` a Sequential of the others, with the same params.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.layers import Activation, Linear
    >>> layer = Sequential(Linear(3, 8), Activation("relu"), Linear(8, 2))
    >>> layer(np.ones((5, 3))).shape, layer.num_parameters
    ((5, 2), 50)
    >>> len(layer), layer[-1], layer[:2](np.ones((5, 3))).shape
    (3, Linear(inputs=8, outputs=2, 18 parameters), (5, 8))
    """

    def __init__(self, *parts: Layer) -> None:
        super().__init__()
        if not parts:
            raise ConfigError("parts: expected at least one layer; got none")
        for i, part in enumerate(parts):
            check_layer(f"parts[{i}]", part)
        self.parts = list(parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.parts)

    @overload
    def __getitem__(self, which: int) -> Layer: ...
    @overload
    def __getitem__(self, which: slice) -> "Sequential": ...
    def __getitem__(self, which: int | slice) -> Layer:
        return Sequential(*self.parts[which]) if isinstance(which, slice) else self.parts[which]

    def forward(self, x: Array) -> Array:
        """Run one part after the other."""
        for part in self.parts:
            x = part(x)
        return step("out", x, axes_of(x, "... D"))

    def backward(self, d_out: Array) -> Array:
        """Run their backward passes, the last part first, and return the gradient of `x`."""
        d_x = as_float_array("d_out", d_out)
        step("d_out", d_x, axes_of(d_x, "... D"))
        for part in reversed(self.parts):
            d_x = part.backward(d_x)
            if isinstance(d_x, tuple):  # a gradient for each input: the part was passed only x
                d_x = d_x[0]
        return d_x
