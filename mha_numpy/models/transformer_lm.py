"""Language models, stacks of decoder blocks: GPT-2, Llama and Mistral are options of one."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag, check_number, check_tokens
from mha_numpy.core import KVCache, RopeOptions
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import (
    DecoderBlock,
    DeltaState,
    Embedding,
    GatedDeltaNet,
    Layer,
    LearnedPositions,
    Linear,
    Unembedding,
)
from mha_numpy.layers.activations import Softcap
from mha_numpy.layers.layer import make_rng
from mha_numpy.layers.transformer_blocks import make_norm
from mha_numpy.models.inputs import as_cells, check_kv_caches, first_place, unchanged_on_error
from mha_numpy.steps import constant, step


class TransformerLM(Layer):
    """Embedding, positions, L decoder blocks, a last norm, and a score for each next token.

    Parameters
    ----------
    vocab_size, max_tokens : int
        V, and the longest sequence.
    embed_dim, num_heads, num_layers : int
        D, H, L.
    hidden_dim : int, optional
        F; default 4 D.
    tied : bool
        Whether the scores share the embedding's table.
    embedding_scale : float, optional
        A factor of the embeddings, such as the root of D in Gemma.
    logit_softcap : float, optional
        c > 0 bounds the scores of the next token smoothly, as in Gemma 2: ``c tanh(scores / c)``.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds params and dropout: the same seed draws the same. Default: fresh randomness.
    **block_options
        More options of DecoderBlock, such as `norm`, `activation`, `dropout_p`, `num_kv_heads`.
        With `rope` there are no learned positions: queries and keys are rotated instead. `rope`,
        `window` and `delta` may be a list with one for each layer, None where a layer has none.

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
        embedding_scale: float | None = None,
        logit_softcap: float | None = None,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
        **block_options: Any,
    ) -> None:
        super().__init__()
        rng, self.backend = make_rng(rng), check_backend(backend)
        self.max_tokens = check_count("max_tokens", max_tokens)
        self.vocab_size, self.embed_dim = vocab_size, embed_dim
        self.num_heads, self.num_layers = num_heads, num_layers
        self.embedding = Embedding(vocab_size, embed_dim, rng=rng)
        self.positions = None
        check_count("num_layers", num_layers)
        ropes = as_list(block_options.get("rope"))
        if all(rope is None for rope in ropes):
            self.positions = LearnedPositions(max_tokens, embed_dim, rng=rng)
        self.blocks = [
            DecoderBlock(embed_dim, num_heads, hidden_dim, rng=rng, **options)
            for options in each_layer(num_layers, block_options)
        ]
        if embedding_scale is not None:
            embedding_scale = check_number("embedding_scale", embedding_scale, positive=True)
        self.embedding_scale = embedding_scale
        self.logit_softcap = None if logit_softcap is None else Softcap(logit_softcap)
        self.norm = make_norm(embed_dim, **block_options)
        self.unembedding: Layer = (
            Unembedding(self.embedding)
            if check_flag("tied", tied)
            else Linear(embed_dim, vocab_size, bias=False, rng=rng)
        )

    def forward(
        self,
        ids: Array,
        *,
        mask: Array | None = None,
        kv_caches: Sequence[KVCache] | None = None,
        positions: Array | None = None,
    ) -> Array:
        """Score what comes next after each token: (B, T) -> (B, T, V).

        Parameters
        ----------
        ids : (B, T) int array
        mask : (B, T) bool array, optional
            True = a token, False = padding, which no query sees. One that broadcasts to
            (B, H, T, T) says for each query and key whether it may attend, as for several
            documents in one sequence; learned positions count on from one to the next unless you
            pass `positions`, while with `rope` each document is scored as if by itself. No token
            sees later ones, even if the mask allows it.
        kv_caches : list of KVCache, optional
            One for each block, as `new_kv_caches` makes them: `ids` holds only new tokens, and T
            of `mask` counts all tokens so far. Without backward. Other kinds may be used too; one
            that rolls needs `rope`.
        positions : (T,) or (B, T) int array, optional
            Of the tokens in `ids`; default their places in the sequence. They pick the learned
            positions or rotate queries and keys. Whether a token comes later, and how far it is
            from another in `window`, is still decided by the places in the array.
        """
        caches = check_kv_caches(
            kv_caches, len(self.blocks), are_places_added=self.positions is not None
        )
        past = first_place(caches, ids)
        ids = check_tokens("ids", ids, self.max_tokens, offset=past)
        mask = as_cells(mask, (ids.shape[0], past + ids.shape[1]))
        x = step("embedded", self.embedding(ids), "B T D")
        if self.embedding_scale is not None:
            constant("embedding_scale", self.embedding_scale)
            x = step("scaled", x * self.embedding_scale, "B T D", "embedded * embedding_scale")
        if self.positions is not None:
            place = {"offset": past} if positions is None else {"positions": positions}
            x = self.positions(x, **place)
        with unchanged_on_error(caches):
            for block, kv_cache in zip(self.blocks, caches, strict=True):
                rotates = getattr(block.attention.layer, "rope", None) is not None
                x = block(x, mask=mask, kv_cache=kv_cache, positions=positions if rotates else None)
        logits = self.unembedding(self.norm(x))
        if self.logit_softcap is not None:
            logits = self.logit_softcap(logits)
        return step("logits", logits, "B T V")

    def new_kv_caches(self) -> list[KVCache]:
        """Return an empty KV cache for each block, or a DeltaState where it has no attention."""
        return [
            DeltaState() if isinstance(block.attention.layer, GatedDeltaNet) else KVCache()
            for block in self.blocks
        ]

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        step("d_logits", d_logits, "B T V")
        if self.logit_softcap is not None:
            d_logits = self.logit_softcap.backward(d_logits)
        d_x = self.norm.backward(self.unembedding.backward(d_logits))
        for block in reversed(self.blocks):
            d_x = block.backward(d_x)
        if self.positions is not None:
            d_x = self.positions.backward(d_x)
        if self.embedding_scale is not None:
            step("d_scaled", d_x, "B T D")
            d_x = step(
                "d_embedded", d_x * self.embedding_scale, "B T D", "d_scaled * embedding_scale"
            )
        self.embedding.backward(d_x)


