"""Shapes: splitting and merging heads, and what broadcasting does to an axis."""

from mha_numpy.checks import check_count, check_shape
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ShapeError


def split_heads(x: Array, num_heads: int) -> Array:
    """Give every head its own slice of the width: (B, T, H*d) -> (B, H, T, d).

    Token t's vector is split into H consecutive pieces, and the head axis then moves in front of
    the token axis. Both moves are views: no number is copied. `merge_heads` is the
    inverse, and therefore also the backward: ``d_x = merge_heads(d_heads)``.

    Parameters
    ----------
    x : (B, T, H*d) float array
    num_heads : int
        H; must divide the last axis.

    Returns
    -------
    (B, H, T, d) float array, a view of `x` where its memory order allows one.

    Notes
    -----
    Reshaping straight to (B, H, T, d) has the right shape and the wrong content: it deals
    out whole tokens to the heads. Source: Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(1, 2, 3)
    >>> split_heads(x, 3)[0, :, :, 0]  # head h holds column h of every token
    array([[0., 3.],
           [1., 4.],
           [2., 5.]])
    """
    x = as_float_array("x", x)
    num_heads = check_count("num_heads", num_heads)
    check_shape("x", x, "B T H*d", {})
    B, T, width = x.shape
    if width % num_heads:
        raise ShapeError(
            f"x: expected (B, T, H*d) with num_heads={num_heads} dividing the last axis; "
            f"got {x.shape}, and {width} / {num_heads} leaves {width % num_heads}"
        )
    by_token = x.reshape(B, T, num_heads, width // num_heads)  # (B, T, H, d)
    return by_token.swapaxes(1, 2)  # (B, H, T, d)


def merge_heads(heads: Array) -> Array:
    """Lay the heads side by side again: (B, H, T, d) -> (B, T, H*d).

    The inverse of `split_heads`, and its backward; `split_heads` is in turn the backward of
    this function. The head axis moves after the token axis (a view), then both last axes
    become one (a copy, unless the pieces of a token lie together in memory already).

    Parameters
    ----------
    heads : (B, H, T, d) float array

    Returns
    -------
    (B, T, H*d) float array

    Notes
    -----
    Source: "Concat(head_1, ..., head_h)" in Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(24.0).reshape(2, 3, 4)
    >>> np.array_equal(merge_heads(split_heads(x, 2)), x)
    True
    """
    heads = as_float_array("heads", heads)
    check_shape("heads", heads, "B H T d", {})
    B, H, T, d = heads.shape
    by_token = heads.swapaxes(1, 2)  # (B, T, H, d)
    return by_token.reshape(B, T, H * d)


def sum_to_shape(d_big: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the axes along which its array had been broadcast from `shape`."""
    summed = stretched_axes(d_big.shape, shape)
    return d_big.sum(axis=summed, keepdims=True).reshape(shape)


def stretched_axes(big: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of `big` along which an array of the other shape is broadcast."""
    added = len(big) - len(shape)
    return tuple(
        axis for axis in range(len(big))
        if axis < added or (shape[axis - added] == 1 and big[axis] != 1)
    )  # fmt: skip


def broadcast_axes(shape: tuple[int, ...], axes: str, full: tuple[int, ...]) -> str:
    """Name the axes of an array that broadcasts to the shape `full`; "1" for a stretched one."""
    names = axes.split()[len(full) - len(shape) :]
    tail = full[len(full) - len(shape) :]
    return " ".join(
        axis if n == size else "1" for axis, n, size in zip(names, shape, tail, strict=True)
    )
