"""A language model of attention alone: small enough to read what its heads have learned."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.nn import Embedding, Layer, LayerNorm, LearnedPositions, Linear, MultiHeadAttention
from mha_numpy.nn.layer import make_rng


class AttentionOnlyLM(Layer):
    """Embedding, attention layers with residual connections, and nothing else.

    Positions are added to what makes queries and keys, never to what is passed on: a head can
    find a token by its place, and what it carries is the token.

    Parameters
    ----------
    vocab_size : int
        V.
    max_tokens : int
        The longest sequence.
    embed_dim, num_heads, num_layers : int
        D, H, L.
    backend : {"numpy", "loops", "numba"}
    rng : int or numpy Generator, optional
        Seeds the params; default 0.

    Notes
    -----
    Sources: Elhage et al. 2021, *A mathematical framework for transformer circuits*; positions
    for queries and keys alone: Press et al. 2021, *Shortformer*, section 4.

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
        backend: str = "numpy",
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        rng = make_rng(rng)
        self.embedding = Embedding(vocab_size, embed_dim, rng=rng)
        self.positions = LearnedPositions(max_tokens, embed_dim, rng=rng)
        self.norms = [LayerNorm(embed_dim) for _ in range(check_count("num_layers", num_layers))]
        self.attentions = [
            MultiHeadAttention(embed_dim, num_heads, bias=False, backend=backend, rng=rng)
            for _ in self.norms
        ]
        self.norm = LayerNorm(embed_dim)
        self.unembedding = Linear(embed_dim, vocab_size, bias=False, backend=backend, rng=rng)

    def forward(self, ids: Array) -> Array:
        """Score what comes next after each token: (B, T) -> (B, T, V)."""
        x = self.embedding(ids)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            normed = norm(x)
            placed = self.positions(normed)
            x = x + attention(placed, placed, normed, is_causal=True)
        return self.unembedding(self.norm(x))

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_x = self.norm.backward(self.unembedding.backward(d_logits))
        for norm, attention in zip(self.norms[::-1], self.attentions[::-1], strict=True):
            d_query, d_key, d_value = attention.backward(d_x)
            d_normed = self.positions.backward(d_query + d_key) + d_value
            d_x = d_x + norm.backward(d_normed)
        self.embedding.backward(d_x)
