"""One recorded array."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array


@dataclass(frozen=True)
class Step:
    """One recorded array, with measurements of its memory."""

    number: int
    name: str  # "scores"; in a model "blocks.0.attention.scores"
    axes: str  # "B H T_q T_k"
    equation: str  # the right-hand side; empty for an input
    array: Array = field(repr=False)
    memory: str  # "input", "new", or "view of", "copy of", "is" an earlier step; "constant"

    @property
    def is_constant(self) -> bool:
        """Whether no step computed it: a param or a number that equations name."""
        return self.memory == "constant"

    @property
    def place(self) -> str:
        """Where in a model it was computed: "blocks.0.attention"; "" outside."""
        return self.name.rpartition(".")[0]

    @property
    def own_name(self) -> str:
        """The name without the place."""
        return self.name.rpartition(".")[2]

    @property
    def is_backward(self) -> bool:
        """Whether the step belongs to a backward pass."""
        return self.own_name.startswith("d_")

    @property
    def is_tangent(self) -> bool:
        """Whether the step belongs to forward mode."""
        return self.own_name.endswith("_dot")

    @property
    def is_forward(self) -> bool:
        """Whether the step belongs to a forward pass."""
        return not (self.is_backward or self.is_tangent)

    @property
    def layout(self) -> str:
        """How the elements lie in memory: "C", "F", or "strided"."""
        flags = self.array.flags
        return "C" if flags.c_contiguous else "F" if flags.f_contiguous else "strided"

    def as_dict(self, *, values: bool = False) -> dict[str, Any]:
        """Return the step as JSON values, with the numbers themselves on request."""
        described = {
            "number": self.number,
            "name": self.name,
            "equation": self.equation,
            "axes": self.axes.split(),
            "shape": list(self.array.shape),
            "strides": list(self.array.strides),
            "dtype": str(self.array.dtype),
            "nbytes": self.array.nbytes,
            "layout": self.layout,
            "memory": self.memory,
            "pass": "backward" if self.is_backward else "forward" + " mode" * self.is_tangent,
        }
        return {**described, "values": _json_numbers(self.array)} if values else described


def _json_numbers(array: Array) -> Any:
    """Return nested lists of numbers, with strings for those that JSON lacks."""
    if array.dtype.kind not in "biuf":
        return array.astype(str).tolist()
    with np.errstate(over="ignore"):  # longdouble beyond float64
        floats = np.asarray(array, np.float64)
    numbers, odd = floats.astype(object), ~np.isfinite(floats)
    numbers[odd] = [str(x) for x in floats[odd]]
    return numbers.tolist()
