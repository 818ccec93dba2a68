"""Tiny random models in folders, as others save theirs."""

import json

import numpy as np
import pytest

from mha_numpy.models.config import FIELDS, ModelConfig
from mha_numpy.models.pretrained import KINDS
from mha_numpy.models.weights import to_layout, write_safetensors
from tests.gradients import randomize

D, H, H_KV, L, LONGEST = 8, 4, 2, 3, 9
WORDS = ["a", "cat", "sat", "on", "the", "mat"]
CONFIGS = {
    "bert": {
        "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": L,
        "intermediate_size": 16, "max_position_embeddings": LONGEST,
    },
    "gpt2": {"n_embd": D, "n_head": H, "n_layer": L, "n_positions": LONGEST},
    "mistral": {
        "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H_KV,
        "num_hidden_layers": L, "intermediate_size": 16, "max_position_embeddings": LONGEST,
        "hidden_act": "silu", "sliding_window": 3,
    },
    "gemma3_text": {  # norms of queries and keys, a scale, a window in some layers
        "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H_KV, "head_dim": 6,
        "num_hidden_layers": L, "intermediate_size": 16, "max_position_embeddings": LONGEST,
        "sliding_window": 3, "query_pre_attn_scalar": 7,
    },
}  # fmt: skip


def save_model(folder, kind, **options):
    """Write a random model of a kind, with a token for each of a few words."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    words = ["[UNK]", "[CLS]", "[SEP]"] + [
        word if kind == "bert" else f"\u2581{word}" for word in WORDS
    ]
    vocabulary = {word: i for i, word in enumerate(words)}
    rules = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    if kind == "bert":
        rules.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        rules.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    else:
        rules.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    folder.mkdir()
    rules.save(str(folder / "tokenizer.json"))
    config = {"model_type": kind, "vocab_size": len(words), **CONFIGS.get(kind, {}), **options}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    build, layout = KINDS[kind]
    options = ModelConfig(folder).read(FIELDS[kind])
    model = randomize(build(**options), np.random.default_rng(0))
    write_safetensors(folder / "model.safetensors", to_layout(model.astype(np.float32), layout))
    return folder
