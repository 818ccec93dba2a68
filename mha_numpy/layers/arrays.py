"""What all pairs do with arrays: which dtype to compute in, which shape a gradient must have."""

from typing import Any

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, find_kernels
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ShapeError


def as_computed(**arrays: Any) -> tuple[np.dtype[Any], list[Any]]:
    """Return the promoted dtype of float arrays, and these in the dtype to compute in.

    None stays None.
    """
    floats = [None if x is None else as_float_array(name, x) for name, x in arrays.items()]
    dtype = result_dtype(*floats)
    inner = compute_dtype(dtype)
    return dtype, [None if x is None else x.astype(inner, copy=False) for x in floats]


def as_gradient(
    d_out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, name: str = "d_out"
) -> Array:
    """Return the gradient of an output of this shape, in a dtype to compute in."""
    d_out = as_float_array(name, d_out)
    if d_out.shape != shape:
        raise ShapeError(f"{name}: expected {shape}, as {name[2:]}; got {d_out.shape}")
    return d_out.astype(np.result_type(dtype, d_out.dtype), copy=False)


def check_width(x: Array, width: int, to_match: str) -> None:
    """Raise a ShapeError unless the last axis of `x` is D = `width`, and not empty."""
    if width == 0:
        raise ShapeError(f"gain: expected (D,) with D >= 1; got ({width},)")
    if x.ndim < 1 or x.shape[-1] != width:
        raise ShapeError(f"x: expected (..., D={width}) to match {to_match}; got {x.shape}")


def sum_over_tokens(per_token: Array) -> Array:
    """Sum (..., D) over every token of every sequence: a param serves them all."""
    return per_token.sum(axis=tuple(range(per_token.ndim - 1)))


def add(a: Array, b: Array) -> Array:
    """Return the sum of two arrays: by a kernel, where their shape is one."""
    kernels = find_kernels(ONE_PASS_KERNELS, a, b)
    return a + b if kernels is None or a.shape != b.shape else kernels.add(a, b)


def axes_of(x: Array, last: str = "D") -> str:
    """Name the axes of (..., D), as a recorder is shown them."""
    if x.ndim == 0:
        return ""
    leading = {1: "", 2: "T", 3: "B T", 4: "B H T"}
    names = leading.get(x.ndim, " ".join(f"N_{i}" for i in range(x.ndim - 1)))
    return f"{names} {last}".strip()


def sum_equation(product: str, x: Array) -> str:
    """Write the sum over every token of every sequence."""
    axes = tuple(range(x.ndim - 1))
    if not axes:
        return product
    return f"{product if product.isidentifier() else f'({product})'}.sum(axis={axes})"
