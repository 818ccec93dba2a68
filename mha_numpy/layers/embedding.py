"""Embedding: a row of a table for each token, and back from a vector to a score for each row."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_ids, check_number
from mha_numpy.core import linear_backward, linear_forward
from mha_numpy.core.pair import Pair, Records, Values, record
from mha_numpy.dtypes import Array
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


class Embedding(Layer):
    """`embedding_forward` with a table of its own.

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
        self.accumulate("table", embedding_backward(d_out, self.forward_cache).d_table)


class Unembedding(Layer):
    """``x table^T``: a score for each token, by the table of an embedding; params are shared.

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
        self.embedding.accumulate("table", d_table)
        return d_x


def _check(values: Values) -> None:
    V, _ = values["shape"] = values["table"].shape
    values["ids"] = check_ids("ids", values["ids"], V)


def _records_backward(values: Values) -> Records:
    yield "d_out", "... D", ""
    ids = values["ids"]
    rows = "d_out" if ids.ndim == 1 else f"d_out.reshape({ids.size}, D)"
    one_hot = f"(np.arange(V)[:, None] == ids.reshape(1, {ids.size}))"
    yield "d_table", "V D", f"{one_hot} @ {rows}"


EMBEDDING = Pair(
    embedding_steps,
    embedding_steps_backward,
    EmbeddingCache,
    EmbeddingGrads,
    inputs={"table": "V D"},
    check=_check,
    like=lambda cache: ((*cache.ids.shape, cache.shape[1]), cache.inner),
    records=[("ids", "...", ""), ("table", "V D"), ("out", "... D", "table[ids]")],
    records_backward=_records_backward,
    kernel_backward=lambda kernels, d_out, ids, shape: kernels.collect(d_out, ids, shape[0]),
)

UNEMBEDDING = [("x", "... D", ""), ("table", "V D"), ("out", "... V", "x @ table.T")]
UNEMBEDDING_BACKWARD = [
    ("d_out", "... V", ""),
    ("d_x", "... D", "d_out @ table"),
    ("d_table", "V D", "d_out.reshape(-1, V).T @ x.reshape(-1, D)"),
]
