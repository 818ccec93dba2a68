"""Backends: the code that computes the equations, and the choice of one.

The names are those of ``backend=``: "numpy" is the equations themselves; the others are modules of
kernels, imported at their first use.
"""

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array
from mha_numpy.errors import BackendError
from mha_numpy.steps import is_watched

# where there are no loops to read, NumPy's line is as easy to read, and quicker than a loop
KERNELS = {"loops": "mha_numpy.kernels.loops", "numba": "mha_numpy.kernels.tiled"}  # attention
LINEAR_KERNELS = {"numba": "mha_numpy.kernels.matmul"}
LINEAR_ATTENTION_KERNELS = {"numba": "mha_numpy.kernels.linear_chunks"}
ONE_PASS_KERNELS = {"numba": "mha_numpy.kernels.one_pass"}  # activations, norms, sums, loss, Adam
BACKENDS = ("numpy", *KERNELS)
COVERED = (np.dtype(np.float32), np.dtype(np.float64))

_in_force: ContextVar[str] = ContextVar("backend", default="numpy")


@contextmanager
def backend(name: str | None) -> Iterator[None]:
    """Choose the backend that computes inside a block of code.

    A function, layer or model with its own backend, passed as ``backend=``, keeps it.
    A backward uses the backend of its forward. Each thread has its own choice.

    Parameters
    ----------
    name : {"numpy", "loops", "numba"}, optional
        NumPy, plain loops to read, or tiles; numba must be installed for the last two. None
        changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy import attention_forward, backend
    >>> x = np.eye(2)
    >>> with backend("loops"):
    ...     out, cache = attention_forward(x, x, x)
    >>> cache.backend
    'loops'
    """
    token = _in_force.set(chosen_backend(name))
    try:
        yield
    finally:
        _in_force.reset(token)


def chosen_backend(name: str | None = None) -> str:
    """Return the backend of this name, or the block's for None; raise a ConfigError if unknown."""
    return check_backend(name) or _in_force.get()


def check_backend(name: Any) -> str | None:
    """Return the name of a backend, or None; raise a ConfigError if there is no such backend."""
    return None if name is None else check_choice("backend", name, BACKENDS)


def find_kernels(
    modules: dict[str, str], *arrays: Array | None, backend: str | None = None
) -> ModuleType | None:
    """Return the module with a backend's kernels, or None if the equations compute.

    The equations also compute what the kernels do not cover: dtypes other than float32 and float64
    (longdouble; complex in a gradient check), two dtypes at once, and empty axes; and every
    recorded call, because a kernel has no steps to show.
    """
    name = _in_force.get() if backend is None else backend
    if name not in modules or is_watched():
        return None
    dtype = None
    for x in arrays:
        if x is None:
            continue
        if dtype is None:
            dtype = x.dtype
        if (x.dtype is not dtype and x.dtype != dtype) or x.size == 0:
            return None
    return _load(name, modules[name]) if dtype in COVERED else None


@functools.cache
def _load(backend: str, kernels: str) -> ModuleType:
    """Import a backend's kernels, and numba with them, at the first use."""
    try:
        return importlib.import_module(kernels)
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise BackendError(
            f"backend: {backend!r} needs numba, whose import failed: {reason}; "
            "pip install numba, or write backend='numpy'"
        ) from error
