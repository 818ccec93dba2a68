"""A layer without some heads computes as one whose gates of these heads are 0."""

import numpy as np
import pytest

from mha_numpy.core import QKNormOptions, RopeOptions
from mha_numpy.errors import ConfigError
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models import Translator
from mha_numpy.models.analysis import attention_layers, cut_heads, prune_heads, prune_model
from mha_numpy.models.train import AdamW, Batch, loss_and_gradients
from tests.compare import assert_close
from tests.gradients import randomize

B, T_q, T_k, D, d_k, d_v, kdim = 2, 5, 7, 17, 6, 3, 11


def make_layer(rng, num_heads, num_kv_heads, **options):
    layer = MultiHeadAttention(
        D, num_heads, num_kv_heads, head_dim=d_k, value_dim=d_v, kdim=kdim, **options
    )
    return randomize(layer, rng)


def test_by_hand():
    layer = MultiHeadAttention(1, 3, head_dim=1)
    for name, param in layer.params.items():
        param[...] = np.arange(param.size).reshape(param.shape) + 10 * "qkvo".index(name[-1])
    smaller = prune_heads(layer, 1)
    assert smaller.params.keys() == layer.params.keys()
    for letter, numbers in (("q", [0, 2]), ("k", [10, 12]), ("v", [20, 22])):
        assert_close(smaller.params[f"w_{letter}"], [numbers], "exact")
        assert_close(smaller.params[f"b_{letter}"], numbers, "exact")
    assert_close(smaller.params["w_o"], [[30], [32]], "exact")
    assert_close(smaller.params["b_o"], [30], "exact")
    assert (smaller.num_heads, smaller.num_kv_heads, layer.num_heads) == (2, 2, 3)
    assert (smaller.num_parameters, layer.num_parameters) == (15, 22)


def test_what_does_not_fit_a_layer_of_today(rng):
    layer = make_layer(rng, 4, 2, qk_norm=QKNormOptions("projection"), gated=True)
    with pytest.raises(ConfigError, match="^layer: expected a norm of each head, or none"):
        prune_heads(layer, [0, 2])
    refused = pytest.raises(ConfigError, match="^means: expected none for a layer with an output")
    with refused, cut_heads(layer, 0, means=np.ones((4, d_v))):
        pass


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "cut"),
    [
        (4, 4, [0, 2]),
        (4, 4, 3),
        (6, 3, [0, 3, 5]),  # one of each group
        (6, 3, [2, 3]),  # a whole group
        (6, 2, [0, 3, 4, 5]),  # one of a group, and the whole other one
        (3, 1, [1]),
        (4, 2, []),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "rope": RopeOptions()},
        {"add_bias_kv": True, "add_zero_attn": True},
        {"qk_norm": QKNormOptions(), "gated": True},
        {"gated": "heads", "sink": True},
    ],
    ids=["", "rope", "extra keys", "gates of numbers", "gates of heads"],
)
def test_as_with_gates_of_0(rng, num_heads, num_kv_heads, cut, options):
    layer = make_layer(rng, num_heads, num_kv_heads, **options)
    smaller = prune_heads(layer, cut)
    gate = np.ones(num_heads)
    gate[cut] = 0
    inputs = rng.normal(size=(B, T_q, D)), rng.normal(size=(B, T_k, kdim))
    mask = rng.random((B, 1, T_q, T_k)) < 0.7
    out = layer(*inputs, mask=mask, head_gate=gate)
    assert_close(smaller(*inputs, mask=mask), out)

    d_out = rng.normal(size=out.shape)
    *found, no_value = smaller.backward(d_out)
    *expected, _ = layer.backward(d_out)
    assert no_value is None
    for d_input, d_expected in zip(found, expected, strict=True):
        assert_close(d_input, d_expected)
    # the same columns of the gradients: a layer whose params are its gradients is pruned alike
    layer.params = layer.grads
    grads = prune_heads(layer, cut).params
    assert smaller.grads.keys() == grads.keys()
    for name, gradient in smaller.grads.items():
        assert_close(gradient, grads[name], name=name)


def test_the_layer_stays_and_shares_nothing(rng):
    layer = make_layer(rng, 4, 2)
    layer.head_gate = np.array([1.0, 2, 3, 4])
    x, y = rng.normal(size=(B, T_q, D)), rng.normal(size=(B, T_k, kdim))
    out = layer(x, y)
    layer.backward(out)
    smaller = prune_heads(layer, [0, 1])
    assert_close(smaller.head_gate, [3, 4], "exact")
    assert not smaller.grads
    for param in smaller.params.values():
        param[...] = 0
    smaller.head_gate[:] = 0
    assert len(layer.grads) == 8
    assert_close(layer(x, y), out, "exact")


def test_a_model_becomes_smaller_and_learns_on(rng):
    model = randomize(Translator(7, 9, 6, embed_dim=8, num_heads=4), rng)
    heads = {"encoder.0.attention.layer": [1], "decoder.0.cross_attention.layer": [0, 3]}
    source, target = rng.integers(3, 7, size=(3, 6)), rng.integers(3, 9, size=(3, 5))
    layers = attention_layers(model)
    for name, cut in heads.items():
        layers[name].head_gate = np.ones(4)
        layers[name].head_gate[cut] = 0
    expected, size = model(source, target), model.num_parameters
    prune_model(model, heads)
    assert_close(model(source, target), expected)
    # of each head: 8 * 2 of w_q, w_k, w_v and w_o, 2 of b_q, b_k and b_v
    assert size - model.num_parameters == 3 * (4 * 16 + 3 * 2)

    optimizer, batch = AdamW(model, 1e-2), Batch((source, target), target)
    before = loss_and_gradients(model, batch)
    optimizer.step()
    assert loss_and_gradients(model, batch) < before
