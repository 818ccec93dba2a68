"""Piece: one function that people write, and inputs on which mistakes show themselves."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

Inputs = dict[str, Any]


class Piece(NamedTuple):
    """One function: how `flawed` writes it, ``write(**inputs, made=...)``, and its probes."""

    name: str
    write: Callable[..., Any]
    draw: Callable[[np.random.Generator], list[Inputs]]
    result: str  # the name of the array that is returned; "" where several are

    def probes(self) -> list[Inputs]:
        """Return the inputs, the same each time and read-only."""
        return _drawn(self)


@cache
def _drawn(piece: Piece) -> list[Inputs]:
    """Draw the probes of a piece once."""
    probes = piece.draw(np.random.default_rng(20240229))
    for given in probes:
        for value in given.values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
    return probes
