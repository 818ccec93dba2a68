"""A folder as others publish models: a BERT that knows nine words, with random params."""

import json

import numpy as np
import pytest

from mha_numpy.models import Bert
from mha_numpy.weights import to_layout, write_safetensors

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "on", "mats", ".")


def write_bert(folder, *, num_layers=2, num_heads=3):
    """Write config.json, model.safetensors and tokenizer.json; skip where packages are absent."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    sizes = {"num_heads": num_heads, "num_layers": num_layers}
    bert, rng = Bert(len(WORDS), 16, embed_dim=12, hidden_dim=20, **sizes), np.random.default_rng(4)
    for _, param in bert.named_params():
        param += rng.normal(scale=0.3, size=param.shape)
    config = {
        "model_type": "bert", "vocab_size": len(WORDS), "max_position_embeddings": 16,
        "hidden_size": 12, "intermediate_size": 20, "num_attention_heads": num_heads,
        "num_hidden_layers": num_layers, "hidden_act": "gelu",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", to_layout(bert, "bert"))
    ids = {word: i for i, word in enumerate(WORDS)}
    rules = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    rules.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    rules.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    rules.save(str(folder / "tokenizer.json"))
    return folder
