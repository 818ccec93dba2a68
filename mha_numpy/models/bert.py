"""BERT: a stack of encoder blocks in which every token sees every other."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_count, check_shape
from mha_numpy.dtypes import Array, as_integer_array
from mha_numpy.errors import MaskError, describe
from mha_numpy.nn import Dropout, Embedding, EncoderBlock, Layer, LayerNorm, LearnedPositions
from mha_numpy.nn.layer import make_rng


class Bert(Layer):
    """Embedding, segments, positions, a norm, and L encoder blocks with post-norm.

    Parameters
    ----------
    vocab_size : int
        V.
    max_tokens : int
        The longest sequence.
    embed_dim, num_heads, num_layers : int
        D, H, L.
    hidden_dim : int, optional
        F; default 4 D.
    num_segments : int
        How many kinds of text a sequence holds: 2, as for a question and its answer.
    eps : float
        Of the norms.
    dropout_p : float
        Share that is dropped while training.
    backend : {"numpy", "loops", "numba"}
    rng : int or numpy Generator, optional
        Seeds params and dropout; default 0.
    **block_options
        More options of EncoderBlock, such as `activation`.

    Notes
    -----
    What its pretraining put on top (a pooler, scores for hidden words) is left out: the hidden
    states are what others build on. Source: Devlin et al. 2019, *BERT*, section 3.

    Examples
    --------
    >>> model = Bert(vocab_size=30, max_tokens=16, embed_dim=8, num_heads=2, num_layers=1)
    >>> ids = np.array([[2, 7, 9, 3], [2, 8, 3, 0]])
    >>> model(ids, mask=ids > 0).shape
    (2, 4, 8)
    """

    def __init__(
        self,
        vocab_size: int,
        max_tokens: int,
        *,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        hidden_dim: int | None = None,
        num_segments: int = 2,
        eps: float = 1e-12,
        dropout_p: float = 0.0,
        backend: str = "numpy",
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        rng = make_rng(rng)
        self.max_tokens = max_tokens
        self.embedding = Embedding(vocab_size, embed_dim, backend=backend, rng=rng)
        self.segments = Embedding(num_segments, embed_dim, backend=backend, rng=rng)
        self.positions = LearnedPositions(max_tokens, embed_dim, backend=backend, rng=rng)
        bias = block_options.get("bias", True)
        self.norm = LayerNorm(embed_dim, eps=eps, bias=bias, backend=backend)
        self.dropout = Dropout(dropout_p, rng=rng)
        self.blocks = [
            EncoderBlock(
                embed_dim, num_heads, hidden_dim, norm_first=False, eps=eps, dropout_p=dropout_p,
                backend=backend, rng=rng, **block_options,
            )
            for _ in range(check_count("num_layers", num_layers))
        ]  # fmt: skip

    def forward(
        self, ids: Array, *, mask: Array | None = None, segments: Array | None = None
    ) -> Array:
        """Return the last hidden states: (B, T) -> (B, T, D).

        Parameters
        ----------
        ids : (B, T) int array
        mask : (B, T) bool array, optional
            True = a token, False = padding, which nobody sees.
        segments : (B, T) int array, optional
            Which text each token is of; default all of text 0.
        """
        ids = as_integer_array("ids", ids, "an integer array (B, T)")
        check_shape("ids", ids, "B T", {})
        x = self.embedding(ids) + self.segments(
            np.zeros_like(ids) if segments is None else segments
        )
        x = self.dropout(self.norm(self.positions(x)))
        for block in self.blocks:
            x = block(x, mask=_to_heads(mask, ids.shape))
        return x

    def backward(self, d_hidden: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x: Any = d_hidden
        for block in reversed(self.blocks):
            d_x = block.backward(d_x)
        d_x = self.positions.backward(self.norm.backward(self.dropout.backward(d_x)))
        self.segments.backward(d_x)
        self.embedding.backward(d_x)


class SentenceBert(Layer):
    """One vector of length 1 for each text: the mean of its tokens' hidden states.

    ``s = sum_t m_t h_t / sum_t m_t`` and ``e = s / |s|``, where m is 1 for tokens and 0 for
    padding. Their products, the cosines, say how much two texts are alike.

    Parameters
    ----------
    bert : Bert

    Notes
    -----
    Source: Reimers and Gurevych 2019, *Sentence-BERT*, section 3.

    Examples
    --------
    >>> model = SentenceBert(Bert(30, 16, embed_dim=8, num_heads=2, num_layers=1))
    >>> ids = np.array([[2, 7, 9, 3], [2, 8, 3, 0]])
    >>> vectors = model(ids, mask=ids > 0)
    >>> vectors.shape, np.linalg.norm(vectors, axis=1).round(6)
    ((2, 8), array([1., 1.]))
    """

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        self.training = bert.training  # or a wrapped model would begin to drop again

    def forward(
        self, ids: Array, *, mask: Array | None = None, segments: Array | None = None
    ) -> Array:
        """Return a vector for each text: (B, T) -> (B, D)."""
        hidden = self.bert(ids, mask=mask, segments=segments)  # (B, T, D)
        counted = np.ones(hidden.shape[:2], bool) if mask is None else mask
        share = (counted / counted.sum(axis=1, keepdims=True)).astype(hidden.dtype)  # (B, T)

        # 1. the mean of the tokens
        mean = (share[:, None] @ hidden)[:, 0]  # (B, D)
        # 2. length 1
        length = np.sqrt((mean * mean).sum(axis=1, keepdims=True))  # (B, 1)
        vectors = mean / length
        self._cache = share, length, vectors
        return vectors

    def backward(self, d_vectors: Array) -> None:
        """Add to the params' gradients; ids have none."""
        share, length, vectors = self.forward_cache
        # 2. vectors = mean / |mean|: what points along the vector changes only its length
        along = (d_vectors * vectors).sum(axis=1, keepdims=True)  # (B, 1)
        d_mean = (d_vectors - along * vectors) / length  # (B, D)
        # 1. mean = share @ hidden
        self.bert.backward(share[:, :, None] * d_mean[:, None])  # (B, T, D)


def _to_heads(mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Return a mask of tokens as one of keys that all heads and queries share: (B, 1, 1, T)."""
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != shape:
        raise MaskError(
            f"mask: expected bool (B, T) = {shape}, True = a token; got {describe(mask)}"
        )
    return mask[:, None, None]
