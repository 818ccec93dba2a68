"""The linear map out = x @ w + b, forward, forward mode and backward."""

import math
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import LINEAR_KERNELS, chosen_backend, find_kernels
from mha_numpy.core.pair import Pair, Values
from mha_numpy.core.tangents import Shapes
from mha_numpy.dtypes import Array


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


def linear_steps_jvp(x_dot: Array, w_dot: Array, b_dot: Array | None, x: Array, w: Array) -> Array:
    """Push the tangents of x, w and b forward to the output (..., O)."""
    # 1. product = x @ w: what x moves, and what w moves
    product_dot = x_dot @ w + x @ w_dot
    # 2. out = product + b
    return product_dot if b_dot is None else product_dot + b_dot


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
    return LINEAR.forward(x=x, w=w, b=b)


def linear_backward(d_out: Array, cache: LinearCache) -> LinearGrads:
    """Pull a gradient back through the linear map.

    ``d_x = d_out w^T``, ``d_w = x^T d_out``, ``d_b = sum of d_out``: `w` and `b` serve every
    token of every sequence, so their gradients are sums over all of them.

    `d_b` is None if there was no bias.

    Examples
    --------
    >>> out, cache = linear_forward(np.ones((2, 5, 3)), np.ones((3, 4)), np.zeros(4))
    >>> linear_backward(np.ones((2, 5, 4)), cache).d_b
    array([10., 10., 10., 10.])
    """
    return LINEAR.backward(d_out, cache)


def linear_jvp(tangents: Any, cache: LinearCache) -> Array:
    """Push tangents through the linear map: ``out_dot = x_dot w + x w_dot + b_dot``.

    Parameters
    ----------
    tangents : tuple or dict
        ``(x_dot, w_dot, b_dot)``, or by name: ``{"x": x_dot}``. None does not move.
    cache : LinearCache

    Returns
    -------
    out_dot : (..., O) array

    Examples
    --------
    >>> out, cache = linear_forward(np.ones((2, 3)), np.full((3, 1), 5.0))
    >>> linear_jvp({"x": np.ones((2, 3))}, cache).ravel()
    array([15., 15.])
    """
    return LINEAR.jvp(tangents, cache)


Map = tuple[Array, Array, Array | None]  # x, w and b


def linear_forward_each(*maps: Map) -> list[tuple[Array, LinearCache]]:
    """Do what `linear_forward` does for each map, whose shapes are known to be right.

    Around a small product, the checks and the search for a kernel take longer than the product. A
    layer of attention has them once for its three projections.
    """
    backend = chosen_backend()
    arrays = [array for each in maps for array in each]
    kernels = find_kernels(LINEAR_KERNELS, *arrays, backend=backend)
    if kernels is None:
        return [linear_forward(*each) for each in maps]
    return [
        (kernels.linear(x, w, b), LinearCache(x, w, b is not None, x.dtype, backend))
        for x, w, b in maps
    ]


def linear_backward_each(*steps: tuple[Array, LinearCache]) -> list[LinearGrads]:
    """Do what `linear_backward` does for each gradient of an output, with its cache."""
    arrays = [array for d_out, cache in steps for array in (d_out, cache.x, cache.w)]
    kernels = find_kernels(LINEAR_KERNELS, *arrays, backend=steps[0][1].backend)
    if kernels is None:
        return [linear_backward(*each) for each in steps]
    return [
        LinearGrads(*kernels.linear_backward(d_out, cache.x, cache.w, cache.has_bias))
        for d_out, cache in steps
    ]


def _check(values: Values) -> None:
    values["has_bias"] = values["b"] is not None


def _like(cache: LinearCache) -> tuple[tuple[int, ...], np.dtype[np.floating]]:
    return (*cache.x.shape[:-1], cache.w.shape[1]), cache.x.dtype


def linear_shapes(cache: LinearCache) -> Shapes:
    """Return the shapes of the inputs."""
    x, w = cache.x, cache.w
    return {"x": x.shape, "w": w.shape, "b": w.shape[1:] if cache.has_bias else None}


LINEAR = Pair(
    linear_steps,
    linear_steps_backward,
    linear_steps_jvp,
    LinearCache,
    LinearGrads,
    inputs={"w": "I O", "x": "... I", "b": "O"},
    optional=("b",),
    check=_check,
    like=_like,
    shapes=linear_shapes,
    kernels=LINEAR_KERNELS,
    kernel=lambda kernels, *given: kernels.linear(*given),
    kernel_backward=lambda kernels, *given: kernels.linear_backward(*given),
)
