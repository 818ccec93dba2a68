"""A language model of attention only: small enough to read what its heads have learned."""

from collections.abc import Sequence

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag, check_tokens
from mha_numpy.core import KVCache
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import Embedding, Layer, LearnedPositions, Linear, MultiHeadAttention
from mha_numpy.layers.layer import make_rng
from mha_numpy.models.inputs import check_kv_caches, first_place, unchanged_on_error
from mha_numpy.steps import record_sum, step


class AttentionOnlyLM(Layer):
    """Embedding, attention layers with residual connections, unembedding, and nothing else.

    Positions are added to the input of queries and keys, never to that of values: a head attends to
    a token by its content or its position, but reads only its content.

    Parameters
    ----------
    vocab_size, max_tokens, embed_dim, num_heads, num_layers, backend, rng
        As for `TransformerLM`.
    is_causal : bool
        Whether a token sees only itself and the tokens before it.

    Notes
    -----
    Sources: Elhage et al. 2021, *A mathematical framework for transformer circuits*; positions
    for queries and keys only: Press et al. 2021, *Shortformer*, section 4.

    Examples
    --------
    >>> model = AttentionOnlyLM(vocab_size=32, max_tokens=48)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 32)
    """

    def __init__(
        self,
        vocab_size: int,
        max_tokens: int,
        *,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        is_causal: bool = True,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        rng, self.backend = make_rng(rng), check_backend(backend)
        self.max_tokens = check_count("max_tokens", max_tokens)
        self.vocab_size, self.embed_dim = vocab_size, embed_dim
        self.num_heads, self.num_layers = num_heads, num_layers
        self.is_causal = check_flag("is_causal", is_causal)
        self.embedding = Embedding(vocab_size, embed_dim, std=1.0, rng=rng)
        self.positions = LearnedPositions(max_tokens, embed_dim, std=1.0, rng=rng)
        self.attentions = [
            MultiHeadAttention(embed_dim, num_heads, bias=False, rng=rng)
            for _ in range(check_count("num_layers", num_layers))
        ]
        self.unembedding = Linear(embed_dim, vocab_size, bias=False, rng=rng)

    def forward(self, ids: Array, *, kv_caches: Sequence[KVCache] | None = None) -> Array:
        """Score the possible answers at each token: (B, T) -> (B, T, V).

        With `kv_caches`, one for each layer, `ids` holds only new tokens; without backward.
        """
        if kv_caches is not None and not self.is_causal:
            raise ConfigError(
                "kv_caches: expected None with is_causal=False, because tokens see later ones"
            )
        caches = check_kv_caches(kv_caches, len(self.attentions))
        past = first_place(caches, ids)
        ids = check_tokens("ids", ids, self.max_tokens, offset=past)
        x = step("x_0", self.embedding(ids), "B T D")
        with unchanged_on_error(caches):
            for i, attention in enumerate(self.attentions):
                placed = self.positions(x, offset=past)
                added = attention(placed, placed, x, is_causal=self.is_causal, kv_cache=caches[i])
                x = record_sum(f"x_{i + 1}", x + added, "B T D", x, added)
        return step("logits", self.unembedding(x), "B T V")

    def new_kv_caches(self) -> list[KVCache]:
        """Return an empty KV cache for each layer."""
        return [KVCache() for _ in self.attentions]

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x = self.unembedding.backward(step("d_logits", d_logits, "B T V"))
        for i, attention in reversed(list(enumerate(self.attentions))):
            d_query, d_key, d_value = attention.backward(d_x)
            d_placed = record_sum(f"d_placed_{i}", d_query + d_key, "B T D", d_query, d_key)
            d_added = self.positions.backward(d_placed)
            d_x = record_sum(f"d_x_{i}", d_x + d_added + d_value, "B T D", d_x, d_added, d_value)
        self.embedding.backward(d_x)
