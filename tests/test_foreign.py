"""What users of other libraries write by habit, and slips: each error says what to write."""

import inspect
import pickle
import re
from importlib import import_module

import numpy as np
import pytest

import mha_numpy
from mha_numpy import core, layers, models
from mha_numpy.checking import gradcheck
from mha_numpy.errors import ConfigError, DTypeError, MhaError
from mha_numpy.foreign import ATTRIBUTES, NAMES, PACKAGES
from mha_numpy.layers import (
    Activation,
    DecoderBlock,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Residual,
)
from mha_numpy.models import (
    GPT2,
    AttentionOnlyLM,
    Bert,
    Llama,
    TransformerLM,
    Translator,
    choose,
    from_pretrained,
    generate,
    train,
    translate,
)
from mha_numpy.models.train import (
    fit,
    load_checkpoint,
    loss_and_gradients,
    save_checkpoint,
    train_recipe,
)
from mha_numpy.models.weights import from_layout, to_layout

X, IDS = np.ones((2, 5, 8)), np.ones((2, 5), int)
LM = AttentionOnlyLM(vocab_size=7, max_tokens=8)
SMALL = {"embed_dim": 4, "num_heads": 2, "num_layers": 1}


class Own(Layer):
    """A layer that somebody wrote."""

    def __init__(self, factor, *, number=3, **more):
        super().__init__()
        self.params["factor"] = factor
        self.part = Linear(2, 2, **more)

    def forward(self, x):
        return x + "a"  # a mistake of its own

    @property
    def broken(self):
        return self.params.shape


class Forgetful(Layer):
    def __init__(self):
        self.params["w"] = np.ones(3)


