"""Small whole models, a page each; and larger pretrained ones."""

from mha_numpy.foreign import explain_missing
from mha_numpy.models.attention_only import AttentionOnlyLM
from mha_numpy.models.bert import Bert, SentenceBert
from mha_numpy.models.by_hand import induction_by_hand
from mha_numpy.models.captioner import Captioner
from mha_numpy.models.generate import choose, generate, translate
from mha_numpy.models.pretrained import from_pretrained, minilm_or_random
from mha_numpy.models.rope_config import rope_from_config
from mha_numpy.models.transformer_lm import GPT2, Llama, TransformerLM
from mha_numpy.models.translator import Translator

__all__ = [
    "GPT2", "AttentionOnlyLM", "Bert", "Captioner", "Llama", "SentenceBert", "TransformerLM",
    "Translator", "choose", "from_pretrained", "generate", "induction_by_hand",
    "minilm_or_random", "rope_from_config", "translate",
]  # fmt: skip

explain_missing(__name__)
