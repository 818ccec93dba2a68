import numpy as np
import pytest

from mha_numpy import KVCache, RopeOptions
from mha_numpy.checking.tracing import trace
from mha_numpy.errors import ConfigError, MhaError, ShapeError
from mha_numpy.layers import LatentAttention, Residual, RMSNorm, Sequential
from mha_numpy.variants import LatentAttentionParams, latent_attention_forward
from tests.checking.tracing.whole import assert_equations_hold
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize

SIZES = {"latent_dim": 5, "nope_dim": 3, "rope_dim": 4, "value_dim": 6}
with_query_latent = pytest.mark.parametrize("query_latent_dim", [None, 7])


def make(rng, **options):
    return randomize(LatentAttention(8, 2, **SIZES, **options), rng)


@pytest.mark.usefixtures("backend")
class TestLatentAttention:
    @with_query_latent
    def test_equals_the_variant(self, rng, query_latent_dim):
        rope = RopeOptions(base=30.0)
        layer = make(rng, query_latent_dim=query_latent_dim, rope=rope, scale=0.6, eps=0.1)
        x, positions = rng.normal(size=(2, 6, 8)), np.arange(6) * 2
        out, weights = layer(x, is_causal=True, positions=positions, return_weights=True)
        arrays = (layer.params.get(name) for name in LatentAttentionParams._fields)
        expected, cache = latent_attention_forward(
            x, params=LatentAttentionParams(*arrays), num_heads=2, rope=rope, scale=0.6, eps=0.1,
            is_causal=True, positions=positions,
        )  # fmt: skip
        assert_close(out, expected, "exact")
        assert_close(weights, cache.attention.weights, "exact")
        assert not weights.flags.writeable

    @with_query_latent
    def test_gradients_of_input_and_params(self, rng, query_latent_dim):
        layer = make(rng, query_latent_dim=query_latent_dim)
        assert_layer_gradients(layer, {"x": rng.normal(size=(2, 4, 8))}, is_causal=True)

    def test_gradients_of_options_and_decoding(self, rng):
        layer = make(rng)
        x = rng.normal(size=(2, 5, 8))
        expected = layer(x, is_causal=True, head_gate=rng.normal(size=2))
        layer.backward(expected)
        assert list(layer.d_options) == ["head_gate"]
        whole = layer(x, is_causal=True)
        for absorb in (True, False):
            kv_cache = KVCache()
            for t in range(5):
                out, weights = layer(
                    x[:, [t]], kv_cache=kv_cache, absorb=absorb, return_weights=True
                )
                assert_close(out[:, 0], whole[:, t])
                assert weights.shape == (2, 2, 1, t + 1)
        with pytest.raises(MhaError, match="without kv_cache"):
            layer.backward(whole)


def test_dropout_only_while_training(rng):
    layer = LatentAttention(8, 2, **SIZES, dropout_p=0.5, rng=0)
    x = rng.normal(size=(2, 5, 8))
    dropped = layer(x)
    assert np.abs(layer(x) - dropped).max() > 0.01  # another draw
    assert_close(layer.eval()(x), LatentAttention(8, 2, **SIZES, rng=0)(x), "exact")


def test_part_of_a_model_with_a_trace(rng):
    model = Sequential(Residual(make(rng), RMSNorm(8)), Residual(make(rng), RMSNorm(8)))
    x = rng.normal(size=(2, 5, 8))
    assert_layer_gradients(model, {"x": x})
    with trace() as t:
        model.backward(model(x))
    assert_equations_hold(t)
    places = {step.place for step in t if step.own_name == "kept"}
    assert len(places) == 2


def test_wrong_input(rng):
    layer = make(rng)
    with pytest.raises(ShapeError, match=r"^x: expected \(B, T, D=8\) to match the layer"):
        layer(np.ones((2, 5, 7)))
    with pytest.raises(
        ConfigError, match=r"^attn_mask: there is no such argument here; write mask"
    ):
        layer(np.ones((2, 5, 8)), attn_mask=None)
    for wrong, message in (
        ({"rope_dim": 3}, "rope: expected an even d_k"),
        ({"latent_dim": 0}, "latent_dim: expected an integer >= 1"),
        ({"scale": "1"}, "scale: expected a finite number"),
        ({"query_latent_dim": 1.5}, "query_latent_dim: expected an integer"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}"):
            LatentAttention(8, 2, **SIZES | wrong)
