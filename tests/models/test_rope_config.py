import pytest

from mha_numpy import ConfigError, RopeOptions
from mha_numpy.core import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ProportionalScaling,
    YarnScaling,
)
from mha_numpy.models import rope_from_config

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 4096}
LLAMA = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192, "rope_type": "llama3"}  # fmt: skip
ORIGINAL = "original_max_position_embeddings"
LISTS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def scaled(scaling, base=10000.0):
    return RopeOptions(base, scaling=scaling)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, RopeOptions()),
        ({"rope_theta": 5e5, "rope_scaling": None}, RopeOptions(5e5)),
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 9.0}}, RopeOptions(9.0)),
        # Llama 3.2
        ({"rope_theta": 5e5, "rope_scaling": LLAMA}, scaled(Llama3Scaling(32.0, 8192), 5e5)),
        # three spellings of a partial rotation, the last of GPT-NeoX
        ({"partial_rotary_factor": 0.5, **SIZES}, RopeOptions(rotary_dim=8)),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}, **SIZES}, RopeOptions(rotary_dim=8)),
        ({"rotary_pct": 0.25, "rotary_emb_base": 99, **SIZES}, RopeOptions(99.0, 4)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, scaled(LinearScaling(2.0))),
        # as in transformers, the older spelling wins
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0},
             "rope_parameters": {"rope_theta": 9.0}},
            scaled(LinearScaling(2.0)),
        ),
        # DeepSeek rotates a part that is separate, GPT-NeoX the first features
        ({"rotary_pct": 0.5, "head_dim": 20, **SIZES}, RopeOptions(rotary_dim=10)),
        ({"rotary_pct": 0.5, "qk_rope_head_dim": 12, "head_dim": 20}, RopeOptions(rotary_dim=6)),
        # its length is that of the model, whatever else is there
        (
            {**SIZES, "rope_scaling": {"type": "dynamic", "factor": 2.0, ORIGINAL: 9}},
            scaled(DynamicScaling(2.0, 4096)),
        ),
        # DeepSeek-V3
        (
            {"rope_scaling": {"type": "yarn", "beta_fast": 32, "beta_slow": 1, "factor": 40,
                              "mscale": 1.0, "mscale_all_dim": 1.0, ORIGINAL: 4096}},
            scaled(YarnScaling(40, 4096, mscale=1.0, mscale_all_dim=1.0)),
        ),
        # gpt-oss
        (
            {"rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "beta_fast": 32.0,
             "beta_slow": 1.0, "factor": 32.0, ORIGINAL: 4096, "truncate": False}},
            scaled(YarnScaling(32.0, 4096, truncate=False), 150000),
        ),
        # Phi-3: the original length is beside the lists, and the factor follows
        (
            {**SIZES, ORIGINAL: 1024, "rope_scaling": {"type": "su", **LISTS}},
            scaled(LongRopeScaling((1.0,) * 8, (2.0,) * 8, 1024, 4.0)),
        ),
        # Gemma 4
        (
            {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
            scaled(ProportionalScaling(0.25)),
        ),
    ],
)  # fmt: skip
def test_what_configs_say(config, expected):
    assert rope_from_config(config) == expected


def test_layers_of_several_types():
    config = {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }}  # fmt: skip
    assert rope_from_config(config, "sliding_attention") == RopeOptions()
    full = RopeOptions(1e6, scaling=LinearScaling(8.0))
    assert rope_from_config(config, "full_attention") == full
    assert (
        rope_from_config(config | {"rope_parameters": config["rope_parameters"]["full_attention"]})
        == full
    )
    with pytest.raises(ConfigError, match="got those of sliding_attention, full_attention; write"):
        rope_from_config(config)
    with pytest.raises(ConfigError, match="layer_type: expected one of .*; got 'linear'"):
        rope_from_config(config, "linear")


WRONG = [
    ({"rope_type": "mrope"}, r"rope_type: expected one of \('default', 'linear', .*; got 'mrope'"),
    ({"rope_type": None}, "rope_type: expected one of .*; got None"),
    ({"type": "linear"}, "rope_parameters: expected factor for 'linear'; got none"),
    ({"type": "linear", "factor": "2"}, "scaling.factor: expected a finite number; got '2'"),
    ({"type": "dynamic", "factor": 2.0}, "max_position_embeddings: expected an integer; got None"),
    ({"type": "dynamic", "factor": 1.0, "alpha": 1000.0}, "expected no alpha with 'dynamic'"),
    ({"partial_rotary_factor": 0.5}, "hidden_size: expected an integer; got None"),
    ({"partial_rotary_factor": 0}, "partial_rotary_factor: expected a number > 0; got 0"),
    ({"rope_theta": 0.5}, "rope_theta: expected a number >= 1.0; got 0.5"),
    ({**LISTS, "type": "longrope", "factor": 2.0, "short_factor": [1.0],
      ORIGINAL: 9}, "hidden_size: "),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_named(parameters, message):
    with pytest.raises(ConfigError, match=message):
        rope_from_config({"rope_parameters": parameters})


def test_lists_fit_the_rotated_part():
    config = {**SIZES, "rope_scaling": {"type": "longrope", **LISTS}}
    assert rope_from_config(config).scaling
    with pytest.raises(ConfigError, match="short_factor: expected 4 numbers > 0"):
        rope_from_config(config | {"partial_rotary_factor": 0.5})
