import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    MultiHeadParams,
    QKNormOptions,
    RopeOptions,
    multi_head_attention_forward,
)
from mha_numpy.checking import gradcheck
from mha_numpy.core.qk_norm import GAIN_AXES
from mha_numpy.errors import MhaError
from mha_numpy.layers import Layer, MultiHeadAttention
from tests.compare import assert_close
from tests.gradients import assert_layer_gradients, randomize
from tests.sweeps import sweep

LEARNED, ZEROS = {"add_bias_kv": True}, {"add_zero_attn": True}
EXTRA_KEYS = [{}, LEARNED, ZEROS, LEARNED | ZEROS]


@pytest.mark.usefixtures("backend")
class TestMultiHeadAttention:
    def test_equals_core(self, rng):
        layer = MultiHeadAttention(12, 4, 2, head_dim=5, value_dim=3, kdim=7, vdim=8)
        randomize(layer, rng)
        x_q, x_k, x_v = (rng.normal(size=(2, T, n)) for T, n in ((5, 12), (6, 7), (6, 8)))
        out, weights = layer(x_q, x_k, x_v, is_causal=True, return_weights=True)
        params = MultiHeadParams(**layer.params)
        expected, cache = multi_head_attention_forward(
            x_q, x_k, x_v, params=params, num_heads=4, num_kv_heads=2, is_causal=True,
            backend=layer.backend,
        )  # fmt: skip
        assert_close(out, expected, "exact")
        assert_close(weights, cache.attention.weights, "exact")

    @pytest.mark.parametrize(
        "inputs", sweep(["query value", "query", "query key", "query key value"], 1)
    )
    def test_gradients_of_inputs_and_params(self, rng, inputs):
        layer = randomize(MultiHeadAttention(5, 4, 2, head_dim=2, rope=RopeOptions()), rng)
        arrays = {name: rng.normal(size=(2, 3, 5)) for name in inputs.split()}
        assert_layer_gradients(layer, arrays, is_causal=True, softcap=3.0)
        grads = dict(zip(("query", "key", "value"), layer.backward(layer(**arrays)), strict=True))
        assert {name for name, gradient in grads.items() if gradient is not None} == set(arrays)

    def test_gradients_of_bias_and_head_gate(self, rng):
        layer = randomize(MultiHeadAttention(8, 4, 2), rng)
        x = rng.normal(size=(2, 5, 8))

        def backward(d_out, _):
            layer.backward(d_out)
            return layer.d_options

        inputs = {"bias": rng.normal(size=(4, 1, 5)), "head_gate": rng.normal(size=(2, 4))}
        assert gradcheck(lambda **options: (layer(x, **options), None), backward, inputs)
        layer(x)
        layer.backward(x)
        assert layer.d_options == {}

    def test_gradients_accumulate_until_zeroed(self, rng):
        layer = MultiHeadAttention(8, 2, rng=0)
        x, d_out = rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 5, 8))
        layer(x)
        layer.backward(d_out)
        once = {name: g.copy() for name, g in layer.grads.items()}
        layer.backward(d_out)
        assert_close(layer.grads["w_q"], 2 * once["w_q"])
        layer.zero_grads()
        assert all((g == 0).all() for _, g in layer.named_grads())
        layer.backward(d_out)
        assert_close(layer.grads["w_q"], once["w_q"])

    @pytest.mark.parametrize("extra", EXTRA_KEYS)
    @pytest.mark.parametrize("rope", [None, RopeOptions()])
    def test_decoding_equals_the_full_forward(self, rng, rope, extra):
        layer = randomize(MultiHeadAttention(8, 4, 1, rope=rope, **extra), rng)
        x = rng.normal(size=(2, 6, 8))
        expected, weights = layer(x, is_causal=True, return_weights=True)
        kv_cache = KVCache()
        for t in range(6):
            out, new = layer(x[:, t : t + 1], kv_cache=kv_cache, return_weights=True)
            assert_close(out[:, 0], expected[:, t])
            seen = [*range(t + 1), *range(6, 6 + len(extra))]
            assert_close(new[:, :, 0], weights[:, :, t, seen])
        with pytest.raises(MhaError, match="without kv_cache"):
            layer.backward(out)

    @pytest.mark.parametrize("extra", EXTRA_KEYS)
    def test_gradients_with_extra_keys(self, rng, extra):
        layer = randomize(MultiHeadAttention(8, 4, 2, value_dim=3, dropout_p=0.3, **extra), rng)
        inputs = {name: rng.normal(size=(2, 5, 8)) for name in ("query", "key", "value")}
        assert_layer_gradients(layer, inputs, is_causal=True)
        assert ("extra_k" in layer.params) == ("add_bias_kv" in extra)
        layer(**inputs)
        assert layer.weights.shape == (2, 4, 5, 5 + len(extra))

    @pytest.mark.parametrize("place", sweep(GAIN_AXES, 1))
    @pytest.mark.parametrize("gated", [True, "heads"])
    def test_gradients_of_norms_gates_and_sinks(self, rng, place, gated):
        options = {"qk_norm": QKNormOptions(place, 0.1), "gated": gated, "sink": True}
        layer = MultiHeadAttention(5, 4, 2, head_dim=2, value_dim=3, rope=RopeOptions(), **options)
        assert {name: layer.params[name].shape for name in list(layer.params)[8:]} == {
            "w_gate": (5, 12 if gated is True else 4), "b_gate": (12 if gated is True else 4,),
            "gain_q": (8 if place == "projection" else 2,),
            "gain_k": (4 if place == "projection" else 2,), "sink": (4,),
        }  # fmt: skip
        inputs = {name: rng.normal(size=(2, T, 5)) for name, T in (("query", 3), ("key", 4))}
        more = {"positions": rng.integers(0, 9, 3), "key_positions": rng.integers(0, 9, (2, 4))}
        assert_layer_gradients(randomize(layer, rng), inputs, **more)
        assert layer.d_options == {}

    def test_what_is_not_trained_yet(self, rng):
        """Gains of 1 and a sink of 0; a gate begins around one half."""
        x = rng.normal(size=(2, 5, 8))
        plain = MultiHeadAttention(8, 2, rng=0)
        normed = MultiHeadAttention(8, 2, qk_norm=QKNormOptions(), sink=True, gated=True, rng=0)
        bare = multi_head_attention_forward(
            x, num_heads=2, qk_norm=QKNormOptions(), params=MultiHeadParams(**plain.params),
            sink=np.zeros(2),
        )[0]  # fmt: skip
        normed.params["w_gate"][...] = 0
        assert_close(normed(x), bare / 2)  # b_o is 0
        assert np.abs(bare - plain(x)).max() > 1e-3

    def test_a_sink_that_is_passed_comes_before_that_of_the_layer(self, rng):
        layer = randomize(MultiHeadAttention(8, 2, sink=True), rng)
        x = rng.normal(size=(2, 5, 8))
        out, sink = layer(x), layer.params["sink"].copy()
        layer.params["sink"][...] = 9
        assert_close(layer(x, sink=sink), out, "exact")
        layer.zero_grads()
        layer.backward(x)
        assert layer.d_options["sink"].shape == (2,)
        assert "sink" not in layer.grads

    @pytest.mark.parametrize("place", GAIN_AXES)
    def test_decoding_with_norms_gates_sinks_and_positions(self, rng, place):
        options = {"qk_norm": QKNormOptions(place), "gated": "heads", "sink": True}
        layer = randomize(MultiHeadAttention(8, 4, 1, rope=RopeOptions(), **options), rng)
        x, positions, kv_cache = rng.normal(size=(2, 6, 8)), rng.integers(0, 9, (2, 6)), KVCache()
        expected = layer(x, is_causal=True, positions=positions)
        for t in range(6):
            new = slice(t, t + 1)
            out = layer(x[:, new], kv_cache=kv_cache, positions=positions[:, new])
            assert_close(out, expected[:, new])

    def test_a_key_of_zeros_learns_nothing_and_leaves_the_learned_one_first(self, rng):
        layer = MultiHeadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, rng=0)
        layer.params["extra_k"][:] = 1e3 * layer.params["w_q"].sum(axis=0)
        _, weights = layer(np.ones((1, 3, 8)), return_weights=True)
        assert_close(weights[..., 3], np.ones((1, 2, 3)))  # after 3 tokens, before the zeros
        layer.backward(rng.normal(size=(1, 3, 8)))
        assert layer.grads["extra_v"].shape == (1, 8)

    def test_dropout(self, rng):
        x = rng.normal(size=(2, 5, 8))
        plain = MultiHeadAttention(8, 2, rng=3)
        layer = MultiHeadAttention(8, 2, dropout_p=0.5, rng=3)
        out, weights = layer(x, return_weights=True)
        assert_close(weights.sum(axis=-1), np.ones((2, 2, 5)))  # before dropout
        assert np.abs(out - plain(x)).max() > 1e-3
        assert np.abs(out - layer(x)).max() > 1e-3
        again = MultiHeadAttention(8, 2, dropout_p=0.5, rng=3)
        assert_close(again(x), out, "exact")
        assert_close(layer.eval()(x), plain(x), "exact")
        assert not layer.training
        layer.train()
        mean = layer(np.repeat(x, 3000, axis=0)).reshape(2, 3000, 5, 8).mean(axis=1)
        assert np.abs(mean - plain(x)).max() < 0.05  # 1 / (1 - p) keeps the mean

    def test_float32(self, rng):
        layer = MultiHeadAttention(8, 2, dropout_p=0.3).astype(np.float32)
        out = layer(rng.normal(size=(2, 5, 8)).astype(np.float32))
        layer.backward(out)
        assert {out.dtype, *(g.dtype for _, g in layer.named_grads())} == {np.dtype(np.float32)}


