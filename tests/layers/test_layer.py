"""How a layer shows itself, and what its attributes are."""

import copy
import pickle
from contextlib import nullcontext

import numpy as np
import pytest

import mha_numpy
from mha_numpy.checking.tracing import trace
from mha_numpy.core import RopeOptions
from mha_numpy.errors import ConfigError, MhaError
from mha_numpy.layers import (
    Dropout,
    Embedding,
    FeedForward,
    LatentAttention,
    Layer,
    LayerNorm,
    LearnedPositions,
    Linear,
    MixtureOfExperts,
    MultiHeadAttention,
    Residual,
    Sequential,
    Unembedding,
)
from mha_numpy.models import TransformerLM

MODEL = """
TransformerLM(vocab_size=50, max_tokens=16, embed_dim=8, num_layers=3, 3,504 parameters)
  embedding: Embedding(vocab_size=50, embed_dim=8, 400 parameters)
  positions: LearnedPositions(max_tokens=16, embed_dim=8, 128 parameters)
  blocks.0 ... blocks.2: DecoderBlock(embed_dim=8, num_heads=4, norm='rms', 856 parameters)
    attention: Residual(296 parameters)
      norm: RMSNorm(embed_dim=8, 8 parameters)
      layer: MultiHeadAttention(embed_dim=8, num_heads=4, 288 parameters)
      dropout: Dropout()
    feed_forward: Residual(560 parameters)
      norm: RMSNorm(embed_dim=8, 8 parameters)
      layer: FeedForward(embed_dim=8, 552 parameters)
      dropout: Dropout()
  norm: RMSNorm(embed_dim=8, 8 parameters)
  unembedding: Linear(inputs=8, outputs=50, bias=False, 400 parameters)"""


def make_model():
    return TransformerLM(50, 16, embed_dim=8, num_layers=3, norm="rms", rng=1)


class Twice(Layer):
    """Somebody's own layer, with an option of each kind."""

    def __init__(self, table, *parts, times=2, **others):
        super().__init__()
        self.params["table"] = table
        self.first, self.second = parts
        self.times = times


class Sized(Layer):
    def __init__(self, first, *sizes, width=1, **others):
        super().__init__()
        self.width = width


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (Linear(3, 4), "Linear(inputs=3, outputs=4, 16 parameters)"),
        (Linear(3, outputs=4, bias=False, backend="numpy", rng=0),
         "Linear(inputs=3, outputs=4, bias=False, backend='numpy', 12 parameters)"),
        (Embedding(300, 40, std=1.0),
         "Embedding(vocab_size=300, embed_dim=40, std=1.0, 12,000 parameters)"),
        (FeedForward(4, 5, activation="relu"),
         "FeedForward(embed_dim=4, hidden_dim=5, activation='relu', 49 parameters)"),
        (Dropout(), "Dropout()"),
        (Dropout(0.1), "Dropout(dropout_p=0.1)"),
        (Residual(Linear(2, 2), LayerNorm(2, eps=0.1), norm_first=False),
         "Residual(norm_first=False, 10 parameters)\n"
         "  norm: LayerNorm(embed_dim=2, eps=0.1, 4 parameters)\n"
         "  layer: Linear(inputs=2, outputs=2, 6 parameters)\n"
         "  dropout: Dropout()"),
        (Unembedding(Embedding(5, 3)),
         "Unembedding(15 parameters)\n"
         "  embedding: Embedding(vocab_size=5, embed_dim=3, 15 parameters)"),
        (Twice(np.ones((2, 3)), Dropout(), Dropout(), times=3, name="x"),
         "Twice(table=an array (2, 3) of float64, times=3, name='x', 6 parameters)\n"
         "  first: Dropout()\n  second: Dropout()"),
        (Sized(3, 4, 5, width=2, name="x"), "Sized(first=3, sizes=(4, 5), width=2, name='x')"),
        (Sized(3), "Sized(first=3)"),
        (Sized("ab " * 99, words=["ab", "c"]),
         "Sized(first='" + 22 * "ab " + "..., words=['ab', 'c'])"),
        (MultiHeadAttention(768, 12),
         "MultiHeadAttention(embed_dim=768, num_heads=12, 2,362,368 parameters)"),
        (MultiHeadAttention(8, 2, 1), "MultiHeadAttention(embed_dim=8, num_heads=2, "
         "num_kv_heads=1 (multi-query), 216 parameters)"),
        (MultiHeadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
         "MultiHeadAttention(embed_dim=8, num_heads=2, add_bias_kv=True, add_zero_attn=True, "
         "304 parameters)"),
        (MultiHeadAttention(8, 1, head_dim=4, kdim=3, bias=False, dropout_p=0.1, backend="loops"),
         "MultiHeadAttention(embed_dim=8, num_heads=1, head_dim=4, kdim=3, bias=False, "
         "dropout_p=0.1, backend='loops', 88 parameters)"),
        (MultiHeadAttention(8, 2, 2, head_dim=4, value_dim=4, rope=RopeOptions(base=50.0)),
         "MultiHeadAttention(embed_dim=8, num_heads=2, rope=RopeOptions(base=50.0), "
         "288 parameters)"),
        (Layer(), "Layer()"),
        (make_model(), MODEL[1:]),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_repr(layer, text):
    assert repr(layer) == text


