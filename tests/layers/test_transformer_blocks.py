"""Blocks of layers: gradients through everything, residual connections, decoding."""

import numpy as np
import pytest

from mha_numpy.core import KVCache, QKNormOptions, RopeOptions
from mha_numpy.layers import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    ExpertOptions,
    LayerNorm,
    Linear,
    Residual,
)
from tests.backends import EACH_KERNEL
from tests.compare import assert_close
from tests.gradients import assert_gradients, assert_layer_gradients, randomize
from tests.sweeps import sweep

B, T, T_K, D = 2, 4, 3, 8

OPTIONS = {
    "pre-norm": {},
    "post-norm": {"norm_first": False},
    "pre-norm, dropout": {"dropout_p": 0.3},
    "post-norm, dropout": {"norm_first": False, "dropout_p": 0.3},
    "grouped": {"num_kv_heads": 1, "rope": RopeOptions()},
    "as in Llama": {"norm": "rms", "activation": "swiglu", "bias": False, "rope": RopeOptions()},
    "as in Gemma": {
        "norm": "rms", "eps": 0.1, "post_norms": True, "rope": RopeOptions(), "gated": "heads",
        "qk_norm": QKNormOptions(eps=0.1), "sink": True, "softcap": 1.5, "scale": 0.7,
    },
    "as in gpt-oss": {
        "norm": "rms", "rope": RopeOptions(), "sink": True,
        "experts": ExpertOptions(5, 3, limit=0.9),
    },
    "as in OLMo 2": {"norm_first": False, "post_norms": True, "gated": True},
    "post-norm by rms": {"norm": "rms", "norm_first": False, "activation": "gelu_tanh"},
}  # fmt: skip


def block_of(kind, rng, **options):
    return randomize(kind(D, 2, 6, rng=0, **options), rng)


@pytest.mark.parametrize("name", sweep(reversed(OPTIONS), 6))
@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock, EncoderDecoderBlock])
def test_gradients(kind, name, rng):
    block = block_of(kind, rng, **OPTIONS[name])
    inputs, masks = {"x": rng.normal(size=(B, T, D))}, {"mask": rng.random((B, 1, T, T)) < 0.8}
    if kind.reads_memory:
        inputs["memory"] = rng.normal(size=(B, T_K, D))
        masks["memory_mask"] = rng.random((B, 1, 1, T_K)) < 0.8
    assert_layer_gradients(block, inputs, **masks)


def test_gradients_with_gates_on_the_heads(rng):
    block = block_of(EncoderDecoderBlock, rng)
    attention, cross = block.attention.layer, block.cross_attention.layer
    gates = {"attention": np.array([0.5, -2.0]), "cross": np.array([3.0, 0.0])}
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, T_K, D))

    def forward(**gates):
        attention.head_gate, cross.head_gate = gates["attention"], gates["cross"]
        return block(x, memory), None

    def backward(d_out, _):
        block.backward(d_out)
        return {
            "attention": attention.d_options["head_gate"],
            "cross": cross.d_options["head_gate"],
        }

    assert_gradients(forward, backward, gates)
    forward(**gates)
    assert_layer_gradients(block, {"x": x, "memory": memory})


def test_a_gate_of_0_cuts_a_head_and_can_be_overruled(rng):
    attention = block_of(EncoderBlock, rng).attention.layer
    x = rng.normal(size=(B, T, D))
    whole = attention(x)
    attention.head_gate = np.array([0.0, 1.0])
    gated = attention(x)
    assert_close(attention(x, head_gate=np.ones(2)), whole)
    attention.head_gate = None
    attention.params["w_o"][:4] = 0  # the rows of head 0
    assert_close(attention(x), gated)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_residual_adds_to_what_flows_past(norm_first, rng):
    layer, norm = randomize(Linear(D, D), rng), randomize(LayerNorm(D), rng)
    residual = Residual(layer, norm, norm_first=norm_first)
    x = rng.normal(size=(B, T, D))
    expected = x + layer(norm(x)) if norm_first else norm(x + layer(x))
    assert_close(residual(x), expected, "exact")
    assert_layer_gradients(residual, {"x": x})
    layer.params["w"][...] = layer.params["b"][...] = 0
    assert_close(residual(x), x if norm_first else norm(x), "exact")


