"""step(): names an array for whoever watches, and costs next to nothing when nobody does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mha_numpy.dtypes import Array

Watcher = Callable[[str, Array, str, str], object]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def step(name: str, array: Array, axes: str, equation: str = "") -> Array:
    """Return `array` untouched; while somebody watches, also tell them what it is.

    A step is a shape comment that can be verified: traces, drawings and tests read it.

    Parameters
    ----------
    name : str
        The array's name in the glossary; gradients begin with ``d_``.
    array : array
    axes : str
        One name for each axis, such as ``"B H T_q T_k"``; a product is ``"H*d_k"``.
    equation : str
        The right-hand side of the line that made the array; empty for an input.

    Returns
    -------
    The same array object.

    Notes
    -----
    An option that was not given leaves an array as it is, and its step tells of the same object
    once more under another name.

    Examples
    --------
    >>> import numpy as np
    >>> step("scores", np.zeros((2, 3)), "T_q T_k", "scale * q @ k.T").shape
    (2, 3)
    """
    watch = _watcher.get()
    if watch is not None:
        watch(name, array, axes, equation)
    return array


@contextmanager
def watching(watch: Watcher) -> Iterator[None]:
    """Call `watch(name, array, axes, equation)` at every step inside the block.

    The innermost block watches alone; a thread has its own.
    """
    token = _watcher.set(watch)
    try:
        yield
    finally:
        _watcher.reset(token)
