"""A translator: an encoder reads the source, a decoder that reads the encoder writes the target."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.core.backends import check_backend
from mha_numpy.dtypes import Array, as_integer_array
from mha_numpy.errors import ShapeError
from mha_numpy.nn import (
    Embedding,
    EncoderBlock,
    EncoderDecoderBlock,
    Layer,
    LearnedPositions,
    Linear,
)
from mha_numpy.nn.blocks import make_norm
from mha_numpy.nn.layer import make_rng

PADDING, START, END = 0, 1, 2  # ids that are no words, the same in source and target


class Translator(Layer):
    """L encoder blocks and L decoder blocks, as in the first transformer, with pre-norm.

    Parameters
    ----------
    source_vocab_size, target_vocab_size : int
        V of each language; ids 0, 1 and 2 are padding, start and end.
    max_tokens : int
        The longest sequence of either.
    embed_dim, num_heads, num_layers : int
        D, H, L.
    hidden_dim : int, optional
        F; default 4 D.
    backend : {"numpy", "loops", "numba"}
    rng : int or numpy Generator, optional
        Seeds params and dropout; default 0.
    **block_options
        More options of the blocks, such as `norm`, `activation`, `dropout_p`.

    Notes
    -----
    Source: Vaswani et al. 2017, section 3.

    Examples
    --------
    >>> model = Translator(10, 12, max_tokens=8, embed_dim=16, num_heads=2)
    >>> source, target = np.array([[3, 4, 5, 0]]), np.array([[1, 6, 7]])
    >>> model(source, target).shape
    (1, 3, 12)
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        max_tokens: int,
        *,
        embed_dim: int = 32,
        num_heads: int = 2,
        num_layers: int = 1,
        hidden_dim: int | None = None,
        backend: str = "numpy",
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        rng, self.backend = make_rng(rng), check_backend(backend)
        check_count("num_layers", num_layers)
        shared = {"backend": backend, "rng": rng, **block_options}

        def norm() -> Layer:
            return make_norm(block_options.get("norm", "layer"), embed_dim, backend)

        self.max_tokens = max_tokens
        self.source_embedding = Embedding(
            source_vocab_size, embed_dim, std=1.0, backend=backend, rng=rng
        )
        self.source_positions = LearnedPositions(
            max_tokens, embed_dim, std=1.0, backend=backend, rng=rng
        )
        self.encoder = [
            EncoderBlock(embed_dim, num_heads, hidden_dim, **shared) for _ in range(num_layers)
        ]
        self.encoder_norm = norm()
        self.target_embedding = Embedding(
            target_vocab_size, embed_dim, std=1.0, backend=backend, rng=rng
        )
        self.target_positions = LearnedPositions(
            max_tokens, embed_dim, std=1.0, backend=backend, rng=rng
        )
        self.decoder = [
            EncoderDecoderBlock(embed_dim, num_heads, hidden_dim, **shared)
            for _ in range(num_layers)
        ]
        self.decoder_norm = norm()
        self.unembedding = Linear(
            embed_dim, target_vocab_size, bias=False, backend=backend, rng=rng
        )

    def encode(self, source: Array) -> Array:
        """Read the source: (B, T_k) -> (B, T_k, D)."""
        mask = padding_of(source)
        x = self.source_positions(self.source_embedding(source))
        for block in self.encoder:
            x = block(x, mask=mask)
        return self.encoder_norm(x)

    def decode(self, memory: Array, memory_mask: Array, target: Array) -> Array:
        """Score what comes next after each target token: (B, T_q) -> (B, T_q, V)."""
        x = self.target_positions(self.target_embedding(target))
        for block in self.decoder:
            x = block(x, memory, memory_mask=memory_mask)
        return self.unembedding(self.decoder_norm(x))

    def forward(self, source: Array, target: Array) -> Array:
        """Score what comes next after each target token, for a known source.

        Parameters
        ----------
        source : (B, T_k) int array
            Ids; 0 is padding.
        target : (B, T_q) int array
            Ids, the first 1 for the start.

        Returns
        -------
        (B, T_q, V) array
        """
        return self.decode(self.encode(source), padding_of(source), target)

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x = self.decoder_norm.backward(self.unembedding.backward(d_logits))
        d_memory = np.zeros((), d_x.dtype)
        for decoder in reversed(self.decoder):
            d_x, d_read = decoder.backward(d_x)
            d_memory = d_memory + d_read  # all blocks read the same memory
        self.target_embedding.backward(self.target_positions.backward(d_x))
        d_x = self.encoder_norm.backward(d_memory)
        for encoder in reversed(self.encoder):
            d_x = encoder.backward(d_x)
        self.source_embedding.backward(self.source_positions.backward(d_x))


def padding_of(source: Array) -> Array:
    """Return which tokens may be attended to: (B, T_k) -> (B, 1, 1, T_k), False at padding."""
    source = as_integer_array("source", source, "an integer array (B, T_k)")
    if source.ndim != 2:
        raise ShapeError(
            f"source: expected (B, T_k); got {source.shape}; for one sequence write source[None]"
        )
    return (source != PADDING)[:, None, None, :]
