"""Piece: one function that people write, with what is known about every right answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array

Inputs = dict[str, Any]
Arrays = dict[str, Array]  # what a function returned, by name; a single array has the name ""


class Law(NamedTuple):
    """What holds for every right answer, and the array that is 0 where it does."""

    statement: str
    residual: Callable[[Inputs, Arrays], Array]


class Reaction(NamedTuple):
    """A change of the inputs, and the part of the answer that does not react to it."""

    statement: str
    change: Callable[[Inputs], Inputs]
    unmoved: Callable[[Inputs, Arrays], Array]


class Slope(NamedTuple):
    """What a backward differentiates: a forward, its inputs, and the upstream gradient."""

    forward: Callable[..., Any]
    inputs: Inputs  # in the order in which their gradients are returned
    d_out: Array


@dataclass(frozen=True, eq=False)
class Piece:
    """A function of `right`, the inputs on which mistakes show, and what holds for its answers."""

    name: str
    draw: Callable[[np.random.Generator], list[Inputs]]
    result: str = ""  # the name of the array that is returned; "" where several are
    laws: Sequence[Law] = ()
    reactions: Sequence[Reaction] = ()
    slope: Callable[[Inputs], Slope] | None = None  # of a backward, for numeric differentiation

    def probes(self) -> list[Inputs]:
        """Return the inputs, the same each time and read-only."""
        return _drawn(self)


@cache
def _drawn(piece: Piece) -> list[Inputs]:
    """Draw the probes of a piece once."""
    probes = piece.draw(np.random.default_rng(20240229))
    for inputs in probes:
        for value in inputs.values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
    return probes


def moved(name: str, index: Any) -> Callable[[Inputs], Inputs]:
    """Return what changes some cells of an input."""

    def change(inputs: Inputs) -> Inputs:
        array = inputs[name].copy()
        array[index] += 1.0
        return {**inputs, name: array}

    return change


def reversed_tokens(*names: str) -> Callable[[Inputs], Inputs]:
    """Return what turns the last axis but one of some inputs around."""
    return lambda inputs: {
        name: value[..., ::-1, :] if name in names else value for name, value in inputs.items()
    }
