"""Options of models: each reaches every part that has it; impossible ones are refused at once."""

from inspect import signature

import numpy as np
import pytest

from mha_numpy.core import QKNormOptions, RopeOptions
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.layers import (
    DeltaOptions,
    ExpertOptions,
    GatedDeltaNet,
    LatentAttention,
    LatentOptions,
    LayerNorm,
    MixtureOfExperts,
    RMSNorm,
    TransformerBlock,
)
from mha_numpy.models import GPT2, AttentionOnlyLM, Bert, Llama, TransformerLM, Translator
from tests.backends import EACH_BACKEND

V, N, L = 7, 6, 2
SIZES = {"embed_dim": 8, "num_heads": 2, "num_layers": L, "rng": 0}
MODELS = (AttentionOnlyLM, Bert, GPT2, Llama, TransformerLM, Translator)
ROPE = RopeOptions(base=50.0)

DELTA = DeltaOptions(num_heads=4, num_key_heads=2, head_dim=3, value_dim=5, kernel_size=6)
LATENT = LatentOptions(latent_dim=5, nope_dim=3, rope_dim=2, value_dim=4, query_latent_dim=7)
EXPERTS = ExpertOptions(num_experts=3, num_chosen=2, limit=5.0, alpha=1.5)

OPTIONS = {  # of blocks, with values that are not the default of every model
    "hidden_dim": [5], "num_kv_heads": [1], "head_dim": [6], "activation": ["relu"],
    "norm": ["layer", "rms"], "eps": [0.125], "norm_first": [True, False], "bias": [True, False],
    "rope": [ROPE], "window": [(2, 0)], "dropout_p": [0.25],
    "qk_norm": [QKNormOptions("rotated", 0.2)], "gated": [True, "heads"], "sink": [True],
    "softcap": [1.5], "scale": [0.3], "post_norms": [True], "latent": [LATENT],
    "experts": [EXPERTS], "delta": [DELTA],
}  # fmt: skip


def make(model, **options):
    vocab_sizes = (V, V) if model is Translator else (V,)
    return model(*vocab_sizes, **{"max_tokens": N, **SIZES, **options})


def has(model, *options):
    """Return whether a model has these options."""
    if model is AttentionOnlyLM:
        return set(options) <= {"max_tokens"}
    if "delta" in options:
        return model not in (Bert, Translator)
    return model is not Bert or "norm_first" not in options


def has_bias(part):
    is_linear = {"w", "w_q", "w_in"} & part.params.keys()
    return any(name.startswith("b") for name in part.params) if is_linear else None


def delta_of(part):
    return DeltaOptions(
        part.num_heads, part.num_key_heads, part.head_dim, part.value_dim, part.kernel_size
    )


def latent_of(part):
    widths = {name: param.shape[-1] for name, param in part.params.items()}
    d_c, d_cq = widths["kv_gain"], widths["w_q_down"]
    return LatentOptions(
        d_c, widths["w_k_up"] // 2, widths["w_kv_down"] - d_c, widths["w_v_up"] // 2, d_cq
    )


READERS = {  # what a part has of an option, None if it has no such thing; others are attributes
    "norm": lambda part: {LayerNorm: "layer", RMSNorm: "rms"}.get(type(part)),
    "hidden_dim": lambda part: part.params["w_in"].shape[1] if "w_in" in part.params else None,
    "bias": has_bias,
    "experts": lambda part: (
        ExpertOptions(part.params["w_router"].shape[1], **part.options)
        if isinstance(part, MixtureOfExperts)
        else None
    ),
    "delta": lambda part: delta_of(part) if isinstance(part, GatedDeltaNet) else None,
    "latent": lambda part: latent_of(part) if isinstance(part, LatentAttention) else None,
}
EXEMPT = {
    "rope": "cross_attention.layer",  # positions of two sequences cannot be compared
    "bias": "unembedding",  # scores tokens without one
}


def test_every_option_of_a_block_is_tried():
    parameters = signature(TransformerBlock).parameters
    others = {"embed_dim", "num_heads", "rng", "backend"}
    assert OPTIONS.keys() == parameters.keys() - others


@pytest.mark.parametrize(
    ("model", "option", "value"),
    [
        (model, option, value)
        for model in MODELS
        for option, values in OPTIONS.items()
        for value in values
        if has(model, option)
    ],
)
def test_an_option_reaches_every_part_that_has_it(model, option, value):
    read = READERS.get(option, lambda part: vars(part).get(option))
    found = {
        place: read(part)
        for place, part in make(model, **{option: value}).named_layers()
        if read(part) is not None and not place.endswith(EXEMPT.get(option, "no place"))
    }
    assert len(found) >= L
    assert found == dict.fromkeys(found, value)


