"""Every layout both ways, and what is refused."""

import numpy as np
import pytest

from mha_numpy.core import QKNormOptions
from mha_numpy.errors import ConfigError
from mha_numpy.layers import (
    DeltaOptions,
    Embedding,
    EncoderBlock,
    EncoderDecoderBlock,
    ExpertOptions,
    LatentOptions,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    RMSNorm,
)
from mha_numpy.models import GPT2, AttentionOnlyLM, Bert, Llama
from mha_numpy.models.weights import LAYOUTS, from_layout, to_layout
from tests.gradients import randomize

SIZES = {"embed_dim": 12, "num_heads": 6, "num_layers": 2}
MIXED = {"delta": [DeltaOptions(4, 2, 3, 5), None], "gated": True, "qk_norm": QKNormOptions()}


def make(layout, rng=0, **options):
    """Return a layer that the layout is for, with random params."""
    layer = {
        "torch": lambda: MultiHeadAttention(12, 6, **options),
        "torch-separate": lambda: MultiHeadAttention(12, 6, kdim=5, vdim=7, **options),
        "torch-encoder-layer": lambda: EncoderBlock(12, 6, 20, **options),
        "torch-decoder-layer": lambda: EncoderDecoderBlock(12, 6, 20, **options),
        "torch-layer": lambda: LayerNorm(12, **options),
        "keras": lambda: MultiHeadAttention(
            12, 6, 3, head_dim=5, value_dim=4, kdim=7, vdim=8, **options
        ),
        "flax": lambda: MultiHeadAttention(12, 6, head_dim=5, **options),
        "gpt2-attention": lambda: MultiHeadAttention(12, 6, **options),
        "bert": lambda: Bert(11, 8, **SIZES, **options),
        "gpt2": lambda: GPT2(11, 8, **SIZES, **options),
        "llama": lambda: Llama(11, 8, **SIZES, num_kv_heads=3, **options),
        "gemma": lambda: Llama(11, 8, **SIZES, post_norms=True, qk_norm=QKNormOptions()),
        "gpt-oss": lambda: Llama(11, 8, **SIZES, sink=True, experts=ExpertOptions(3, 2), **options),
        "olmo2": lambda: Llama(
            11, 8, **SIZES, norm_first=False, post_norms=True, qk_norm=QKNormOptions("projection")
        ),
        "deepseek-v3": lambda: Llama(11, 8, **SIZES, latent=LatentOptions(5, 3, 2, 4, 7)),
        "qwen3-next": lambda: Llama(11, 8, **SIZES, **MIXED),
        "qwen3.5": lambda: Llama(11, 8, **SIZES, **MIXED),
    }[layout]()
    randomize(layer, np.random.default_rng(rng))
    if layout in (
        "gemma",
        "qwen3-next",
        "qwen3.5",
    ):  # stores what gains have above 1: numbers for which that is exact
        for _, param in layer.named_params():
            param[...] = np.round(64 * param) / 64 + 0.0  # no -0
    return layer


def bytes_of(layer):
    return {name: param.tobytes() for name, param in layer.named_params()}


OPTIONS = {  # options of a layer, and why the usual arrays do not fit it
    "bias=False": ({"bias": False}, "got .*extra "),
    "a learned key": ({"add_bias_kv": True}, "missing bias_k, .*with add_bias_kv=False$"),
}
WITHOUT_BIASES = ("llama", "gemma", "olmo2", "deepseek-v3", "gpt-oss", "torch-layer",
                  "qwen3-next", "qwen3.5")  # fmt: skip
LAYOUTS_AND_OPTIONS = [
    *[(layout, "") for layout in LAYOUTS],
    *[(layout, "bias=False") for layout in LAYOUTS if layout not in WITHOUT_BIASES],
    *[(layout, "a learned key") for layout in ("torch", "torch-separate")],
]