NO_SUCH = "there is no such argument here"  # each line of the table has it as %
CALLS = [
    # a slip in the name of an argument, also of one that is handed on
    (lambda: Linear(3, 4, biass=False), "biass: %; did you mean 'bias'?"),
    (lambda: MultiHeadAttention(8, num_head=2), "num_head: %; did you mean 'num_heads'?"),
    (lambda: AttentionOnlyLM(7, 6, num_head=2), "num_head: %; did you mean 'num_heads'?"),
    (lambda: TransformerLM(7, 6, num_head=2), "num_head: %; did you mean 'num_heads'?"),
    (lambda: TransformerLM(7, 6, num_layer=2), "num_layer: %; did you mean 'num_layers'?"),
    (lambda: GPT2(7, 6, num_layer=2), "num_layer: %; did you mean 'num_layers'?"),
    (lambda: Llama(7, 6, kv_heads=2), "kv_heads: %; did you mean 'num_kv_heads'?"),
    (lambda: Translator(7, 7, 6, hiden_dim=8), "hiden_dim: %; did you mean 'hidden_dim'?"),
    (lambda: Bert(7, 6, **SMALL, segments=1), "segments: %; did you mean 'num_segments'?"),
    (lambda: Own(np.ones(1), numbr=2), "numbr: %; did you mean 'number'?"),
    (lambda: TransformerLM(7, 6, zzzzzz=2), "zzzzzz: %"),
    (lambda: DecoderBlock(8, 2)(X, is_causal=True), "is_causal: %"),
    (lambda: DecoderBlock(8, 2)(X, masks=None), "masks: %; did you mean 'mask'?"),
    (lambda: GPT2(7, 6, **SMALL)(IDS, kv_cache=1), "kv_cache: %; did you mean 'kv_caches'?"),
    (lambda: Residual(MultiHeadAttention(8, 2), LayerNorm(8))(X, causal=True),
     "causal: %; did you mean 'is_causal'?"),
    # the name that another library has for it
    (lambda: Linear(in_features=3, out_features=4), "in_features: %; write inputs="),
    (lambda: Linear(3, units=4), "units: %; write outputs="),
    (lambda: Dropout(p=0.1), "p: %; write dropout_p="),
    (lambda: Linear(3, 4, p=0.1), "p: %"),  # it has no dropout
    (lambda: LayerNorm(normalized_shape=8), "normalized_shape: %; write embed_dim="),
    (lambda: Embedding(num_embeddings=5), "num_embeddings: %; write vocab_size="),
    (lambda: DecoderBlock(d_model=8, nhead=2), "d_model: %; write embed_dim="),
    (lambda: DecoderBlock(8, nhead=2), "nhead: %; write num_heads="),
    (lambda: TransformerLM(7, block_size=6), "block_size: %; write max_tokens="),
    (lambda: Linear(3, 4, device="cuda"), "device: %; write nothing: NumPy computes on the CPU"),
    (lambda: Dropout(dropout=0.1), "dropout: %; write dropout_p=, when the layer is made"),
    # too few, too many, twice
    (lambda: Linear(3), "outputs: expected a value; got none; write Linear(inputs, outputs)"),
    (lambda: Bert(7, 6), "embed_dim: expected a value; got none; write "
     "Bert(vocab_size, max_tokens, embed_dim=..., num_heads=..., num_layers=...)"),
    (lambda: Linear(3, 4)(), "x: expected a value; got none; write layer(x)"),
    (lambda: Linear(3, 4, False), "Linear: expected at most 2 arguments without a name "
     "(inputs, outputs); got 3; write bias=, backend=, rng="),
    (lambda: LayerNorm(3, 4), "LayerNorm: expected at most 1 argument without a name (embed_dim); "
     "got 2; write eps=, bias=, backend="),
    (lambda: Linear(3, 4)(X, X), "layer: expected at most 1 argument without a name (x); got 2"),
    (lambda: Linear(3, 4, inputs=3),
     "inputs: expected one value; got two, one of them without a name"),
    # functions explain their calls as well
    (lambda: generate(LM, IDS, max_new_tokens=3), "max_new_tokens: %; write steps="),
    (lambda: generate(LM, IDS, 3, do_sample=False),
     "do_sample: %; write temperature=0 for the likeliest token"),
    (lambda: generate(LM, IDS, 3, 0.5), "generate: expected at most 3 arguments without a name "
     "(model, ids, steps); got 4; write temperature=, top_k=, top_p=, stop=, rng=, new_kv_cache="),
    (lambda: generate(LM, IDS),
     "steps: expected a value; got none; write generate(model, ids, steps)"),
    (lambda: choose(X[0], k=3), "k: %; write top_k="),
    (lambda: choose(X[0], p=0.9), "p: %; write top_p="),
    (lambda: translate(LM, IDS, num_beams=2), "num_beams: %; write beams="),
    (lambda: from_pretrained("minilm", torch_dtype=np.float64), "torch_dtype: %; write dtype="),
    (lambda: fit(LM, None, epochs=3, optimizer=None), "epochs: %; write steps="),
    (lambda: fit(LM, None, steps=3), "optimizer: expected a value; got none; write "
     "fit(model, draw_batch, steps=..., optimizer=...)"),
    (lambda: loss_and_gradients(LM, None, smoothing=0.1),
     "smoothing: %; did you mean 'label_smoothing'?"),
    (lambda: save_checkpoint("a.npz", None), "rng: expected a value; got none; write "
     "save_checkpoint(path, optimizer, rng, history)"),
    (lambda: load_checkpoint("a.npz"), "optimizer: expected a value; got none; write "
     "load_checkpoint(path, optimizer, rng)"),
    (lambda: train_recipe("text", epochs=3), "epochs: %; write steps="),
    (lambda: gradcheck(LM, [IDS], eps=1e-3), "eps: %; write h="),
    (lambda: from_layout(Linear(3, 4), state_dict={}), "state_dict: %; write arrays="),
    (lambda: to_layout(Linear(3, 4)),
     "layout: expected a value; got none; write to_layout(layer, layout)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:40] for _, message in CALLS])
def test_a_call_that_does_not_fit(call, message):
    with pytest.raises(ConfigError) as error:
        call()
    assert str(error.value) == message.replace("%", NO_SUCH)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_type_error_of_a_layer_s_own_code_stays_as_it_is():
    with pytest.raises(TypeError, match="did not contain a loop"):
        Own(np.ones(1))(X)


@pytest.mark.parametrize("function", [fit, generate, choose, from_pretrained, gradcheck])
def test_functions_that_explain_their_calls_stay_what_they_are(function):
    assert pickle.loads(pickle.dumps(function)) is function
    assert ">>>" in function.__doc__
    assert "options" not in inspect.signature(function).parameters


def test_signatures_are_those_of_the_constructors():
    names = "inputs outputs bias backend rng"
    assert list(inspect.signature(Linear).parameters) == names.split()
    assert list(inspect.signature(GPT2).parameters) == ["vocab_size", "max_tokens", "options"]
    assert list(inspect.signature(MultiHeadAttention).parameters)[-1] == "rng"
    forward = inspect.signature(MultiHeadAttention.forward).parameters
    assert {"return_weights", "mask", "scale"} <= forward.keys()
    assert "options" not in forward


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_that_other_libraries_have(name):
    layer = Forgetful.__new__(Forgetful) if name in vars(Layer()) else Linear(3, 4)
    assert not hasattr(layer, name)
    message = rf"^{name}: a (Linear|Forgetful) has no such attribute; write .*"
    with pytest.raises(AttributeError, match=message) as error:
        getattr(layer, name)
    assert isinstance(error.value, MhaError)
    ours = re.findall(r"layer\.(\w+)", str(error.value))
    assert all(each == "name" or hasattr(Linear(3, 4), each) for each in ours)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda layer: layer.parameters(), r"parameters: .*; write layer\.named_params\(\)"),
        (lambda layer: layer.state_dict(), r"state_dict: .*; write dict\(layer\.named_par"),
        (lambda layer: layer.to("cuda"), r"to: .*; write layer\.astype\(dtype\)"),
        (lambda layer: layer.parms, "parms: .*; did you mean 'params'?"),
        (lambda layer: layer.zzzzzz, "zzzzzz: a Linear has no such attribute$"),
        (lambda layer: Forgetful(), r"params: .*; write super\(\)\.__init__\(\) first"),
    ],
)  # fmt: skip
def test_an_attribute_that_is_not_there(use, message):
    with pytest.raises(AttributeError, match=f"^{message}") as error:
        use(Linear(3, 4))
    assert isinstance(error.value, MhaError)


