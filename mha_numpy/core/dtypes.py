"""Which arrays count as float arrays, and in which dtype they are computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from mha_numpy.errors import DTypeError, describe

Array = npt.NDArray[Any]

_complex_allowed: ContextVar[bool] = ContextVar("complex_allowed", default=False)

_ADVICE = {
    "b": "a bool array is a mask, not a number",
    "i": "write {name}.astype(np.float64)",
    "u": "write {name}.astype(np.float64)",
    "c": "attention is defined on real numbers: pass {name}.real",
}


@contextmanager
def allow_complex() -> Iterator[None]:
    """Let complex arrays pass the dtype check: for the complex-step gradient check alone."""
    token = _complex_allowed.set(True)
    try:
        yield
    finally:
        _complex_allowed.reset(token)


def as_float_array(name: str, value: Any) -> Array:
    """Return `value` as an array of floats, or raise a DTypeError that names it."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # nested lists of unequal lengths
        raise DTypeError(f"{name}: expected a float array; got {describe(value)}") from error
    kind = array.dtype.kind
    if kind == "f" or (kind == "c" and _complex_allowed.get()):
        return array
    advice = _ADVICE.get(kind, "pass a NumPy array of float32 or float64")
    advice = advice.format(name=name)
    raise DTypeError(f"{name}: expected a float array; got {describe(value)}; {advice}")


def result_dtype(*arrays: Array | None) -> np.dtype[Any]:
    """Promote the dtypes of those arrays that are there, as NumPy does."""
    return np.result_type(*(array.dtype for array in arrays if array is not None))


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for float16, else the dtype itself."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