@pytest.mark.parametrize(("layout", "name"), LAYOUTS_AND_OPTIONS)
def test_there_and_back_is_exact(layout, name):
    options, message = OPTIONS.get(name, ({}, ""))
    layer, other = make(layout, 1, **options), make(layout, 2, **options)
    arrays, before = to_layout(layer, layout), bytes_of(other)
    assert from_layout(other, arrays, layout) is other
    assert bytes_of(other) == bytes_of(layer) != before
    again = to_layout(other, layout)
    assert {n: a.tobytes() for n, a in again.items()} == {n: a.tobytes() for n, a in arrays.items()}
    assert all(array.flags.c_contiguous for array in arrays.values())
    assert not any(np.shares_memory(a, p) for a in arrays.values() for _, p in layer.named_params())
    if name == "bias=False":
        assert not any("bias" in theirs for theirs in arrays)
    if name:
        with pytest.raises(ConfigError, match=message):
            from_layout(other, to_layout(make(layout), layout), layout)


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (Linear(3, 4), {"weight": (4, 3), "bias": (4,)}),
        (Linear(3, 4, bias=False), {"weight": (4, 3)}),
        (LayerNorm(3), {"weight": (3,), "bias": (3,)}),
        (RMSNorm(3), {"weight": (3,)}),
        (Embedding(5, 3), {"weight": (5, 3)}),
        (LearnedPositions(5, 3), {"weight": (5, 3)}),
    ],
)
def test_single_layers_of_pytorch(layer, shapes):
    arrays = to_layout(randomize(layer, np.random.default_rng(0)), "torch-layer")
    assert {name: array.shape for name, array in arrays.items()} == shapes
    before = bytes_of(layer)
    randomize(layer, np.random.default_rng(1))
    assert bytes_of(from_layout(layer, arrays, "torch-layer")) == before


@pytest.mark.parametrize("layout", ["gpt2", "llama"])
def test_scores_by_the_embedding_may_be_there_again(layout):
    layer, other = make(layout, 1, tied=True), make(layout, 2, tied=True)
    arrays = to_layout(layer, layout)
    (table,) = (array for name, array in arrays.items() if "wte" in name or "embed" in name)
    again = {**arrays, "lm_head.weight": table}
    assert bytes_of(from_layout(other, again, layout)) == bytes_of(layer)
    again["lm_head.weight"] = table + 1
    expected = "^lm_head.weight: expected the numbers of .*; got different ones"
    with pytest.raises(ConfigError, match=expected):
        from_layout(other, again, layout)


def test_a_learned_key_has_two_rows():
    layer = make("torch", 1, add_bias_kv=True)
    arrays = to_layout(layer, "torch")
    assert arrays["bias_k"].shape == arrays["bias_v"].shape == (1, 1, 12)
    assert (arrays["bias_v"][0] == layer.params["extra_v"]).all()
    with pytest.raises(ConfigError, match="has no place for extra_k, extra_v; write 'torch'$"):
        to_layout(layer, "keras")


def test_heads_are_cut_as_in_keras():
    layer = make("keras")
    arrays = to_layout(layer, "keras")
    assert {name: array.shape for name, array in arrays.items()} == {
        "query/kernel": (12, 6, 5), "query/bias": (6, 5),
        "key/kernel": (7, 3, 5), "key/bias": (3, 5),
        "value/kernel": (8, 3, 4), "value/bias": (3, 4),
        "attention_output/kernel": (6, 4, 12), "attention_output/bias": (12,),
    }  # fmt: skip
    w_q, w_o = layer.params["w_q"], layer.params["w_o"]
    np.testing.assert_array_equal(arrays["query/kernel"][:, 2], w_q[:, 10:15])
    np.testing.assert_array_equal(arrays["attention_output/kernel"][2], w_o[8:12])


def test_gpt2_has_queries_keys_and_values_side_by_side():
    layer = make("gpt2-attention")
    arrays = to_layout(layer, "gpt2-attention")
    np.testing.assert_array_equal(arrays["c_attn.weight"][:, 12:24], layer.params["w_k"])
    np.testing.assert_array_equal(arrays["c_proj.weight"], layer.params["w_o"])


def test_gradients_are_stored_alike(rng):
    layer = make("torch")
    x = rng.normal(size=(2, 5, 12))
    layer.backward(layer(x))
    found = to_layout(layer, "torch", gradients=True)
    np.testing.assert_array_equal(found["in_proj_weight"][12:24], layer.grads["w_k"].T)


