"""step(): names an array for a recorder, and costs next to nothing without one."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from mha_numpy.dtypes import Array


class Watcher(Protocol):
    """A recorder: called at every step, and for every constant, inside `watching`."""

    def record(self, name: str, array: Array, axes: str, equation: str) -> object:
        """Note an array that was computed, or an input."""

    def record_constant(self, name: str, array: Array, axes: str) -> object:
        """Note a value that equations name and no step computes."""

    def name_of(self, array: Array, place: str = "") -> str:
        """Return the whole name of an array that was noted, "" for any other.

        If it has several names, the one in `place` comes first.
        """


WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def step(name: str, array: Array, axes: str, equation: str = "") -> Array:
    """Return `array` untouched; while a recorder is active, also note its name and equation.

    A step is a shape comment and an equation that can be verified: traces, drawings and tests
    read them.

    Parameters
    ----------
    name : str
        The array's name in the glossary; gradients begin with ``d_``.
    array : array
    axes : str
        One name for each axis, such as ``"B H T_q T_k"``; a product is ``"H*d_k"``, an axis of
        size 1 is ``"1"``.
    equation : str
        How the array was computed: an expression in NumPy's syntax over the names of earlier
        steps, of constants and of axes, which mean their sizes. Empty for an input.

    Returns
    -------
    The same array object.

    Examples
    --------
    >>> step("scores", np.zeros((2, 3)), "T_q T_k", "scale * q @ k.swapaxes(-1, -2)").shape
    (2, 3)
    """
    watcher = WATCHER.get()
    if watcher is not None:
        watcher.record(name, np.asarray(array), axes, equation)
    return array


def constant(name: str, value: Any, axes: str = "") -> None:
    """Note a param, a number or an index that equations name and no step computes.

    Parameters
    ----------
    name : str
    value : array or number
    axes : str
        As for `step`; a number has none.

    Examples
    --------
    >>> constant("w_q", np.zeros((4, 6)), "D H*d_k")
    >>> constant("scale", 0.5)
    """
    watcher = WATCHER.get()
    if watcher is not None:
        watcher.record_constant(name, np.asarray(value), axes)


def is_watched() -> bool:
    """Return whether a recorder is active: names and equations are made only for it."""
    return WATCHER.get() is not None


def record_sum(name: str, total: Array, axes: str, *parts: Array | None) -> Array:
    """Return a sum of arrays; while a recorder is active, note it under the names of its parts.

    A part that is not on record is noted as an input: ``sum_part_1``, for that of "sum".
    """
    watcher = WATCHER.get()
    if watcher is not None:
        names = []
        for i, part in enumerate(part for part in parts if part is not None):
            if not watcher.name_of(part):
                step(f"{name}_part_{i}", part, axes)
            names.append(watcher.name_of(part))
        step(name, total, axes, " + ".join(names))
    return total


@contextmanager
def renamed(**names: str) -> Iterator[None]:
    """Rename everything that is recorded inside the block, gradients and axes too.

    A composite needs this for the parts that it calls, because its own names are taken.
    """
    watcher = WATCHER.get()
    with watching(None if watcher is None else Relay(watcher, names)):
        yield


class Relay:
    """Passes on records under different names; the names of steps also get a prefix."""

    def __init__(
        self, watcher: Watcher, names: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self.watcher, self.prefix = watcher, prefix
        self.names = {p + old: p + new for old, new in (names or {}).items() for p in ("", "d_")}

    def _in(self, equation: str) -> str:
        """Rename in an equation or in axes, whose words are names."""
        if not self.names:
            return equation
        return re.sub(r"\w+", lambda word: self.names.get(word[0], word[0]), equation)

    def record(self, name: str, array: Array, axes: str, equation: str) -> object:
        """Pass on a step."""
        name = self.prefix + self._in(name)
        return self.watcher.record(name, array, self._in(axes), self._in(equation))

    def record_constant(self, name: str, array: Array, axes: str) -> object:
        """Pass on a constant."""
        return self.watcher.record_constant(self.prefix + self._in(name), array, self._in(axes))

    def name_of(self, array: Array, place: str = "") -> str:
        """Pass on the question."""
        return self.watcher.name_of(array, (self.prefix + place).removesuffix("."))


@contextmanager
def watching(watcher: Watcher | None) -> Iterator[None]:
    """Let only `watcher` record inside the block; with None nothing is recorded.

    Each thread has its own.
    """
    token = WATCHER.set(watcher)
    try:
        yield
    finally:
        WATCHER.reset(token)
