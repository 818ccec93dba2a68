"""A translator: an encoder reads the source, a decoder that reads the encoder writes the target."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_ids, check_tokens
from mha_numpy.core import KVCache
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ShapeError
from mha_numpy.layers import (
    Embedding,
    EncoderBlock,
    EncoderDecoderBlock,
    Layer,
    LearnedPositions,
    Linear,
)
from mha_numpy.layers.layer import make_rng
from mha_numpy.layers.transformer_blocks import make_norm
from mha_numpy.models.inputs import check_kv_caches, first_place, unchanged_on_error
from mha_numpy.steps import record_sum, step

PADDING, START, END = 0, 1, 2  # ids that are no words, the same in source and target
IS_WORD = f"(source != {PADDING})[:, None, None, :]"


class Translator(Layer):
    """L encoder blocks and L decoder blocks, as in the first transformer, with pre-norm.

    Parameters
    ----------
    source_vocab_size, target_vocab_size : int
        V of each language; ids 0, 1 and 2 are padding, start and end.
    max_tokens : int
        The longest sequence of either.
    embed_dim, num_heads, num_layers, hidden_dim, backend, rng
        As for `TransformerLM`.
    **block_options
        More options of the blocks, such as `norm`, `activation`, `dropout_p`. With `rope` there
        are no learned positions: queries and keys of self-attention are rotated instead.

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

    passes = ("forward", "backward", "encode", "decode")

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
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        rng, self.backend = make_rng(rng), check_backend(backend)
        check_count("num_layers", num_layers)
        shared = {"rng": rng, **block_options}

        def norm() -> Layer:
            return make_norm(embed_dim, **block_options)

        def positions() -> LearnedPositions | None:
            if block_options.get("rope") is not None:
                return None
            return LearnedPositions(max_tokens, embed_dim, std=1.0, rng=rng)

        self.max_tokens = check_count("max_tokens", max_tokens)
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.embed_dim, self.num_heads, self.num_layers = embed_dim, num_heads, num_layers
        self.source_embedding: Layer = Embedding(source_vocab_size, embed_dim, std=1.0, rng=rng)
        self.source_positions: Layer | None = positions()
        self.encoder = [
            EncoderBlock(embed_dim, num_heads, hidden_dim, **shared) for _ in range(num_layers)
        ]
        self.encoder_norm = norm()
        self.target_embedding = Embedding(target_vocab_size, embed_dim, std=1.0, rng=rng)
        self.target_positions = positions()
        self.decoder = [
            EncoderDecoderBlock(embed_dim, num_heads, hidden_dim, **shared)
            for _ in range(num_layers)
        ]
        self.decoder_norm = norm()
        self.unembedding = Linear(embed_dim, target_vocab_size, bias=False, rng=rng)

    def encode(self, source: Array) -> Array:
        """Read the source: (B, T_k) -> (B, T_k, D)."""
        source = check_tokens("source", source, self.max_tokens)
        source = step("source", check_ids("source", source, self.source_vocab_size), "B T_k")
        x = step("embedded", self.source_embedding(source), "B T_k D")
        if self.source_positions is not None:
            x = self.source_positions(x)
        mask = step("source_mask", padding_of(source), "B 1 1 T_k", IS_WORD)
        for block in self.encoder:
            x = block(x, mask=mask)
        return step("memory", self.encoder_norm(x), "B T_k D")

    def decode(
        self,
        memory: Array,
        memory_mask: Array,
        target: Array,
        *,
        kv_caches: Sequence[tuple[KVCache, KVCache]] | None = None,
    ) -> Array:
        """Score what comes next after each target token: (B, T_q) -> (B, T_q, V).

        With `kv_caches`, a pair for each block, `target` holds only new tokens, and the memory's
        keys and values are computed once; without backward.
        """
        caches = check_kv_caches(
            kv_caches, len(self.decoder), are_pairs=True,
            are_places_added=self.target_positions is not None,
        )  # fmt: skip
        past = first_place(caches, target)
        target = self._check_target(target, past)
        memory = as_float_array("memory", memory)
        if target.shape[:1] != memory.shape[:1]:
            raise ShapeError(
                "target: expected (B, T_q), as many sequences as in the source, whose memory is "
                f"{memory.shape}; got {target.shape}"
            )
        x = step("target_embedded", self.target_embedding(target), "B T_q D")
        if self.target_positions is not None:
            x = self.target_positions(x, offset=past)
        with unchanged_on_error(caches):
            for block, of_block in zip(self.decoder, caches, strict=True):
                own, of_memory = of_block or (None, None)
                x = block(
                    x, memory, memory_mask=memory_mask, kv_cache=own, memory_kv_cache=of_memory
                )
        return step("logits", self.unembedding(self.decoder_norm(x)), "B T_q V")

    def _check_target(self, target: Any, past: int = 0) -> Array:
        """Return the target's ids (B, T_q), of tokens that come after `past` others."""
        target = check_tokens("target", target, self.max_tokens, offset=past)
        return check_ids("target", target, self.target_vocab_size)

    def new_kv_caches(self) -> list[tuple[KVCache, KVCache]]:
        """Return two empty KV caches for each block: of the target, and of the memory."""
        return [(KVCache(), KVCache()) for _ in self.decoder]

    def forward(self, source: Array, target: Array) -> Array:
        """Score what comes next after each target token: (B, T_k), (B, T_q) -> (B, T_q, V).

        Parameters
        ----------
        source : (B, T_k) int array
            Ids; 0 is padding.
        target : (B, T_q) int array
            Ids, the first 1 for the start.
        """
        target = self._check_target(target)  # before the source is read
        memory = self.encode(source)
        memory_mask = step("memory_mask", padding_of(source), "B 1 1 T_k", IS_WORD)
        return self.decode(memory, memory_mask, target)

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        step("d_logits", d_logits, "B T_q V")
        d_x = self.decoder_norm.backward(self.unembedding.backward(d_logits))
        d_reads = []
        for decoder in reversed(self.decoder):
            d_x, d_read = decoder.backward(d_x)
            d_reads.append(d_read)
        # all blocks read the same memory
        d_memory = record_sum("d_memory", sum(d_reads[1:], d_reads[0]), "B T_k D", *d_reads)
        if self.target_positions is not None:
            d_x = self.target_positions.backward(d_x)
        self.target_embedding.backward(d_x)
        d_x = self.encoder_norm.backward(d_memory)
        for encoder in reversed(self.encoder):
            d_x = encoder.backward(d_x)
        if self.source_positions is not None:
            d_x = self.source_positions.backward(d_x)
        self.source_embedding.backward(d_x)


def padding_of(source: Array) -> Array:
    """Return which tokens a query may attend to: (B, T_k) -> (B, 1, 1, T_k), False at padding."""
    return (np.asarray(source) != PADDING)[:, None, None, :]
