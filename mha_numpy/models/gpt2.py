"""GPT-2: a language model of decoder blocks with learned positions."""

from typing import Any

from mha_numpy.models.config import ModelConfig
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

    @staticmethod
    def options_of(config: ModelConfig) -> dict[str, Any]:
        """Return this model's options from a config.json of Hugging Face."""
        config.check("scale_attn_weights", True)
        config.check("scale_attn_by_inverse_layer_idx", False)
        config.check("add_cross_attention", False)
        return {
            "vocab_size": config["vocab_size"],
            "max_tokens": config["n_positions"],
            "embed_dim": config["n_embd"],
            "num_heads": config["n_head"],
            "num_layers": config["n_layer"],
            "hidden_dim": config.get("n_inner"),
            "activation": config.activation("activation_function", "gelu_new"),
            "eps": config.get("layer_norm_epsilon", 1e-5),
            "tied": config.get("tie_word_embeddings", True),
        }
