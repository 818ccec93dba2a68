"""GPT-2: a language model of decoder blocks with learned positions."""

from typing import Any

from mha_numpy.models.transformer_lm import TransformerLM


class GPT2(TransformerLM):
    """`TransformerLM` as GPT-2 has it: GELU in its tanh form, and one table for both ends.

    Parameters
    ----------
    vocab_size, max_tokens : int
        V, and the longest sequence.
    **options
        All options of TransformerLM.

    Notes
    -----
    Source: Radford et al. 2019, *Language models are unsupervised multitask learners*, section
    2.3.

    Examples
    --------
    >>> import numpy as np
    >>> model = GPT2(vocab_size=50, max_tokens=16, embed_dim=8, num_heads=2, num_layers=1)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 50)
    """

    def __init__(self, vocab_size: int, max_tokens: int, **options: Any) -> None:
        own: dict[str, Any] = {"activation": "gelu_tanh", "tied": True}
        super().__init__(vocab_size, max_tokens, **own | options)