def test_dropout_spares_what_flows_past(rng):
    layer, norm = randomize(Linear(D, D), rng), randomize(LayerNorm(D), rng)
    x = rng.normal(size=(B, T, D))
    added = Residual(layer, norm, dropout_p=0.5, rng=0)(x) - x
    dropped = added == 0
    assert 0.2 < dropped.mean() < 0.8
    assert_close(added[~dropped], 2 * layer(norm(x))[~dropped])


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_norm_of_what_is_added(norm_first, rng):
    layer, norm, post_norm = (
        randomize(part, rng) for part in (Linear(D, D), LayerNorm(D), LayerNorm(D))
    )
    norm = norm if norm_first else None
    residual = Residual(layer, norm, norm_first=norm_first, post_norm=post_norm)
    x = rng.normal(size=(B, T, D))
    assert_close(residual(x), x + post_norm(layer(norm(x) if norm else x)), "exact")
    assert_layer_gradients(residual, {"x": x})


def test_softcap_and_scale_are_those_of_every_forward(rng):
    block = block_of(EncoderDecoderBlock, rng, softcap=0.8, scale=2.0)
    inputs = [rng.normal(size=(B, n, D)) for n in (T, T_K)]
    block(*inputs)
    for part in (block.attention.layer, block.cross_attention.layer):
        given = part.forward_cache.attention.inputs
        assert (given.softcap, given.scale) == (0.8, 2.0)


def test_who_sees_whom(rng):
    """Which outputs change with the token 2 of x, and with the token 1 of the memory."""
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, T_K, D))
    other, other_memory = x.copy(), memory.copy()
    other[:, 2] += 1
    other_memory[:, 1] += 1

    def changed(block, *inputs_and_others):
        given, others = inputs_and_others
        return list((block(*given) != block(*others)).any(axis=(0, 2)))

    assert changed(block_of(EncoderBlock, rng), (x,), (other,)) == [True] * T
    assert changed(block_of(DecoderBlock, rng), (x,), (other,)) == [False, False, True, True]
    block = block_of(EncoderDecoderBlock, rng)
    assert changed(block, (x, memory), (other, memory)) == [False, False, True, True]
    assert changed(block, (x, memory), (x, other_memory)) == [True] * T
    mask = np.arange(T_K) != 1
    out = block(x, memory, memory_mask=mask)
    assert_close(block(x, other_memory, memory_mask=mask), out, "exact")


@pytest.mark.parametrize("name", [name for name in OPTIONS if "dropout" not in name])
@pytest.mark.parametrize("kind", [DecoderBlock, EncoderDecoderBlock])
def test_decoding_equals_the_full_forward(kind, name, rng):
    block = block_of(kind, rng, **OPTIONS[name])
    x = rng.normal(size=(B, T, D))
    memory = (rng.normal(size=(B, T_K, D)),) if kind.reads_memory else ()
    expected, kv_cache = block(x, *memory), KVCache()
    parts = [block(x[:, a:b], *memory, kv_cache=kv_cache) for a, b in ((0, 2), (2, 3), (3, 4))]
    assert_close(np.concatenate(parts, axis=1), expected)


@pytest.mark.parametrize("kernel", EACH_KERNEL)
def test_kernels_compute_the_same(kernel, rng):
    block = block_of(EncoderDecoderBlock, rng, activation="swiglu")
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, T_K, D))
    expected = block(x, memory)
    d_expected = block.backward(x)
    grads = dict(block.named_grads())
    block.zero_grads()
    for layer in block.layers():
        if hasattr(layer, "backend"):
            layer.backend = kernel
    assert_close(block(x, memory), expected, "framework")
    for actual, d in zip(block.backward(x), d_expected, strict=True):
        assert_close(actual, d, "framework")
    for name, gradient in block.named_grads():
        assert_close(gradient, grads[name], "framework", name=name)


def test_weights_of_the_last_forward(rng):
    block = block_of(DecoderBlock, rng)
    block(rng.normal(size=(B, T, D)))
    weights = block.attention.layer.weights
    assert weights.shape == (B, 2, T, T)
    assert_close(weights.sum(axis=-1), np.ones((B, 2, T)))
    assert not weights[..., 0, 1:].any()
    with pytest.raises(ValueError, match="read-only"):
        weights[...] = 0
