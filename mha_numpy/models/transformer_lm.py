"""A language model: a stack of decoder blocks, as in GPT-2 and Llama."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mha_numpy.checks import check_count, check_flag
from mha_numpy.core import KVCache
from mha_numpy.core.backends import check_backend
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.nn import DecoderBlock, Embedding, Layer, LearnedPositions, Linear, Unembedding
from mha_numpy.nn.blocks import make_norm
from mha_numpy.nn.layer import make_rng


class TransformerLM(Layer):
    """Embedding, positions, L decoder blocks, a last norm, and a score for each next token.

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
    tied : bool
        Whether the scores use the embedding's table instead of one of their own.
    backend : {"numpy", "loops", "numba"}
    rng : int or numpy Generator, optional
        Seeds params and dropout; default 0.
    **block_options
        More options of DecoderBlock, such as `norm`, `activation`, `dropout_p`, `num_kv_heads`.
        With `rope` there are no learned positions: queries and keys are rotated instead.

    Notes
    -----
    Source: Radford et al. 2019, *Language models are unsupervised multitask learners*, section
    2.3.

    Examples
    --------
    >>> model = TransformerLM(vocab_size=65, max_tokens=32, embed_dim=16, num_heads=2)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 65)
    """

    def __init__(
        self,
        vocab_size: int,
        max_tokens: int,
        *,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        hidden_dim: int | None = None,
        tied: bool = False,
        backend: str = "numpy",
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        rng, self.backend = make_rng(rng), check_backend(backend)
        self.max_tokens = max_tokens
        self.embedding = Embedding(vocab_size, embed_dim, backend=backend, rng=rng)
        self.positions = None
        if block_options.get("rope") is None:
            self.positions = LearnedPositions(max_tokens, embed_dim, backend=backend, rng=rng)
        self.blocks = [
            DecoderBlock(
                embed_dim, num_heads, hidden_dim, backend=backend, rng=rng, **block_options
            )
            for _ in range(check_count("num_layers", num_layers))
        ]
        self.norm = make_norm(embed_dim, backend, **block_options)
        self.unembedding: Layer = (
            Unembedding(self.embedding, backend=backend)
            if check_flag("tied", tied)
            else Linear(embed_dim, vocab_size, bias=False, backend=backend, rng=rng)
        )

    def forward(self, ids: Array, *, kv_caches: Sequence[KVCache] | None = None) -> Array:
        """Score what comes next after each token: (B, T) -> (B, T, V).

        With `kv_caches`, one for each block, `ids` holds new tokens alone; without backward.
        """
        if kv_caches is not None and len(kv_caches) != len(self.blocks):
            raise ConfigError(
                f"kv_caches: expected one for each of the {len(self.blocks)} blocks; "
                f"got {len(kv_caches)}"
            )
        x = self.embedding(ids)
        if self.positions is not None:
            x = self.positions(x, offset=kv_caches[0].length if kv_caches else 0)
        for i, block in enumerate(self.blocks):
            x = block(x, kv_cache=kv_caches[i] if kv_caches else None)
        return self.unembedding(self.norm(x))

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x = self.norm.backward(self.unembedding.backward(d_logits))
        for block in reversed(self.blocks):
            d_x = block.backward(d_x)
        if self.positions is not None:
            d_x = self.positions.backward(d_x)
        self.embedding.backward(d_x)
