"""Llama and Mistral: rotated positions, RMS norm, SwiGLU, heads that share keys and values."""

from typing import Any

from mha_numpy.core import RopeOptions
from mha_numpy.models.transformer_lm import TransformerLM


class Llama(TransformerLM):
    """`TransformerLM` as Llama and Mistral have it.

    Queries and keys are rotated by their positions, norms are RMS norms, the feed-forward network
    is SwiGLU, and the linear maps have no biases.

    Parameters
    ----------
    vocab_size, max_tokens : int
        V, and the longest sequence.
    **options
        All options of TransformerLM and of its blocks: `num_kv_heads` where several query heads
        share keys and values, ``window=(W - 1, 0)`` where Mistral has a sliding window of W.

    Notes
    -----
    Sources: Touvron et al. 2023, *LLaMA*, section 2.2; grouped heads: Touvron et al. 2023, *Llama
    2*, section 2.2; window: Jiang et al. 2023, *Mistral 7B*, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> model = Llama(50, 16, embed_dim=8, num_heads=4, num_kv_heads=2, num_layers=1)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 50)
    """

    def __init__(self, vocab_size: int, max_tokens: int, **options: Any) -> None:
        own: dict[str, Any] = {
            "rope": RopeOptions(), "norm": "rms", "activation": "swiglu", "bias": False,
        }  # fmt: skip
        super().__init__(vocab_size, max_tokens, **own | options)
