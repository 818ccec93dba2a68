"""Learned positions: a row of a table for each place; forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_count, check_positions, check_shape, check_type
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import constant, is_watched, step


def learned_positions_steps(x: Array, table: Array, offset: int) -> Array:
    """Add to each token the row of its position: (..., T, D)."""
    # 1. add
    return x + table[offset : offset + x.shape[-2]]


def learned_positions_steps_backward(
    d_out: Array, offset: int, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Pull the gradient (..., T, D) back to x and table (N, D); a row serves every sequence."""
    # 1. out = x + table[offset : offset + T]
    d_table = np.zeros(shape, d_out.dtype)
    d_table[offset : offset + d_out.shape[-2]] = d_out.sum(axis=tuple(range(d_out.ndim - 2)))
    return d_out, d_table


class LearnedPositionsCache(NamedTuple):
    """What `learned_positions_backward` needs."""

    offset: int
    shape: tuple[int, ...]  # of the output: (..., T, D)
    table_shape: tuple[int, int]  # (N, D)
    dtype: np.dtype[Any]
    inner: np.dtype[Any]  # to compute in
    backend: str


class LearnedPositionsGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., T, D)
    d_table: Array  # (N, D)


def learned_positions_forward(
    x: Array, table: Array, *, offset: int = 0
) -> tuple[Array, LearnedPositionsCache]:
    """Add a vector for the position: ``out[t] = x[t] + table[offset + t]``.

    Parameters
    ----------
    x : (..., T, D) float array
    table : (N, D) float array
        One row for each of N positions.
    offset : int
        Position of the first token; when decoding, the number of tokens before.

    Returns
    -------
    out : (..., T, D) array
    cache : LearnedPositionsCache

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        An argument is not a float array, the sizes do not match, or the table is too short.

    Notes
    -----
    There is no vector for a position beyond N. Source: Gehring et al. 2017,
    *Convolutional sequence to sequence learning*, section 3.1; in transformers, Vaswani et al.
    2017, section 3.5.

    Examples
    --------
    >>> x, table = np.zeros((1, 2, 1)), np.array([[10.0], [20.0], [30.0]])
    >>> learned_positions_forward(x, table, offset=1)[0].ravel()
    array([20., 30.])
    """
    dtype, (x, table) = as_computed(x=x, table=table)
    sizes: dict[str, int] = {}
    check_shape("table", table, "N D", sizes)
    N, D = sizes["N"], sizes["D"]
    if x.ndim < 2 or x.shape[-1] != D:
        raise ShapeError(f"x: expected (..., T, D={D}) to match table {table.shape}; got {x.shape}")
    offset = check_count("offset", offset, least=0)
    check_positions("x", x.shape[-2], offset, N, f"N={N} positions, the rows of table")
    kernels = find_kernels(ONE_PASS_KERNELS, x, table)
    if kernels is None:
        out = learned_positions_steps(x, table, offset)
    else:
        out = kernels.add(x, table[offset : offset + x.shape[-2]])
    if is_watched():
        step("x", x, axes_of(x))
        constant("table", table, "N D")
        step("out", out, axes_of(x), f"x + table[{offset}:{offset + x.shape[-2]}]")
    cache = LearnedPositionsCache(offset, x.shape, table.shape, dtype, x.dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def learned_positions_backward(d_out: Array, cache: LearnedPositionsCache) -> LearnedPositionsGrads:
    """Pull a gradient back: to x as it is, to a position's row the sum over all sequences.

    Parameters
    ----------
    d_out : (..., T, D) float array
    cache : LearnedPositionsCache

    Returns
    -------
    LearnedPositionsGrads
        ``d_x`` and ``d_table``, 0 in the rows of positions that were not used.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Examples
    --------
    >>> out, cache = learned_positions_forward(np.zeros((2, 2, 1)), np.zeros((3, 1)), offset=1)
    >>> learned_positions_backward(np.ones((2, 2, 1)), cache).d_table.ravel()
    array([0., 2., 2.])
    """
    check_type("cache", cache, LearnedPositionsCache, "learned_positions_forward")
    d_out = as_gradient(d_out, cache.shape, cache.inner)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, backend=cache.backend)
    if kernels is None:
        d_x, d_table = learned_positions_steps_backward(d_out, cache.offset, cache.table_shape)
    else:
        rows = np.broadcast_to(cache.offset + np.arange(d_out.shape[-2]), d_out.shape[:-1])
        d_x, d_table = d_out, kernels.collect(d_out, rows, cache.table_shape[0])
    if is_watched():
        step("d_out", d_out, axes_of(d_out))
        step("d_x", d_x, axes_of(d_out), "d_out")
        places = f"np.arange({cache.offset}, {cache.offset + d_out.shape[-2]})"
        summed = f"d_out.sum(axis={tuple(range(d_out.ndim - 2))})" if d_out.ndim > 2 else "d_out"
        step("d_table", d_table, "N D", f"(np.arange(N)[:, None] == {places}) @ {summed}")
    return LearnedPositionsGrads(*(d.astype(cache.dtype, copy=False) for d in (d_x, d_table)))
