"""Arrays on their way into a function with other conventions, and out of it."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.conformance.conventions import Conventions
from mha_numpy.dtypes import Array
from mha_numpy.frameworks import to_framework, to_numpy

HEADS = {  # which axis, from the last, is that of query heads if it is there
    **dict.fromkeys(("q", "out", "weights", "mask", "bias", "dropout_mask"), -3),
    "lse": -2,
    "sink": -1,
    "head_gate": -1,
}
TOKENS = ("q", "k", "v", "out")  # these have the layout of the function


class Converter(NamedTuple):
    """Converts the arrays of a case; gradients as what they are gradients of."""

    conventions: Conventions
    H: int
    H_kv: int

    def theirs(self, name: str, value: Any) -> Any:
        """Return an argument as the function takes it."""
        if not isinstance(value, np.ndarray):
            return value
        array = self._swap(name, self._order_heads(name, value, self._tiled()))
        if array.dtype.kind == "f" and self.conventions.dtype == "float32":
            array = array.astype(np.float32)
        return to_framework(array, self.conventions.framework)

    def ours(self, name: str, value: Any) -> Any:
        """Return a result as core computes it."""
        name, array = name.removeprefix("d_"), to_numpy(value)
        if not isinstance(array, np.ndarray):
            return array
        return self._order_heads(name, self._swap(name, array), np.argsort(self._tiled()))

    def _swap(self, name: str, array: Array) -> Array:
        is_swapped = self.conventions.word("layout") == "B T H d" and name in TOKENS
        return array.swapaxes(1, 2) if is_swapped and array.ndim == 4 else array

    def _tiled(self) -> Array:
        """Return the heads in the order in which tiled key/value heads serve them."""
        return np.arange(self.H).reshape(self.H_kv, -1).T.ravel()

    def _order_heads(self, name: str, array: Array, order: Array) -> Array:
        axis = array.ndim + HEADS.get(name, -array.ndim - 1)
        is_tiled = self.conventions.word("grouping") == "tile"
        if not is_tiled or axis < 0 or array.shape[axis] != self.H:
            return array
        return array.take(order, axis)
