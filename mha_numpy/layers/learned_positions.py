"""Learned positions: a row of a table for each place; forward and backward."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_number, check_positions
from mha_numpy.core.pair import Pair, Records, Values
from mha_numpy.dtypes import Array
from mha_numpy.layers.layer import Layer, make_rng


def learned_positions_steps(x: Array, table: Array, offset: int) -> Array:
    """Add to each token the row of its position: (..., T, D)."""
    # 1. add
    return x + table[offset : offset + x.shape[-2]]


def learned_positions_steps_backward(
    d_out: Array, offset: int, table_shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Pull the gradient (..., T, D) back to x and table (N, D); a row serves every sequence."""
    # 1. out = x + table[offset : offset + T]
    d_table = np.zeros(table_shape, d_out.dtype)
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
    return LEARNED_POSITIONS.forward(x=x, table=table, offset=offset)


def learned_positions_backward(d_out: Array, cache: LearnedPositionsCache) -> LearnedPositionsGrads:
    """Pull a gradient back: to x as it is, to a position's row the sum over all sequences.

    Rows of positions that were not used are 0.

    Examples
    --------
    >>> out, cache = learned_positions_forward(np.zeros((2, 2, 1)), np.zeros((3, 1)), offset=1)
    >>> learned_positions_backward(np.ones((2, 2, 1)), cache).d_table.ravel()
    array([0., 2., 2.])
    """
    return LEARNED_POSITIONS.backward(d_out, cache)


class LearnedPositions(Layer):
    """`learned_positions_forward` with a table of its own.

    Parameters
    ----------
    max_tokens : int
        N, the number of positions.
    embed_dim : int
        D.
    std : float
        Standard deviation of the first table's normal numbers.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the table: the same seed draws the same. Default: fresh randomness.

    Examples
    --------
    >>> LearnedPositions(8, 4)(np.zeros((2, 5, 4))).shape
    (2, 5, 4)
    """

    is_alike_in_each_use = True  # backward needs shape and offset, no numbers

    def __init__(
        self,
        max_tokens: int,
        embed_dim: int,
        *,
        std: float = 0.02,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        shape = check_count("max_tokens", max_tokens), check_count("embed_dim", embed_dim)
        std, self.backend = check_number("std", std, positive=True), check_backend(backend)
        self.params["table"] = make_rng(rng).normal(0.0, std, shape)

    def forward(self, x: Array, *, offset: int = 0) -> Array:
        """Add a vector for each position, the first being `offset`: (..., T, D) -> (..., T, D)."""
        table = self.params["table"]
        out, self._cache = learned_positions_forward(x, table, offset=offset)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the table's gradient and return that of `x`."""
        d_x, d_table = learned_positions_backward(d_out, self.forward_cache)
        self.accumulate("table", d_table)
        return d_x


def _check(values: Values) -> None:
    values["shape"], values["table_shape"] = values["x"].shape, values["table"].shape
    (*_, T, _), (N, _) = values["shape"], values["table_shape"]
    check_positions("x", T, values["offset"], N, f"N={N} positions, the rows of table")


def _records(values: Values) -> Records:
    offset, T = values["offset"], values["x"].shape[-2]
    yield "x", "... D", ""
    yield "table", "N D"
    yield "out", "... D", f"x + table[{offset}:{offset + T}]"


def _records_backward(values: Values) -> Records:
    d_out, offset = values["d_out"], values["offset"]
    yield "d_out", "... D", ""
    yield "d_x", "... D", "d_out"
    places = f"np.arange({offset}, {offset + d_out.shape[-2]})"
    summed = f"d_out.sum(axis={tuple(range(d_out.ndim - 2))})" if d_out.ndim > 2 else "d_out"
    yield "d_table", "N D", f"(np.arange(N)[:, None] == {places}) @ {summed}"


def _kernel(kernels: Any, x: Array, table: Array, offset: int) -> Any:
    return kernels.add(x, table[offset : offset + x.shape[-2]])


def _kernel_backward(kernels: Any, d_out: Array, offset: int, table_shape: tuple[int, int]) -> Any:
    rows = np.broadcast_to(offset + np.arange(d_out.shape[-2]), d_out.shape[:-1])
    return d_out, kernels.collect(d_out, rows, table_shape[0])


LEARNED_POSITIONS = Pair(
    learned_positions_steps,
    learned_positions_steps_backward,
    LearnedPositionsCache,
    LearnedPositionsGrads,
    inputs={"table": "N D", "x": "... T D"},
    options={"offset": partial(check_count, least=0)},
    check=_check,
    like=lambda cache: (cache.shape, cache.inner),
    records=_records,
    records_backward=_records_backward,
    kernel=_kernel,
    kernel_backward=_kernel_backward,
)