def test_older_names_prefixes_and_buffers_are_read():
    layer, other = make("bert", 1), make("bert", 2)
    older = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in to_layout(layer, "bert").items()
    }  # fmt: skip
    older["bert.embeddings.position_ids"] = np.arange(8)
    older["cls.predictions.bias"] = np.zeros(11)
    assert bytes_of(from_layout(other, older, "bert")) == bytes_of(layer)
    without = {
        name.removeprefix("transformer."): array
        for name, array in to_layout(make("gpt2", 1), "gpt2").items()
    }
    without["h.0.attn.bias"] = np.ones((1, 1, 8, 8))
    assert bytes_of(from_layout(make("gpt2", 2), without, "gpt2")) == bytes_of(make("gpt2", 1))


def changed(layout, **changes):
    """Return the arrays of a layout with some others in them; None takes one away."""
    arrays = to_layout(make(layout), layout)
    for name, array in changes.items():
        arrays[name.replace("__", ".")] = array
    return {name: array for name, array in arrays.items() if array is not None}


WRONG = [  # a layout, arrays, and what is said
    ("gpt2", changed("gpt2", transformer__h__1__mlp__c_fc__weight=None),
     r"arrays: expected 28 with the names and shapes of layout 'gpt2'; "
     r"got missing h.1.mlp.c_fc.weight$"),
    ("torch", changed("torch", what=np.zeros(3)), "got extra what$"),
    ("torch", changed("torch", in_proj_bias=np.zeros(35)),
     r"got in_proj_bias \(35,\) of float64 for \(36,\) of float64$"),
    ("torch", changed("torch", in_proj_bias=np.zeros(36, int)), "of int64 for"),
    ("torch", changed("torch", in_proj_bias=np.full(36, np.nan)),
     "arrays: expected finite numbers; got NaN or inf in in_proj_bias$"),
    ("torch", changed("torch", in_proj_bias=[[1.0], 2.0]), "^arrays.'in_proj_bias'.: "),
    ("torch", None, "^arrays: expected a dict from names to arrays; got None$"),
    ("torch", changed("torch", bias_k=np.zeros((1, 1, 12)), bias_v=np.zeros((1, 1, 12))),
     "got extra bias_k, bias_v; make the layer with add_bias_kv=True$"),
    ("torch-separate", changed("torch"), "; these are the names of layout 'torch'$"),
    ("torch", to_layout(make("gpt2-attention"), "gpt2-attention"),
     "got missing in_proj_weight, .*; these are the names of layout 'gpt2-attention'$"),
    ("jax", {}, r"^layout: expected one of \('torch', 'torch-separate',"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "arrays", "message"), WRONG, ids=[message for *_, message in WRONG]
)
def test_what_does_not_fit_is_named_and_changes_nothing(layout, arrays, message):
    layer = make(layout if layout in LAYOUTS else "torch", 5)
    before = bytes_of(layer)
    with pytest.raises(ConfigError, match=message):
        from_layout(layer, arrays, layout)
    assert bytes_of(layer) == before


def test_a_number_that_the_layers_dtype_cannot_hold_changes_nothing():
    layer = make("torch", 5).astype(np.float32)
    before = bytes_of(layer)
    expected = r"^dtype: expected one that holds .* b_q, up to 1.0e\+300; got float32$"
    with pytest.raises(ConfigError, match=expected):
        from_layout(layer, changed("torch", in_proj_bias=np.full(36, 1e300)), "torch")
    assert bytes_of(layer) == before


def test_a_layout_of_another_kind_of_layer_is_refused():
    with pytest.raises(ConfigError, match="^layer: expected a Layer, .*; got {}$"):
        from_layout({}, make("torch"), "torch")
    with pytest.raises(ConfigError, match="^layout: expected one that holds all params of this "
                       "EncoderBlock; 'torch' has no place for attention.norm.gain, "):  # fmt: skip
        to_layout(make("torch-encoder-layer"), "torch")
    for layer, layout, advice in (
        (make("torch-encoder-layer"), "torch", "; write 'torch-encoder-layer'$"),
        (Linear(3, 4), "torch-separate", "no place for w, b; write 'torch-layer'$"),
        (make("llama"), "gpt2", "; write 'llama'$"),
        (AttentionOnlyLM(3, 4), "gpt2", r"attentions.0.w_v$"),
    ):
        with pytest.raises(ConfigError, match=advice):
            from_layout(layer, {}, layout)
