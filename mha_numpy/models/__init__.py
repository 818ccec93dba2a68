"""Small whole models, a page each."""

from mha_numpy.models.attention_only import AttentionOnlyLM
from mha_numpy.models.by_hand import induction_by_hand
from mha_numpy.models.generate import choose, generate, translate
from mha_numpy.models.transformer_lm import TransformerLM
from mha_numpy.models.translator import Translator

__all__ = [
    "AttentionOnlyLM", "TransformerLM", "Translator", "choose", "generate",
    "induction_by_hand", "translate",
]  # fmt: skip
