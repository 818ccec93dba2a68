"""Rows of a table: one for each token, one for each position; and back to a score for each row."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_ids, check_number, check_positions
from mha_numpy.core import linear_backward, linear_forward
from mha_numpy.core.pair import Pair, Records, Values, record
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.layers.layer import Layer, make_rng


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


def embedding_steps_jvp(table_dot: Array, ids: Array) -> Array:
    """Push the tangent of the table forward to each token (..., D)."""
    # 1. out = table[ids]
    return table_dot[ids]


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
        From 0 to V - 1; (B, T) for tokens.
    table : (V, D) float array
        One row for each entry of the vocabulary.

    Returns
    -------
    out : (..., D) array
    cache : EmbeddingCache

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
    return EMBEDDING.forward(ids=ids, table=table)


def embedding_backward(d_out: Array, cache: EmbeddingCache) -> EmbeddingGrads:
    """Add each token's gradient to its row: ``d_table[i] = sum of d_out where ids = i``.

    Rows of tokens that did not occur are 0.

    Examples
    --------
    >>> out, cache = embedding_forward(np.array([2, 1, 2]), np.zeros((3, 2)))
    >>> embedding_backward(np.array([[1.0, 0.0], [5.0, 5.0], [1.0, 3.0]]), cache).d_table
    array([[0., 0.],
           [5., 5.],
           [2., 3.]])
    """
    return EMBEDDING.backward(d_out, cache)


def embedding_jvp(table_dot: Array, cache: EmbeddingCache) -> Array:
    """Push a tangent of the table to the tokens: each moves as its row does.

    Examples
    --------
    >>> out, cache = embedding_forward(np.array([2, 1, 2]), np.zeros((3, 1)))
    >>> embedding_jvp(np.array([[0.0], [1.0], [5.0]]), cache).ravel()
    array([5., 1., 5.])
    """
    return EMBEDDING.jvp(table_dot, cache)


class Embedding(Layer):
    """`embedding_forward` with its own table.

    Parameters
    ----------
    vocab_size : int
        V.
    embed_dim : int
        D.
    std : float
        Standard deviation of the first table's normal numbers.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the table: the same seed draws the same. Default: fresh randomness.

    Examples
    --------
    >>> Embedding(10, 4)(np.array([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        *,
        std: float = 0.02,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        shape = check_count("vocab_size", vocab_size), check_count("embed_dim", embed_dim)
        std, self.backend = check_number("std", std, positive=True), check_backend(backend)
        self.params["table"] = make_rng(rng).normal(0.0, std, shape)

    def forward(self, ids: Array) -> Array:
        """Look up a vector for each token: (...,) -> (..., D)."""
        out, self._cache = embedding_forward(ids, self.params["table"])
        return out

    def backward(self, d_out: Array) -> None:
        """Add to the table's gradient; ids have none."""
        d_table = embedding_backward(d_out, self.forward_cache).d_table
        self.accumulate("table", d_table, copy=False)


class Unembedding(Layer):
    """``x table^T``: a score for each token, from the table of an embedding; params are shared.

    Parameters
    ----------
    embedding : Embedding
        Its table is this layer's too, and so is the table's gradient.
    backend : {"numpy", "loops", "numba"}, optional

    Notes
    -----
    Source: Press and Wolf 2017, *Using the output embedding to improve language models*.

    Examples
    --------
    >>> embedding = Embedding(10, 4)
    >>> Unembedding(embedding)(np.ones((2, 3, 4))).shape
    (2, 3, 10)
    """

    def __init__(self, embedding: Embedding, *, backend: str | None = None) -> None:
        super().__init__()
        self.embedding = embedding
        self.backend = check_backend(backend)

    def forward(self, x: Array) -> Array:
        """Score every token of the vocabulary: (..., D) -> (..., V)."""
        table = self.embedding.params["table"]
        out, self._cache = linear_forward(x, table.T)
        record({"x": self._cache.x, "table": table, "out": out}, UNEMBEDDING)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the table's gradient and return that of `x`."""
        d_x, d_w, _ = linear_backward(d_out, self.forward_cache)
        d_table = d_w.T
        record({"d_out": d_out, "d_x": d_x, "d_table": d_table}, UNEMBEDDING_BACKWARD)
        self.embedding.accumulate("table", d_table, copy=False)
        return d_x


UNEMBEDDING = [("x", "... D", ""), ("table", "V D"), ("out", "... V", "x @ table.T")]
UNEMBEDDING_BACKWARD = [
    ("d_out", "... V", ""),
    ("d_x", "... D", "d_out @ table"),
    ("d_table", "V D", "d_out.reshape(-1, V).T @ x.reshape(-1, D)"),
]


def _check_embedding(values: Values) -> None:
    V, _ = values["shape"] = values["table"].shape
    values["ids"] = check_ids("ids", values["ids"], V)


def _embedding_records_backward(values: Values) -> Records:
    yield "d_out", "... D", ""
    ids = values["ids"]
    rows = "d_out" if ids.ndim == 1 else f"d_out.reshape({ids.size}, D)"
    one_hot = f"(np.arange(V)[:, None] == ids.reshape(1, {ids.size}))"
    yield "d_table", "V D", f"{one_hot} @ {rows}"


EMBEDDING = Pair(
    embedding_steps,
    embedding_steps_backward,
    embedding_steps_jvp,
    EmbeddingCache,
    EmbeddingGrads,
    inputs={"table": "V D"},
    check=_check_embedding,
    like=lambda cache: ((*cache.ids.shape, cache.shape[1]), cache.inner),
    shapes=lambda cache: {"table": cache.shape},
    records=[("ids", "...", ""), ("table", "V D"), ("out", "... D", "table[ids]")],
    records_backward=_embedding_records_backward,
    kernel_backward=lambda kernels, d_out, ids, shape: kernels.collect(d_out, ids, shape[0]),
)


def learned_positions_steps(x: Array, table: Array, rows: slice | Array) -> Array:
    """Add to each token the row of its position: (..., T, D)."""
    # 1. add
    return x + table[rows]


def learned_positions_steps_backward(
    d_out: Array, rows: slice | Array, table_shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Pull the gradient (..., T, D) back to x and table (N, D); a row serves many tokens."""
    # 1. out = x + table[rows], where the rows of (T,) positions serve every sequence
    d_table = np.zeros(table_shape, d_out.dtype)
    of_rows = 1 if isinstance(rows, slice) else rows.ndim
    d_rows = d_out.sum(axis=tuple(range(d_out.ndim - 1 - of_rows)))
    if isinstance(rows, slice):
        d_table[rows] = d_rows
    else:  # which may name a row several times
        np.add.at(d_table, rows, d_rows)
    return d_out, d_table


def learned_positions_steps_jvp(x_dot: Array, table_dot: Array, rows: slice | Array) -> Array:
    """Push the tangents of x and table forward (..., T, D)."""
    # 1. out = x + table[rows]
    return x_dot + table_dot[rows]


class LearnedPositionsCache(NamedTuple):
    """What `learned_positions_backward` needs."""

    rows: slice | Array  # of the table: a slice of T, or the positions of (T,) or (..., T) tokens
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
    x: Array, table: Array, *, offset: int = 0, positions: Array | None = None
) -> tuple[Array, LearnedPositionsCache]:
    """Add a vector for the position: ``out[t] = x[t] + table[offset + t]``.

    Parameters
    ----------
    x : (..., T, D) float array
    table : (N, D) float array
        One row for each of N positions.
    offset : int
        Position of the first token; when decoding, the number of tokens before.
    positions : (T,) or (..., T) int array, optional
        Of each token, if they do not simply count on from `offset`.

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
    return LEARNED_POSITIONS.forward(x=x, table=table, offset=offset, positions=positions)


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


def learned_positions_jvp(tangents: Any, cache: LearnedPositionsCache) -> Array:
    """Push tangents through: ``out_dot = x_dot + table_dot[position]``; in this order or by name.

    Examples
    --------
    >>> out, cache = learned_positions_forward(np.zeros((2, 1)), np.zeros((3, 1)), offset=1)
    >>> learned_positions_jvp({"table": np.array([[5.0], [6.0], [7.0]])}, cache).ravel()
    array([6., 7.])
    """
    return LEARNED_POSITIONS.jvp(tangents, cache)


class LearnedPositions(Layer):
    """`learned_positions_forward` with its own table.

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

    is_alike_in_each_use = True  # backward needs shape and rows, no numbers of x

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

    def forward(self, x: Array, *, offset: int = 0, positions: Array | None = None) -> Array:
        """Add a vector for each position, the first being `offset`: (..., T, D) -> (..., T, D)."""
        out, self._cache = learned_positions_forward(
            x, self.params["table"], offset=offset, positions=positions
        )
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the table's gradient and return that of `x`."""
        d_x, d_table = learned_positions_backward(d_out, self.forward_cache)
        self.accumulate("table", d_table, copy=False)
        return d_x


def _check_positions(values: Values) -> None:
    values["shape"], values["table_shape"] = values["x"].shape, values["table"].shape
    (*_, T, _), (N, _) = values["shape"], values["table_shape"]
    offset, positions = values["offset"], values["positions"]
    if positions is None:
        check_positions("x", T, offset, N, f"N={N} positions, the rows of table")
        values["rows"] = slice(offset, offset + T)
        return
    if offset:
        raise ConfigError(f"offset: expected none with positions; got {offset}")
    values["rows"] = positions = check_ids("positions", positions, N)
    tokens = values["shape"][:-1]
    if positions.shape not in ((T,), tokens):
        raise ShapeError(
            f"positions: expected ({T},) or {tokens} to match x; got {positions.shape}"
        )


def _positions_records(values: Values) -> Records:
    rows = values["rows"]
    yield "x", "... D", ""
    yield "table", "N D"
    if isinstance(rows, slice):
        yield "out", "... D", f"x + table[{rows.start}:{rows.stop}]"
        return
    yield "rows", "..." if rows.ndim > 1 else "T"
    yield "out", "... D", "x + table[rows]"


def _positions_records_backward(values: Values) -> Records:
    d_out, rows = values["d_out"], values["rows"]
    yield "d_out", "... D", ""
    yield "d_x", "... D", "d_out"
    places = f"np.arange({rows.start}, {rows.stop})" if isinstance(rows, slice) else "rows"
    summed = f"d_out.sum(axis={tuple(range(d_out.ndim - 2))})" if d_out.ndim > 2 else "d_out"
    if places == "rows" and rows.ndim > 1:
        places, summed = f"rows.reshape(1, {rows.size})", f"d_out.reshape({rows.size}, D)"
    yield "d_table", "N D", f"(np.arange(N)[:, None] == {places}) @ {summed}"


def _positions_kernel(kernels: Any, x: Array, table: Array, rows: slice | Array) -> Any:
    return kernels.add(x, table[rows])


def _positions_kernel_backward(kernels: Any, d_out: Array, rows: slice | Array, shape: Any) -> Any:
    places = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    return d_out, kernels.collect(d_out, np.broadcast_to(places, d_out.shape[:-1]), shape[0])


LEARNED_POSITIONS = Pair(
    learned_positions_steps,
    learned_positions_steps_backward,
    learned_positions_steps_jvp,
    LearnedPositionsCache,
    LearnedPositionsGrads,
    inputs={"table": "N D", "x": "... T D"},
    options={"offset": partial(check_count, least=0)},
    check=_check_positions,
    like=lambda cache: (cache.shape, cache.inner),
    shapes=lambda cache: {"x": cache.shape, "table": cache.table_shape},
    records=_positions_records,
    records_backward=_positions_records_backward,
    kernel=_positions_kernel,
    kernel_backward=_positions_kernel_backward,
)
