"""BERT: a stack of encoder blocks in which every token sees every other."""

from typing import Any

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_ids, check_tokens
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MaskError, ShapeError, describe
from mha_numpy.layers import Dropout, Embedding, EncoderBlock, Layer, LearnedPositions
from mha_numpy.layers.layer import make_rng
from mha_numpy.layers.transformer_blocks import make_norm
from mha_numpy.models.inputs import as_cells, check_mask
from mha_numpy.steps import record_sum, step


class Bert(Layer):
    """Embedding, segments, positions, a norm, and L encoder blocks with post-norm.

    Parameters
    ----------
    vocab_size, max_tokens, embed_dim, num_heads, num_layers, hidden_dim, backend, rng
        As for `TransformerLM`.
    num_segments : int
        How many kinds of text a sequence has: 2, as for a question and its answer.
    eps : float
        Of the norms.
    dropout_p : float
        Share to drop while training.
    **block_options
        More options of EncoderBlock, such as `activation`; all but `norm_first`.

    Notes
    -----
    The parts that pretraining put on top (a pooler, scores for hidden words) are left out, because
    other models build on the hidden states. Source: Devlin et al. 2019, *BERT*, section 3.

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
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        if "norm_first" in block_options:
            raise ConfigError(
                "norm_first: expected none, because Bert is post-norm; "
                f"got {describe(block_options['norm_first'])}"
            )
        rng = make_rng(rng)
        self.backend = check_backend(backend)
        self.max_tokens = check_count("max_tokens", max_tokens)
        self.vocab_size, self.embed_dim = vocab_size, embed_dim
        self.num_heads, self.num_layers, self.num_segments = num_heads, num_layers, num_segments
        self.embedding = Embedding(vocab_size, embed_dim, rng=rng)
        self.segments = Embedding(num_segments, embed_dim, rng=rng)
        self.positions = LearnedPositions(max_tokens, embed_dim, rng=rng)
        self.norm = make_norm(embed_dim, eps=eps, **block_options)
        self.dropout = Dropout(dropout_p, rng=rng)
        self.blocks = [
            EncoderBlock(
                embed_dim, num_heads, hidden_dim, norm_first=False, eps=eps, dropout_p=dropout_p,
                rng=rng, **block_options,
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
            As for `TransformerLM`; here a token also sees what comes after it.
        segments : (B, T) int array, optional
            Which text each token belongs to; default text 0 for all.
        """
        ids = step("ids", check_tokens("ids", ids, self.max_tokens), "B T")
        mask = as_cells(mask, ids.shape)
        if segments is None:
            segments = step("segments", np.zeros_like(ids), "B T", "0 * ids")
        segments = check_ids("segments", segments, self.num_segments)
        if segments.shape != ids.shape:
            raise ShapeError(f"segments: expected {ids.shape}, as ids; got {segments.shape}")
        of_token, of_segment = self.embedding(ids), self.segments(segments)
        x = record_sum("embedded", of_token + of_segment, "B T D", of_token, of_segment)
        x = self.dropout(self.norm(self.positions(x)))
        for block in self.blocks:
            x = block(x, mask=mask)
        return step("hidden", x, "B T D")

    def backward(self, d_hidden: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x: Any = step("d_hidden", d_hidden, "B T D")
        for block in reversed(self.blocks):
            d_x = block.backward(d_x)
        d_x = self.positions.backward(self.norm.backward(self.dropout.backward(d_x)))
        self.segments.backward(d_x)
        self.embedding.backward(d_x)


class SentenceBert(Layer):
    """One vector of length 1 for each text: the mean of its tokens' hidden states.

    ``s = sum_t m_t h_t / sum_t m_t`` and ``e = s / |s|``, where m is 1 for tokens and 0 for
    padding. Their products, the cosines, say how similar two texts are.

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
        """Return a vector for each text: (B, T) -> (B, D).

        Parameters
        ----------
        ids, segments
            As for `Bert`.
        mask : (B, T) bool array, optional
            True = a token, False = padding. Each text has at least one token.
        """
        shape = check_tokens("ids", ids, self.bert.max_tokens).shape
        counted = np.ones(shape, bool) if mask is None else check_mask(mask, shape)
        if not counted.any(axis=1).all():
            first = int(np.flatnonzero(~counted.any(axis=1))[0])
            name, error = ("ids", ShapeError) if mask is None else ("mask", MaskError)
            raise error(f"{name}: expected a token in each text; got none in text {first}")
        hidden = self.bert(ids, mask=mask, segments=segments)  # (B, T, D)
        share = (counted / counted.sum(axis=1, keepdims=True)).astype(hidden.dtype)  # (B, T)

        equation = f"np.full_like(bert.hidden[..., 0], 1 / {hidden.shape[1]})"
        if mask is not None:
            step("mask", mask, "B T")
            equation = "mask / mask.sum(axis=1, keepdims=True)"
        step("share", share, "B T", equation)

        # 1. the mean of the tokens
        mean = (share[:, None] @ hidden)[:, 0]
        step("mean", mean, "B D", "(share[:, None] @ bert.hidden)[:, 0]")
        # 2. length 1
        length = np.sqrt((mean * mean).sum(axis=1, keepdims=True))
        step("length", length, "B 1", "np.sqrt((mean * mean).sum(axis=1, keepdims=True))")
        vectors = step("vectors", mean / length, "B D", "mean / length")
        self._cache = share, length, vectors
        return vectors

    def backward(self, d_vectors: Array) -> None:
        """Add to the params' gradients; ids have none."""
        share, length, vectors = self.forward_cache
        # 2. vectors = mean / |mean|: what points along the vector changes only its length
        step("d_vectors", d_vectors, "B D")
        along = (d_vectors * vectors).sum(axis=1, keepdims=True)
        step("along", along, "B 1", "(d_vectors * vectors).sum(axis=1, keepdims=True)")
        d_mean = (d_vectors - along * vectors) / length
        step("d_mean", d_mean, "B D", "(d_vectors - along * vectors) / length")
        # 1. mean = share @ hidden
        d_hidden = share[:, :, None] * d_mean[:, None]
        step("d_hidden", d_hidden, "B T D", "share[:, :, None] * d_mean[:, None]")
        self.bert.backward(d_hidden)