def test_repr_shows_what_was_changed_since():
    norm, attention = LayerNorm(2), MultiHeadAttention(8, 2)
    norm.eps, attention.dropout_p = 0.1, 0.2
    assert repr(norm) == "LayerNorm(embed_dim=2, eps=0.1, 4 parameters)"
    assert "dropout_p=0.2" in repr(attention)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))]
)
def test_a_copy_is_a_layer_like_it(again):
    model, ids = make_model(), np.array([[1, 2, 3]])
    np.testing.assert_array_equal(again(model)(ids), model(ids))
    assert repr(again(model)) == repr(model)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers", [Dropout()], r"layers: expected a different name for an attribute; layers\(\) "
         "is a method of every layer; write self.blocks"),
        ("children", {}, "children: .*; write self.blocks"),
        ("train", True, r"train: .*; train\(\) is a method of every layer; write self.train_"),
        ("save", "file.npz", "save: .*; write self.save_"),
        ("num_parameters", 3, "num_parameters: .*; num_parameters is a property of every layer"),
        ("params", [np.ones(2)], "params: expected a dict from names to arrays; got .*; write "
         r"self.params\['w'\] = array"),
        ("grads", None, "grads: expected a dict .*; got None"),
    ],
)  # fmt: skip
def test_an_attribute_that_would_hide_what_every_layer_has(name, value, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        setattr(Twice(np.ones(2), Dropout(), Dropout()), name, value)


def test_one_layer_may_have_another_forward():
    layer = Linear(2, 2, bias=False)
    layer.forward = lambda x: x + 1
    assert layer(1) == 2


class Doubled(Linear):
    """A layer that uses its base's forward and backward."""

    def forward(self, x):
        return 2 * super().forward(x)

    def backward(self, d_out):
        return super().backward(2 * d_out)


class Around(Layer):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts


A, B = Linear(2, 2), Dropout()


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([A, B], "parts.0 parts.1"),
        ({"a": A, "b": B}, "parts.a parts.b"),
        ([[A, 3], (B,)], "parts.0.0 parts.1.0"),
        ({"a": [None, {7: A}]}, "parts.a.1.7"),
        (["text", {"a": 3}, np.ones(2)], ""),
    ],
)
def test_children_in_lists_and_dicts(parts, names):
    layer = Around(parts)
    assert list(layer.children()) == names.split()
    assert [name for name, _ in layer.named_layers()] == ["", *names.split()]


