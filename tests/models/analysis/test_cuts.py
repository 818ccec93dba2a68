"""A head that is cut writes 0 or its mean, and the layer is whole again afterwards."""

import numpy as np
import pytest

from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models import TransformerLM
from mha_numpy.models.analysis import attention_layers, cut_heads, cut_model, mean_heads
from tests.compare import assert_close
from tests.gradients import randomize

H, d_v = 4, 5


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layer(request, rng):
    layer = MultiHeadAttention(12, H, num_kv_heads=2, value_dim=d_v, bias=request.param)
    return randomize(layer, rng)


@pytest.fixture
def x(rng):
    return rng.normal(size=(3, 6, 12))


def out_of(heads, layer):
    """Return the output that these heads (B, H, T, d_v) make."""
    merged = heads.swapaxes(1, 2).reshape(*heads.shape[::2], -1)
    return merged @ layer.params["w_o"] + layer.params.get("b_o", 0)


@pytest.mark.parametrize("cut", [2, [1], [0, 3], np.array([1, 2])])
@pytest.mark.parametrize("gate", [None, np.arange(1.0, 13).reshape(3, H)])
def test_what_a_cut_head_writes(layer, x, cut, gate):
    layer.head_gate = gate
    whole, params = layer(x), dict(layer.params)
    heads, means = layer.forward_cache.attention.heads.copy(), mean_heads(layer)
    assert_close(means, [[heads[:, h, :, i].mean() for i in range(d_v)] for h in range(H)])
    gated = heads * (1 if gate is None else gate[:, :, None, None])
    for given, written in ((None, 0), (means, means[cut][..., None, :])):
        gated[:, cut] = written
        with cut_heads(layer, cut, means=given):
            assert_close(layer(x), out_of(gated, layer_without_means(layer, params)))
        assert layer.head_gate is gate
        assert layer.params.keys() == params.keys()
        assert all(layer.params[name] is param for name, param in params.items())
    assert_close(layer(x), whole, "exact")


def layer_without_means(layer, params):
    """Return a layer with the params from before."""
    other = MultiHeadAttention(12, H, num_kv_heads=2, value_dim=d_v, bias=False)
    other.params = params
    return other


def test_cuts_add_up_and_an_error_leaves_the_layer_whole(layer, x):
    whole, means = layer(x), mean_heads(layer)
    with cut_heads(layer, [0, 2], means=means):
        expected = layer(x)
    with cut_heads(layer, 0, means=means), cut_heads(layer, 2, means=means):
        assert_close(layer(x), expected)
    with pytest.raises(ZeroDivisionError), cut_heads(layer, 0, means=means):
        raise ZeroDivisionError
    assert_close(layer(x), whole, "exact")


def test_a_model_is_cut_in_each_of_its_layers(rng):
    model, ids = TransformerLM(9, 6, embed_dim=8, num_heads=2), rng.integers(9, size=(3, 6))
    randomize(model, rng)
    whole, layers = model(ids), attention_layers(model)
    first, second = layers
    means = {name: mean_heads(layer) for name, layer in layers.items()}
    for given in (None, means):
        its = dict.fromkeys(layers) if given is None else given
        with (
            cut_heads(layers[first], 1, means=its[first]),
            cut_heads(layers[second], [0, 1], means=its[second]),
        ):
            expected = model(ids)
        with cut_model(model, {first: 1, second: [0, 1]}, means=given):
            assert_close(model(ids), expected, "exact")
    assert_close(model(ids), whole, "exact")


def test_a_mean_is_over_the_counted_tokens(layer, x):
    layer(x)
    counted = np.zeros((3, 6), bool)
    counted[1, 4] = counted[2, 0] = True
    heads = layer.forward_cache.attention.heads
    assert_close(mean_heads(layer, counted), (heads[1, :, 4] + heads[2, :, 0]) / 2)


def test_float32_stays(layer, x):
    layer.astype(np.float32)
    layer(x.astype(np.float32))
    with cut_heads(layer, 1, means=mean_heads(layer).astype(np.float64)):
        assert layer(x.astype(np.float32)).dtype == np.float32
