"""Which arrays count as float arrays, and in which dtype they are computed."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mha_numpy.errors import ConfigError, DTypeError, MhaError, describe

if TYPE_CHECKING:
    Array = npt.NDArray[Any]
else:

    class Array:
        """A NumPy array of any dtype, for signatures, in which NumPy's own type is long."""

        __module__ = "builtins"  # so that help() prints Array without the name of a module


LARGEST = 2**60  # of a position: sums of two stay within int64

_complex_allowed: ContextVar[bool] = ContextVar("complex_allowed", default=False)

_ADVICE = {
    "b": "a bool array is a mask: pass it as mask=",
    "i": "write {name}.astype(np.float64)",
    "u": "write {name}.astype(np.float64)",
    "c": "attention is defined on real numbers: pass {name}.real",
}


@contextmanager
def allow_complex() -> Iterator[None]:
    """Let complex arrays pass the dtype check: only for the complex-step gradient check."""
    token = _complex_allowed.set(True)
    try:
        yield
    finally:
        _complex_allowed.reset(token)


def as_float_array(name: str, value: Any) -> Array:
    """Return `value` as an array of floats, or raise a DTypeError that names it."""
    if type(value) is np.ndarray and value.dtype.kind == "f":
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            f"{name}: expected a plain array; got a masked one; pass .data and mask=~{name}.mask"
        )
    if type(value) is tuple and name.startswith("d_"):  # NumPy would stack what is alike
        raise DTypeError(
            f"{name}: expected a float array; got a tuple of {len(value)}, a gradient for each "
            "input; pass one of them, such as the first, which for attention is d_query"
        )
    array = as_array(name, value, "a float array", DTypeError)
    kind = array.dtype.kind
    if is_float(array.dtype) or (kind == "c" and _complex_allowed.get()):
        return array
    advice = _ADVICE.get(kind, "pass a NumPy array of float32 or float64")
    if kind in "iu" and not hasattr(value, "astype"):
        advice = "write np.array({name}, float)"
    advice = advice.format(name=name)
    raise DTypeError(f"{name}: expected a float array; got {describe(value)}; {advice}")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of this dtype are floats: NumPy's, or bfloat16 of ml_dtypes."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def as_integer_array(name: str, value: Any, expected: str) -> Array:
    """Return `value` as an int64 array, or raise a ConfigError that says `expected`."""
    array = as_array(name, value, expected, ConfigError)
    if array.dtype.kind not in "iu":
        raise ConfigError(f"{name}: expected {expected}; got {describe(value)}")
    if array.size and max(abs(int(array.max())), abs(int(array.min()))) > LARGEST:
        raise ConfigError(f"{name}: expected numbers up to 2^60; got {describe(value)}")
    return array.astype(np.int64, copy=False)


def as_array(name: str, value: Any, expected: str, error: type[MhaError]) -> Array:
    """Return np.asarray(value); a value that NumPy cannot take raises `error` in our words."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as reason:  # ragged lists, foreign tensors
        advice = _from_tensor(name, value)
        raise error(f"{name}: expected {expected}; got {describe(value)}{advice}") from reason


def _from_tensor(name: str, value: Any) -> str:
    """Return "; write x.detach().numpy()" for a tensor of PyTorch, with the steps that it needs."""
    if not hasattr(value, "detach"):
        return ""
    steps = {
        "detach()": value.requires_grad,
        "cpu()": value.device.type != "cpu",
        "to_dense()": value.is_sparse,
        "float()": str(value.dtype) == "torch.bfloat16",  # NumPy has no such dtype
        "numpy()": True,
    }
    return f"; write {'.'.join([name, *(step for step, is_needed in steps.items() if is_needed)])}"


def float_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a float dtype, or raise a DTypeError."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or not is_float(found):
        raise DTypeError(f"dtype: expected a float dtype; got {describe(dtype)}")
    return found


def result_dtype(*arrays: Array | None) -> np.dtype[Any]:
    """Promote the dtypes of the arrays that are not None."""
    return promote(*[array.dtype for array in arrays if array is not None])


@functools.cache
def promote(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that NumPy promotes to; float16 and bfloat16 meet in float32."""
    try:
        return np.result_type(*dtypes)
    except TypeError:  # NumPy knows no type for both
        return np.result_type(np.float32, *(d for d in dtypes if d.itemsize > 2))


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for float16 and bfloat16, else the dtype itself."""
    is_half = dtype.itemsize == 2 and is_float(dtype)  # in either byte order
    return np.dtype(np.float32) if is_half else dtype