def test_cycles_end():
    inner, parts = Around(A), {"a": B}
    outer = Around([inner, parts])
    inner.outer, parts["again"] = outer, parts
    names = ["", "parts.0", "parts.0.parts", "parts.1.a"]
    assert [name for name, _ in outer.named_layers()] == names
    assert repr(outer).count("Linear(") == 1
    assert "outer: ..." in repr(outer)


ORDERS = {  # f = forward, b = backward, e = eval(), t = train()
    # ! = an error, because only the last forward's cache is kept; ? = one, as that ran in eval mode
    "one use after the other": "fb fb",
    "several backwards of one forward": "f bbb",
    "forwards without backward": "fff b f b",
    "two uses": "ff b! f bb",
    "two uses, four backwards": "ff b!!! f b",
    "two uses after one": "f b ff b!",
    "validation before backward": "f eff t?? f b",
    "validation after backward": "f b eff t? f b",
    "backward in eval mode": "e f b f bb",
    "two uses in eval mode": "e ff b!",
    "switched to eval mode for backward": "f e b",
    "one use in each mode": "f e f bb",
    "two uses with validation between": "f eff t f b!",
    "training mode for backward": "e f t ? f b",
    "one use after validation": "efff t f bb",
}


MESSAGES = {
    "!": "backward: expected one forward and one backward for each use of this {}; it ran forward "
    "2 times and keeps only the last; make a layer for each use, or run forward again before each "
    "backward",
    "?": "backward: expected the last forward of this {} in training mode, its mode now; it ran in "
    "eval mode, and only the last forward is kept; run forward again, or validate after backward",
}


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("kind", [Linear, Doubled, Sequential])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_one_forward_for_each_backward(order, kind, is_traced):
    layer, x = Sequential(Linear(3, 3)) if kind is Sequential else kind(3, 3), np.ones((2, 3))
    with trace() if is_traced else nullcontext():
        for run in order.replace(" ", ""):
            if run in "et":
                layer.train(run == "t")
            elif run in "!?":
                with pytest.raises(MhaError) as error:
                    layer.backward(x)
                assert str(error.value) == MESSAGES[run].format(kind.__name__)
            else:
                (layer if run == "f" else layer.backward)(x)


def test_a_stored_gradient_is_a_copy():
    layer, gradient = Linear(2, 3), np.ones(3)
    layer.accumulate("b", gradient)
    gradient[:] = 7
    np.testing.assert_array_equal(layer.grads["b"], np.ones(3))


def test_a_stored_gradient_is_the_array_itself_where_that_is_wished():
    layer, gradient = Linear(2, 3), np.ones(3)
    layer.accumulate("b", gradient, copy=False)
    assert layer.grads["b"] is gradient
    layer.accumulate("b", gradient, copy=False)
    np.testing.assert_array_equal(gradient, np.ones(3))


IDS = np.arange(6).reshape(1, 6)
X = np.ones((1, 6, 4))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize(("layer", "x"), [
    (Linear(4, 4), X), (LayerNorm(4), X), (FeedForward(4), X), (MultiHeadAttention(4, 2), X),
    (MultiHeadAttention(4, 2, add_bias_kv=True, sink=True), X), (Embedding(6, 4), IDS),
    (LearnedPositions(6, 4), X), (Unembedding(Embedding(6, 4)), X),
    (MixtureOfExperts(4, num_experts=2, num_chosen=1), X),
    (LatentAttention(4, 2, latent_dim=2, nope_dim=2, rope_dim=2), X),
], ids=lambda value: repr(value)[:40])  # fmt: skip
def test_gradients_of_params_share_no_memory_with_others(layer, x, backend):
    """They are kept without a copy, and what comes in and goes out is the caller's to change."""
    with mha_numpy.backend(backend):
        d_out = np.ones_like(layer(x))
        d_x = layer.backward(d_out)
    others = [d_out, x, *(d_x if isinstance(d_x, tuple) else (d_x,))]
    grads = dict(layer.named_grads())
    assert grads
    for name, gradient in grads.items():
        for other in others + [g for n, g in grads.items() if n != name]:
            assert other is None or not np.shares_memory(gradient, other), name