@pytest.mark.parametrize("backend", EACH_BACKEND[-1:])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_s_backend_computes_every_part(model, backend):
    made = make(model, backend=backend)
    made(*[np.ones((1, 2), int)] * (2 if model is Translator else 1))
    assert {part.computed_by for part in made.layers() if part.uses} == {backend}


IMPOSSIBLE = [
    ({"max_tokens": 0}, "max_tokens: expected an integer >= 1; got 0"),
    ({"max_tokens": 6.0}, "max_tokens: expected an integer; got 6.0"),
    ({"max_tokens": 0, "rope": ROPE}, "max_tokens: expected an integer >= 1; got 0"),
    ({"max_tokens": None, "rope": ROPE}, "max_tokens: expected an integer; got None"),
    ({"window": (-1, 0)}, "window: expected an integer >= 0; got -1"),
    ({"experts": 3}, r"experts: expected ExpertOptions\(...\) or None; got 3"),
    ({"latent": 3}, r"latent: expected LatentOptions\(...\) or None; got 3"),
    ({"latent": LATENT, "sink": True}, "sink: expected none with latent=; got True"),
    ({"delta": 3}, r"delta: expected DeltaOptions\(...\) or None; got 3"),
    ({"window": 3}, r"window: expected \(left, right\) or None; got 3"),
]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [(model, *case) for model in MODELS for case in IMPOSSIBLE if has(model, *case[0])],
)
def test_impossible_options_are_refused_before_a_forward(model, options, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        make(model, **options)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_says_its_sizes(model):
    made = make(model)
    sizes = {name: size for name, size in SIZES.items() if name != "rng"} | {"max_tokens": N}
    V_names = ("source_vocab_size", "target_vocab_size") if model is Translator else ("vocab_size",)
    for name, size in {**sizes, **dict.fromkeys(V_names, V)}.items():
        assert vars(made)[name] == size


def test_a_list_has_one_for_each_layer():
    model = make(TransformerLM, rope=[None, ROPE], window=[(2, 0), None])
    assert [block.window for block in model.blocks] == [(2, 0), None]
    assert [block.attention.layer.rope for block in model.blocks] == [None, ROPE]
    assert model.positions is None
    assert make(TransformerLM, rope=[None, None]).positions is not None
    for options in ({"rope": [ROPE]}, {"window": [None] * 3}):
        (name,) = options
        with pytest.raises(
            ConfigError, match=f"^{name}: expected one for each of num_layers=2; got"
        ):
            make(TransformerLM, **options)


def test_rotated_positions_are_instead_of_learned_ones():
    for model in (Translator, TransformerLM):
        assert any("positions" in name for name, _ in make(model).named_params())
        assert not any("positions" in name for name, _ in make(model, rope=ROPE).named_params())


def calls(model, wrong, right):
    """Return the inputs of forwards with wrong ids, and the name of the wrong ones."""
    if model is Translator:
        return [((right, wrong), "target"), ((wrong, right), "source")]
    return [((wrong,), "ids")]


@pytest.mark.parametrize(
    ("model", "options"),
    [(model, case) for model in MODELS for case in ({}, {"rope": ROPE}) if has(model, *case)],
)
def test_a_longer_sequence_is_refused_before_anything_is_computed(model, options):
    made, fits, long = make(model, **options), np.ones((2, N), int), np.ones((2, N + 1), int)
    for given, wrong in calls(model, long, fits):
        message = f"^{wrong}: expected at most max_tokens={N} positions; got T={N + 1} tokens$"
        with pytest.raises(ShapeError, match=message):
            made(*given)
        assert all(part._cache is None for part in made.layers())
    made(*calls(model, fits, fits)[0][0])


@pytest.mark.parametrize("options", [{}, {"rope": ROPE}])
@pytest.mark.parametrize("model", [GPT2, Llama, TransformerLM])
def test_a_longer_sequence_is_refused_while_decoding(model, options):
    made = make(model, **options)
    kv_caches = made.new_kv_caches()
    made(np.ones((2, N - 1), int), kv_caches=kv_caches)
    message = f"^ids: expected at most max_tokens={N} positions; got T=2 tokens from position 5$"
    with pytest.raises(ShapeError, match=message):
        made(np.ones((2, 2), int), kv_caches=kv_caches)
    assert {kv_cache.length for kv_cache in kv_caches} == {N - 1}
    made(np.ones((2, 1), int), kv_caches=kv_caches)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (np.ones((2, 3)), ConfigError, r"expected an integer array \(B, T\); got .* of float64"),
        (np.ones(3, int), ShapeError, r"expected \(B, T\); got \(3,\)"),
        (np.full((2, 3), V), ConfigError, f"expected 0 <= id < V={V}; got {V}"),
    ],
)
def test_ids_are_checked_first(model, ids, error, message):
    for given, wrong in calls(model, ids, np.ones((2, 3), int)):
        with pytest.raises(error, match=f"^{wrong}: {message}"):
            make(model)(*given)