def as_list(option: Any) -> list[Any]:
    """Return an option's value for each layer, or one for all."""
    return option if isinstance(option, list) else [option]


def each_layer(count: int, block_options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of each block: a list of windows, say, has one for each."""
    given = {name: block_options.get(name) for name in ("rope", "window", "delta")}
    lists = {name: each for name, each in given.items() if isinstance(each, list)}
    for name, each in lists.items():
        if len(each) != count:
            raise ConfigError(
                f"{name}: expected one for each of num_layers={count}; got {len(each)}"
            )
    for i in range(count):
        yield block_options | {name: each[i] for name, each in lists.items()}


class GPT2(TransformerLM):
    """`TransformerLM` as in GPT-2: GELU in its tanh form, and one table for both ends.

    All parameters are those of `TransformerLM`.

    Notes
    -----
    Source: Radford et al. 2019, *Language models are unsupervised multitask learners*, section
    2.3.

    Examples
    --------
    >>> model = GPT2(vocab_size=50, max_tokens=16, embed_dim=8, num_heads=2, num_layers=1)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 50)
    """

    def __init__(self, vocab_size: int, max_tokens: int, **options: Any) -> None:
        own: dict[str, Any] = {"activation": "gelu_tanh", "tied": True}
        super().__init__(vocab_size, max_tokens, **own | options)


class Llama(TransformerLM):
    """`TransformerLM` as in Llama and Mistral.

    Queries and keys are rotated by their positions, norms are RMS norms, the feed-forward network
    is SwiGLU, and the linear maps have no biases. All parameters are those of `TransformerLM` and
    of its blocks: `num_kv_heads` if several query heads share keys and values,
    ``window=(W - 1, 0)`` for Mistral's sliding window of W.

    Notes
    -----
    Sources: Touvron et al. 2023, *LLaMA*, section 2.2; grouped heads: Touvron et al. 2023, *Llama
    2*, section 2.2; window: Jiang et al. 2023, *Mistral 7B*, section 2.

    Examples
    --------
    >>> model = Llama(50, 16, embed_dim=8, num_heads=4, num_kv_heads=2, num_layers=1)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 50)
    """

    def __init__(self, vocab_size: int, max_tokens: int, **options: Any) -> None:
        own: dict[str, Any] = {
            "rope": RopeOptions(), "norm": "rms", "activation": "swiglu", "bias": False,
        }  # fmt: skip
        super().__init__(vocab_size, max_tokens, **own | options)