def test_a_property_that_fails_says_why():
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'shape'"):
        _ = Own(np.ones(1)).broken


@pytest.mark.parametrize("others", [(), (X, X)], ids=["of one input", "of three inputs"])
@pytest.mark.parametrize("layer", [Linear(8, 8), LayerNorm(8), Activation(), Dropout(0.5)])
def test_the_gradients_of_all_inputs_handed_to_one_layer(layer, others):
    attention = MultiHeadAttention(8, 2)
    attention(layer(X), *others)
    with pytest.raises(DTypeError) as error:
        layer.backward(attention.backward(X))
    assert str(error.value) == (
        "d_out: expected a float array; got a tuple of 3, a gradient for each input; pass one of "
        "them, such as the first, which for attention is d_query"
    )


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Residual(Linear(8, 8), LayerNorm(8)), "dropout_p"),
        (Residual(MultiHeadAttention(8, 2), LayerNorm(8)), "head_gate"),
        (DecoderBlock(8, 2), "dropout_p"),
        (TransformerLM(7, 6, dropout_p=0.1), "dropout_p"),
        (Bert(7, 6, **SMALL), "dropout_p"),
        (Translator(7, 7, 6), "dropout_p"),
    ],
)
def test_an_option_that_only_parts_have_is_not_set_in_vain(layer, name):
    kind = type(layer).__name__
    with pytest.raises(ConfigError) as error:
        setattr(layer, name, 0.3)
    assert str(error.value) == (
        f"{name}: expected to be set on the parts of a {kind} that have it, because it has none "
        f"itself; write part.{name} = ... for each such part in layer.layers()"
    )
    for part in layer.layers():
        if hasattr(part, name):
            setattr(part, name, 0.3)


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
