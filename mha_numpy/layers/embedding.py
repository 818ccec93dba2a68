"""Embedding: a row of a table for each token; forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_ids, check_shape, check_type
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import constant, is_watched, step


def embedding_steps(ids: Array, table: Array) -> Array:
    """Look up the row of each token: (...,) -> (..., D)."""
    # 1. look up
    return table[ids]


def embedding_steps_backward(d_out: Array, ids: Array, shape: tuple[int, int]) -> Array:
    """Pull the gradient (..., D) back to the table (V, D): a row collects from all its tokens."""
    # 1. out = table[ids]; the same as np.add.at(d_table, ids, d_out), and quicker
    ids, d_out_rows = ids.reshape(-1), d_out.reshape(ids.size, shape[1])
    order = ids.argsort(kind="stable")  # tokens with one id side by side
    rows, first = np.unique(ids[order], return_index=True)
    d_table = np.zeros(shape, d_out.dtype)
    d_table[rows] = np.add.reduceat(d_out_rows[order], first, axis=0)
    return d_table


class EmbeddingCache(NamedTuple):
    """What `embedding_backward` needs."""

    ids: Array  # (...,) int
    shape: tuple[int, int]  # of the table: (V, D)
    dtype: np.dtype[Any]
    inner: np.dtype[Any]  # to compute in
    backend: str


class EmbeddingGrads(NamedTuple):
    """The gradient of the one differentiable input."""

    d_table: Array  # (V, D)


def embedding_forward(ids: Array, table: Array) -> tuple[Array, EmbeddingCache]:
    """Look up a vector for each token: ``out = table[ids]``.

    Parameters
    ----------
    ids : (...,) int array
        Of 0 to V - 1; (B, T) for tokens.
    table : (V, D) float array
        One row for each entry of the vocabulary.

    Returns
    -------
    out : (..., D) array
    cache : EmbeddingCache

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        `table` is not a float array of rank 2; `ids` are not integers, or one is not in the table.

    Notes
    -----
    It is a product with one-hot rows, ``one_hot(ids) @ table``, without their zeros.
    Source: Bengio et al. 2003, *A neural probabilistic language model*, section 2.

    Examples
    --------
    >>> table = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> embedding_forward(np.array([2, 1, 2]), table)[0]
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    dtype, (table,) = as_computed(table=table)
    sizes: dict[str, int] = {}
    check_shape("table", table, "V D", sizes)
    ids = check_ids("ids", ids, sizes["V"])
    out = embedding_steps(ids, table)
    if is_watched():
        step("ids", ids, axes_of(out, ""))
        constant("table", table, "V D")
        step("out", out, axes_of(out), "table[ids]")
    cache = EmbeddingCache(ids, table.shape, dtype, table.dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def embedding_backward(d_out: Array, cache: EmbeddingCache) -> EmbeddingGrads:
    """Add each token's gradient to its row: ``d_table[i] = sum of d_out where ids = i``.

    Parameters
    ----------
    d_out : (..., D) float array
    cache : EmbeddingCache

    Returns
    -------
    EmbeddingGrads
        ``d_table``, 0 in the rows of tokens that did not occur.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Examples
    --------
    >>> out, cache = embedding_forward(np.array([2, 1, 2]), np.zeros((3, 2)))
    >>> embedding_backward(np.array([[1.0, 0.0], [5.0, 5.0], [1.0, 3.0]]), cache).d_table
    array([[0., 0.],
           [5., 5.],
           [2., 3.]])
    """
    check_type("cache", cache, EmbeddingCache, "embedding_forward")
    ids, shape, dtype, inner, backend = cache
    d_out = as_gradient(d_out, (*ids.shape, shape[1]), inner)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, backend=backend)
    if kernels is None:
        d_table = embedding_steps_backward(d_out, ids, shape)
    else:
        d_table = kernels.collect(d_out, ids, shape[0])
    if is_watched():
        step("d_out", d_out, axes_of(d_out))
        rows = "d_out" if ids.ndim == 1 else f"d_out.reshape({ids.size}, D)"
        one_hot = f"(np.arange(V)[:, None] == ids.reshape(1, {ids.size}))"
        step("d_table", d_table, "V D", f"{one_hot} @ {rows}")
    return EmbeddingGrads(d_table.astype(dtype, copy=False))