def test_returned_weights_cannot_be_changed_under_backward(rng):
    layer = MultiHeadAttention(8, 2)
    _, weights = layer(rng.normal(size=(2, 5, 8)), return_weights=True)
    with pytest.raises(ValueError, match="read-only"):
        weights[:] = 0


def test_weights_before_forward():
    with pytest.raises(MhaError, match="^weights: expected a forward before them, without kv_"):
        _ = MultiHeadAttention(4, 2).weights


def test_astype_forgets_the_forward_before(rng):
    layer = MultiHeadAttention(8, 2)
    layer(rng.normal(size=(2, 5, 8)))
    layer.astype(np.float32)
    with pytest.raises(MhaError, match="expected a forward before it"):
        layer.backward(np.ones((2, 5, 8)))


def test_initialisation():
    layer = MultiHeadAttention(64, 4, 2, rng=1)
    for name, bound in (("w_q", np.sqrt(6 / 128)), ("w_k", np.sqrt(6 / 96)), ("w_o", 1 / 8)):
        w = layer.params[name]
        assert 0.98 * bound < np.abs(w).max() <= bound
        assert abs(w.mean()) < 0.05 * bound
    assert (layer.params["b_q"] == 0).all()
    other = MultiHeadAttention(1024, 4, 2, value_dim=100, add_bias_kv=True, rng=1)
    for name, width in (("extra_k", 512), ("extra_v", 200)):
        assert other.params[name].shape == (1, width)
        assert 0.9 < other.params[name].std() * np.sqrt(width) < 1.1
    assert np.array_equal(MultiHeadAttention(64, 4, 2, rng=1).params["w_q"], layer.params["w_q"])
    assert not np.array_equal(
        MultiHeadAttention(64, 4, 2, rng=2).params["w_q"], layer.params["w_q"]
    )


class Block(Layer):
    def __init__(self):
        super().__init__()
        self.attention = MultiHeadAttention(8, 2)
        self.stack = [MultiHeadAttention(8, 4), MultiHeadAttention(8, 1)]
        self.params["scale"] = np.ones(8)


def test_names_modes_and_zeroing_reach_all_children(rng):
    block, x = Block(), rng.normal(size=(1, 3, 8))
    names = [name for name, _ in block.named_params()]
    assert names[:2] == ["scale", "attention.w_q"]
    assert "stack.1.b_o" in names
    assert [name for name, _ in block.named_grads()] == names
    assert block.num_parameters == 8 + 3 * 288
    block.stack[1].backward(block.stack[1](x))
    block.zero_grads()
    assert not block.stack[1].grads
    block.eval()
    assert not block.stack[0].training
    block.astype(np.float32)
    assert {a.dtype for _, a in block.named_params()} == {np.dtype(np.float32)}
