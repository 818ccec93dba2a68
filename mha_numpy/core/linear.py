"""The linear map out = x @ w + b, forward and backward."""

import math
from typing import NamedTuple

import numpy as np

from mha_numpy.backends import LINEAR_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_shape, check_type
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ShapeError


def linear_steps(x: Array, w: Array, b: Array | None) -> Array:
    """Map (..., I) to (..., O)."""
    # 1. multiply
    product = x @ w  # (..., O)
    # 2. add
    return product if b is None else product + b


def linear_steps_backward(
    d_out: Array, x: Array, w: Array, has_bias: bool
) -> tuple[Array, Array, Array | None]:
    """Pull the gradient (..., O) back to x (..., I), w (I, O) and b (O,).

    `w` and `b` serve every token of every sequence, so their gradients are sums over all of them.
    """
    rows = math.prod(x.shape[:-1])
    d_out_rows = d_out.reshape(rows, w.shape[1])  # (rows, O): B and T in one axis

    # 2. out = product + b
    d_b = d_out_rows.sum(axis=0) if has_bias else None
    # 1. product = x @ w
    d_w = x.reshape(rows, w.shape[0]).T @ d_out_rows
    d_x = d_out @ w.T
    return d_x, d_w, d_b


class LinearCache(NamedTuple):
    """What `linear_backward` needs."""

    x: Array  # (..., I)
    w: Array  # (I, O)
    has_bias: bool
    dtype: np.dtype[np.floating]
    backend: str


class LinearGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., I)
    d_w: Array  # (I, O)
    d_b: Array | None  # (O,)


def linear_forward(x: Array, w: Array, b: Array | None = None) -> tuple[Array, LinearCache]:
    """Map every vector of `x`: ``out = x @ w + b``.

    Parameters
    ----------
    x : (..., I) float array
        Any number of leading axes; (B, T, I) for tokens.
    w : (I, O) float array
        Inputs by outputs. PyTorch stores the transpose.
    b : (O,) float array, optional

    Returns
    -------
    out : (..., O) array
    cache : LinearCache

    Notes
    -----
    A vector takes 2 I O floating-point operations. Source: Goodfellow et al. 2016, *Deep
    Learning*, chapter 6. Derivation: ``docs/multi-head.md``.

    Examples
    --------
    >>> out, cache = linear_forward(np.ones((2, 5, 3)), np.ones((3, 4)), np.zeros(4))
    >>> out.shape
    (2, 5, 4)
    """
    x, w = as_float_array("x", x), as_float_array("w", w)
    b = None if b is None else as_float_array("b", b)
    sizes: dict[str, int] = {}
    check_shape("w", w, "I O", sizes)
    if x.ndim < 1 or x.shape[-1] != sizes["I"]:
        raise ShapeError(f"x: expected (..., I={sizes['I']}) to match w {w.shape}; got {x.shape}")
    if b is not None:
        check_shape("b", b, "O", sizes, to_match=f"w {w.shape}")
    dtype = result_dtype(x, w, b)
    inner = compute_dtype(dtype)
    x, w = x.astype(inner, copy=False), w.astype(inner, copy=False)
    b = None if b is None else b.astype(inner, copy=False)
    kernels = find_kernels(LINEAR_KERNELS, x, w, b)
    out = linear_steps(x, w, b) if kernels is None else kernels.linear(x, w, b)
    cache = LinearCache(x, w, b is not None, dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def linear_backward(d_out: Array, cache: LinearCache) -> LinearGrads:
    """Pull a gradient back through the linear map.

    ``d_x = d_out w^T``, ``d_w = x^T d_out``, ``d_b = sum of d_out``: `w` and `b` serve every
    token of every sequence, so their gradients are sums over all of them.

    Parameters
    ----------
    d_out : (..., O) float array
    cache : LinearCache

    Returns
    -------
    LinearGrads
        ``d_x``, ``d_w``, and ``d_b`` (None if there was no bias).

    Notes
    -----
    Derivation: ``docs/multi-head.md``.

    Examples
    --------
    >>> out, cache = linear_forward(np.ones((2, 5, 3)), np.ones((3, 4)), np.zeros(4))
    >>> linear_backward(np.ones((2, 5, 4)), cache).d_b
    array([10., 10., 10., 10.])
    """
    check_type("cache", cache, LinearCache, "linear_forward")
    x, w = cache.x, cache.w
    d_out = as_float_array("d_out", d_out)
    if d_out.shape != (*x.shape[:-1], w.shape[1]):
        expected = (*x.shape[:-1], w.shape[1])
        raise ShapeError(f"d_out: expected (..., O) = {expected}, as out; got {d_out.shape}")
    d_out = d_out.astype(np.result_type(x, d_out), copy=False)
    kernels = find_kernels(LINEAR_KERNELS, d_out, x, w, backend=cache.backend)
    steps_backward = linear_steps_backward if kernels is None else kernels.linear_backward
    grads = steps_backward(d_out, x, w, cache.has_bias)
    return LinearGrads._make(g if g is None else g.astype(cache.dtype, copy=False) for g in grads)
