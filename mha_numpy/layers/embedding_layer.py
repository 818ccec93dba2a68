"""Vectors for tokens and for positions, as layers."""

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_number
from mha_numpy.core import linear_backward, linear_forward
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import axes_of
from mha_numpy.layers.embedding import embedding_backward, embedding_forward
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.layers.learned_positions import learned_positions_backward, learned_positions_forward
from mha_numpy.steps import constant, is_watched, step


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
        if is_watched():
            step("x", self._cache.x, axes_of(out))
            constant("table", table, "V D")
            step("out", out, axes_of(out, "V"), "x @ table.T")
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the table's gradient and return that of `x`."""
        d_x, d_w, _ = linear_backward(d_out, self.forward_cache)
        d_table = d_w.T
        if is_watched():
            step("d_out", d_out, axes_of(d_out, "V"))
            step("d_x", d_x, axes_of(d_out), "d_out @ table")
            step("d_table", d_table, "V D", "d_out.reshape(-1, V).T @ x.reshape(-1, D)")
        self.embedding.accumulate("table", d_table)
        return d_x


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
