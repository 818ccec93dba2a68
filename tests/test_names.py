"""Names that a package does not have: each error says what to write, and where it is."""

import pickle
import re
from importlib import import_module

import pytest

import mha_numpy
from mha_numpy import core, layers, models
from mha_numpy.errors import MhaError
from mha_numpy.foreign import NAMES, PACKAGES
from mha_numpy.models import train

HOMES = {name: home for home in reversed(PACKAGES) for name in import_module(home).__all__}


@pytest.mark.parametrize(
    ("package", "name", "advice"),
    [
        (layers, "Module", "; write Layer, whose subclass has forward and backward"),
        (layers, "GELU", "; write Activation('gelu')"),
        (layers, "Linaer", "; did you mean 'Linear'?"),
        (layers, "Transformer", "; write Translator(source_vocab_size, target_vocab_size, "
         "max_tokens) of mha_numpy.models"),
        (mha_numpy, "MultiheadAttention", "; write MultiHeadAttention(embed_dim, num_heads)"),
        (mha_numpy, "AdamW", "; write AdamW of mha_numpy.models.train"),
        (mha_numpy, "teach", "; write import mha_numpy.teach first"),
        (mha_numpy, "zzzzzz", ""),
        (core, "MultiHeadAttention", "; write MultiHeadAttention of mha_numpy"),
        (models, "GPT2LMHeadModel", "; write GPT2(vocab_size, max_tokens), or "
         "from_pretrained(source)"),
        (models, "TransformerML", "; did you mean 'TransformerLM'?"),
        (train, "AdmaW", "; did you mean 'AdamW'?"),
        (train, "optim", "; write mha_numpy.models.train, which has SGD, Adam and AdamW"),
    ],
)  # fmt: skip
def test_a_name_that_a_package_does_not_have(package, name, advice, monkeypatch):
    monkeypatch.delattr(package, name, raising=False)  # a room that another test has imported
    with pytest.raises(AttributeError) as error:
        getattr(package, name)
    assert str(error.value) == f"{name}: {package.__name__} has no such name{advice}"
    assert isinstance(error.value, MhaError)
    assert error.value.name == name
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert not hasattr(package, name)


@pytest.mark.parametrize("name", NAMES)
def test_what_to_write_is_there(name):
    assert name not in HOMES
    called = re.findall(r"(\w+)\(|(\w+_(?:forward|backward))\b", NAMES[name])
    assert {"".join(each) for each in called} <= HOMES.keys()
