"""A model's config.json: its fields, their valid values, and the options that they become here."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.checks import check_choice, check_count, check_flag, check_integer, check_number
from mha_numpy.core import QKNormOptions, RopeOptions, YarnScaling, yarn_mscale
from mha_numpy.errors import ConfigError, FileError, describe
from mha_numpy.layers.experts import ExpertOptions
from mha_numpy.layers.gated_delta import DeltaOptions
from mha_numpy.layers.latent_attention import LatentOptions
from mha_numpy.models.rope_config import rope_from_config
from mha_numpy.models.weights.files import read_json

REQUIRED: Any = object()  # in place of a default
SPARE: Any = object()  # of a second name for what another field says: read where it is there
ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class Field(NamedTuple):
    """One field: ``option = read(name, value)``, which raises a ConfigError if it cannot."""

    name: str
    option: str  # "" where a field is only checked; fields of one option must agree
    read: Callable[[str, Any], Any]
    default: Any = REQUIRED  # of transformers, for a config without the field


def read_fields(values: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return the options that the values of a table's fields become; other names are ignored.

    Examples
    --------
    >>> read_fields({"n_head": 2, "n_layer": 3}, (Field("n_head", "num_heads", check_count),))
    {'num_heads': 2}
    """
    options: dict[str, Any] = {}
    for name, option, read, default in fields:
        value = values.get(name, default)
        if value is REQUIRED:
            raise ConfigError(f"{name}: expected a value; got none")
        if value is SPARE:
            continue
        found = read(name, value)
        if option and options.setdefault(option, found) != found:
            first = next(field.name for field in fields if field.option == option)
            raise ConfigError(
                f"{name}: expected {describe(options[option])}, as {first} has; got {found}"
            )
    return options


def one_of(choices: Mapping[Any, Any]) -> Callable[[str, Any], Any]:
    """Read one of several words, and return the name that it has here."""
    return lambda name, value: choices[check_choice(name, value, choices)]


def only(expected: bool) -> Callable[[str, Any], Any]:
    """Read a flag for which only one value is supported here."""

    def read(name: str, value: Any) -> None:
        if check_flag(name, value) != expected:
            raise ConfigError(f"{name}: expected {expected}; got {value}")

    return read


def off(name: str, value: Any) -> None:
    """Read a flag that may be null, of what is not supported here."""
    if value is not None and check_flag(name, value):
        raise ConfigError(f"{name}: expected False; got {value}")


def null(name: str, value: Any) -> None:
    """Read a field that must be null."""
    if value is not None:
        raise ConfigError(f"{name}: expected null; got {describe(value)}")


def count_or_null(name: str, value: Any) -> int | None:
    """Read a size; null means that it follows from others."""
    return None if value is None else check_count(name, value)


def between(least: float, most: float) -> Callable[[str, Any], float]:
    """Read a number in a range."""

    def read(name: str, value: Any) -> float:
        if not least <= check_number(name, value) <= most:
            raise ConfigError(f"{name}: expected {least:g} <= {name} <= {most:g}; got {value}")
        return float(value)

    return read


def window(name: str, value: Any) -> tuple[int, int] | None:
    """Read how many tokens a token sees, itself among them."""
    return None if value is None else (check_count(name, value) - 1, 0)


def rope(name: str, config: Any) -> RopeOptions:
    """Read how queries and keys are rotated, from the several fields that describe it."""
    return rope_of_whole_heads(config)


def rope_of_whole_heads(config: Any, layer_type: str | None = None) -> RopeOptions:
    """Read a rotation; refuse one of a part of a head, which these kinds of models ignore."""
    found = rope_from_config(config, layer_type)
    if found.rotary_dim is not None:
        raise ConfigError(
            "rope_parameters: expected a partial_rotary_factor of 1; got one that rotates "
            f"{found.rotary_dim} features of a head"
        )
    return found


EXPERTS = "layers of experts of a kind that is not supported"
MOST_LAYERS = 1000  # in a model whose layers differ: a list has a place for each


def types_of_layers(
    config: Any, is_full: Callable[[int], bool], other: str = "sliding_attention"
) -> list[str]:
    """Read whether each layer sees everything or a window; older configs have only a rule."""
    L = check_count("num_hidden_layers", config.get("num_hidden_layers"))
    if L > MOST_LAYERS:
        raise ConfigError(f"num_hidden_layers: expected at most {MOST_LAYERS}; got {L}")
    found = config.get("layer_types")
    if found is None:
        return ["full_attention" if is_full(i) else other for i in range(L)]
    if not isinstance(found, list) or len(found) != L:
        raise ConfigError(f"layer_types: expected a list of {L}; got {describe(found)}")
    kinds = ("full_attention", other)
    return [check_choice("layer_types", each, kinds) for each in found]


def windows(is_full: Callable[[int], bool], default: int = 4096) -> Callable[[str, Any], list[Any]]:
    """Read the window of each layer, from the whole config."""

    def read(name: str, config: Any) -> list[Any]:
        types = types_of_layers(config, is_full)
        size = config.get("sliding_window", default)
        own = window("sliding_window", size) if "sliding_attention" in types else None
        return [own if each == "sliding_attention" else None for each in types]

    return read


def windows_of_qwen3(name: str, config: Any) -> list[Any]:
    """Read the window of each layer: none, unless the config asks for windows at all."""
    used = check_flag("use_sliding_window", config.get("use_sliding_window", False))
    first = check_count("max_window_layers", config.get("max_window_layers", 28), least=0)
    if not used:
        config = {**config, "sliding_window": None}
    return windows(lambda i: not used or i < first)(name, config)


def windows_of_mistral(name: str, config: Any) -> Any:
    """Read the window of all layers, or that of each if the config has types, as in Ministral."""
    if config.get("layer_types") is not None:
        return windows(lambda i: False)(name, config)
    return window("sliding_window", config.get("sliding_window", 4096))


def types_of_gemma3(config: Any) -> list[str]:
    """Read the types of layers: every sixth sees everything, if nothing else is said."""
    period = check_count("sliding_window_pattern", config.get("sliding_window_pattern", 6))
    return types_of_layers(config, lambda i: (i + 1) % period == 0)


def windows_of_gemma3(name: str, config: Any) -> list[Any]:
    """Read the window of each layer."""
    types = types_of_gemma3(config)
    return windows(lambda i: types[i] == "full_attention")(name, config)


def ropes_of_gemma3(name: str, config: Any) -> list[RopeOptions]:
    """Read the rotation of each layer: local layers have their own base."""
    types, given = types_of_gemma3(config), config.get("rope_parameters")
    bases = {"full_attention": config.get("rope_theta", 1e6),
             "sliding_attention": config.get("rope_local_base_freq", 1e4)}  # fmt: skip
    given = dict.fromkeys(bases) if given is None else given
    if not isinstance(given, dict) or not given.keys() <= bases.keys():
        raise ConfigError(
            f"rope_parameters: expected those of {' and of '.join(bases)}; got {describe(given)}"
        )
    found = {name: {"rope_theta": base, **(given.get(name) or {})} for name, base in bases.items()}
    found["full_attention"] |= config.get("rope_scaling") or {}  # in older files
    config = config | {"rope_parameters": found, "rope_scaling": None}
    by_type = {each: rope_of_whole_heads(config, each) for each in set(types)}
    return [by_type[each] for each in types]


def partly_rotated(name: str, config: Any) -> RopeOptions:
    """Read the rotation of Qwen3-Next and 3.5: of a quarter of each head, if nothing is said."""
    return rope_from_config({"partial_rotary_factor": 0.25, **config})


def mixers(name: str, config: Any) -> list[DeltaOptions | None]:
    """Read which layers of Qwen3-Next and 3.5 have the delta rule in the place of attention."""
    period = check_count("full_attention_interval", config.get("full_attention_interval", 4))
    types = types_of_layers(config, lambda i: (i + 1) % period == 0, other="linear_attention")
    defaults = {"linear_num_value_heads": 32, "linear_num_key_heads": 16,
                "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                "linear_conv_kernel_dim": 4}  # fmt: skip
    delta = DeltaOptions(*(check_count(n, config.get(n, size)) for n, size in defaults.items()))
    return [delta if each == "linear_attention" else None for each in types]


def without_experts_of_qwen(name: str, config: Any) -> None:
    """Raise a ConfigError if any layer of Qwen3-Next has experts."""
    E = check_count("num_experts", config.get("num_experts", 512), least=0)
    every = check_count("decoder_sparse_step", config.get("decoder_sparse_step", 1))
    L = check_count("num_hidden_layers", config.get("num_hidden_layers"))
    dense = token_ids("mlp_only_layers", config.get("mlp_only_layers"))
    sparse = [i for i in range(every - 1, L, every) if i not in dense] if E else []
    if sparse:
        raise ConfigError(
            f"num_experts: expected 0, or all layers in mlp_only_layers, because {EXPERTS}; got "
            f"{E} in {len(sparse)} of {L} layers"
        )


def sqrt(name: str, value: Any) -> float:
    """Read a size, and return its root."""
    return math.sqrt(check_count(name, value))


def inverse_sqrt(name: str, value: Any) -> float:
    """Read a number, and return 1 over its root."""
    return 1 / math.sqrt(check_number(name, value, positive=True))


def number_or_null(name: str, value: Any) -> float | None:
    """Read a number > 0; null means that there is none."""
    return None if value is None else float(check_number(name, value, positive=True))


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Read the number of a special token, or of several, or null."""
    several = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(check_integer(name, each) for each in several)


EPS = between(1e-30, 1.0)  # below, float32 could lose it
SPECIAL = (Field("bos_token_id", "bos", token_ids, None),
           Field("eos_token_id", "eos", token_ids, None))  # fmt: skip
SIZES = (  # of all but GPT-2
    Field("vocab_size", "vocab_size", check_count),
    Field("max_position_embeddings", "max_tokens", check_count),
    Field("hidden_size", "embed_dim", check_count),
    Field("num_attention_heads", "num_heads", check_count),
    Field("num_hidden_layers", "num_layers", check_count),
    Field("intermediate_size", "hidden_dim", check_count),
)
SHARED_BY_LLAMAS = (
    Field("head_dim", "head_dim", count_or_null, None),
    Field("hidden_act", "activation", one_of({"silu": "swiglu", "swish": "swiglu"}), "silu"),
    Field("rms_norm_eps", "eps", EPS, 1e-6),
    Field("rope_parameters", "rope", rope),
    Field("tie_word_embeddings", "tied", check_flag, False),
)
WHOLE = "rope_parameters"  # the name under which a field is given the whole config


def norm_of_heads(name: str, value: Any) -> QKNormOptions:
    """Read the eps of the norms of queries and keys, head by head."""
    return QKNormOptions("heads", EPS(name, value))


def norm_of_all_heads(name: str, value: Any) -> QKNormOptions:
    """Read the eps of the norms of queries and keys, over all heads together."""
    return QKNormOptions("projection", EPS(name, value))


def without_experts(name: str, config: Any) -> None:
    """Raise a ConfigError if any layer of DeepSeek's has experts."""
    L = check_count("num_hidden_layers", config.get("num_hidden_layers"))
    dense = check_count("first_k_dense_replace", config.get("first_k_dense_replace", 3), least=0)
    if dense < L:
        raise ConfigError(
            f"first_k_dense_replace: expected at least num_hidden_layers={L}, because layers of "
            f"experts are not supported; got {dense}"
        )


def rope_of_deepseek(name: str, config: Any) -> RopeOptions:
    """Read the rotation of the part of a head that is rotated."""
    interleaved = check_flag("rope_interleave", config.get("rope_interleave", True))
    return rope_of_whole_heads(config)._replace(interleaved=interleaved)


def scale_of_deepseek(name: str, config: Any) -> float:
    """Return the scale of the scores: of a whole head, and squared for YaRN's longer texts."""
    latent, scaling = latent_of_deepseek(name, config), rope_from_config(config).scaling
    factor = 1.0
    if isinstance(scaling, YarnScaling) and scaling.mscale_all_dim:
        factor = yarn_mscale(scaling.factor, scaling.mscale_all_dim)
    return factor**2 / math.sqrt(latent.nope_dim + latent.rope_dim)


def latent_of_deepseek(name: str, config: Any) -> LatentOptions:
    """Read the widths of latents and heads."""
    names = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
             "v_head_dim": 128, "q_lora_rank": 1536}  # fmt: skip
    found = LatentOptions(*(check_count(each, config.get(each, n)) for each, n in names.items()))
    if config.get("head_dim") not in (None, found.rope_dim):  # by which they make the frequencies
        raise ConfigError(
            f"head_dim: expected {found.rope_dim}, as qk_rope_head_dim has; "
            f"got {describe(config['head_dim'])}"
        )
    return found


def experts_of_gpt_oss(name: str, config: Any) -> ExpertOptions:
    """Read how many experts there are and are chosen, and the numbers of their activation."""
    E, C = config.get("num_local_experts", 128), config.get("num_experts_per_tok", 4)
    if check_count("num_experts_per_tok", C) > check_count("num_local_experts", E):
        raise ConfigError(f"num_experts_per_tok: expected at most num_local_experts={E}; got {C}")
    limit, alpha = config.get("swiglu_limit", 7.0), config.get("swiglu_alpha", 1.702)
    check_number("swiglu_limit", limit, positive=True)
    return ExpertOptions(E, C, limit, check_number("swiglu_alpha", alpha, positive=True))


def rope_of_gpt_oss(name: str, config: Any) -> RopeOptions:
    """Read the rotation, which is YaRN's unless the config says something else."""
    found = dict(config)
    if found.get("rope_theta") is None:
        found["rope_theta"] = 150000.0
    if found.get("rope_scaling") is None and found.get("rope_parameters") is None:
        found["rope_parameters"] = {"rope_type": "yarn", "factor": 32.0, "truncate": False,
                                    "original_max_position_embeddings": 4096}  # fmt: skip
    return rope_of_whole_heads(found)


GEMMAS = (
    Field("head_dim", "head_dim", check_count, 256),
    Field("num_key_value_heads", "num_kv_heads", check_count, 4),
    Field("hidden_activation", "activation", one_of({"gelu_pytorch_tanh": "geglu_tanh"}),
          "gelu_pytorch_tanh"),
    Field("rms_norm_eps", "eps", EPS, 1e-6),
    Field("tie_word_embeddings", "tied", check_flag, True),
    Field("hidden_size", "embedding_scale", sqrt),
    Field("query_pre_attn_scalar", "scale", inverse_sqrt, 256),
    Field("attention_bias", "", only(False), False),
    Field("use_bidirectional_attention", "", off, None),
)  # fmt: skip
QWENS = (
    *SIZES,
    *SHARED_BY_LLAMAS[1:3],
    Field("head_dim", "head_dim", check_count, 256),
    Field("attention_bias", "", only(False), False),
    Field("tie_word_embeddings", "tied", check_flag, False),
    Field("rms_norm_eps", "qk_norm", norm_of_heads, 1e-6),
    Field(WHOLE, "rope", partly_rotated),
    Field(WHOLE, "delta", mixers),
)
FIELDS: dict[str, tuple[Field, ...]] = {  # by the model_type in config.json
    "bert": (
        *SIZES,
        Field("type_vocab_size", "num_segments", check_count, 2),
        Field("hidden_act", "activation", one_of(ACTIVATIONS), "gelu"),
        Field("layer_norm_eps", "eps", EPS, 1e-12),
        Field("position_embedding_type", "", one_of({"absolute": None}), "absolute"),
        Field("is_decoder", "", only(False), False),
    ),
    "gpt2": (
        Field("vocab_size", "vocab_size", check_count),
        Field("n_positions", "max_tokens", check_count),
        Field("n_embd", "embed_dim", check_count),
        Field("n_head", "num_heads", check_count),
        Field("n_layer", "num_layers", check_count),
        *(field._replace(default=SPARE) for field in SIZES[1:5]),
        Field("n_inner", "hidden_dim", count_or_null, None),
        Field("activation_function", "activation", one_of(ACTIVATIONS), "gelu_new"),
        Field("layer_norm_epsilon", "eps", EPS, 1e-5),
        Field("tie_word_embeddings", "tied", check_flag, True),
        Field("scale_attn_weights", "", only(True), True),
        Field("scale_attn_by_inverse_layer_idx", "", only(False), False),
        Field("add_cross_attention", "", only(False), False),
    ),
    "llama": (  # a sliding_window in its config changes nothing there, and nothing here
        *SIZES,
        *SHARED_BY_LLAMAS,
        Field("num_key_value_heads", "num_kv_heads", count_or_null, None),
        Field("attention_bias", "bias", check_flag, False),
        Field("mlp_bias", "bias", check_flag, False),
    ),
    "mistral": (
        *SIZES,
        *SHARED_BY_LLAMAS,
        Field("num_key_value_heads", "num_kv_heads", count_or_null, 8),
        Field("sliding_window", "", window, 4096),
        Field(WHOLE, "window", windows_of_mistral),
    ),
    "qwen3": (
        *SIZES,
        *SHARED_BY_LLAMAS[1:],
        Field("head_dim", "head_dim", check_count, 128),
        Field("num_key_value_heads", "num_kv_heads", count_or_null, 32),
        Field("attention_bias", "", only(False), False),
        Field(WHOLE, "window", windows_of_qwen3),
        Field("rms_norm_eps", "qk_norm", norm_of_heads, 1e-6),
    ),
    "gemma2": (
        *SIZES,
        *GEMMAS,
        Field("rope_parameters", "rope", rope),
        Field("final_logit_softcapping", "logit_softcap", number_or_null, 30.0),
        Field("attn_logit_softcapping", "softcap", number_or_null, 50.0),
        Field(WHOLE, "window", windows(lambda i: i % 2 == 1)),
    ),
    "gemma3_text": (
        *SIZES,
        *GEMMAS,
        Field(WHOLE, "rope", ropes_of_gemma3),
        Field("final_logit_softcapping", "logit_softcap", number_or_null, None),
        Field("attn_logit_softcapping", "", null, None),  # which their model ignores
        Field(WHOLE, "window", windows_of_gemma3),
        Field("rms_norm_eps", "qk_norm", norm_of_heads, 1e-6),
    ),
    "deepseek_v3": (
        *SIZES,
        *SHARED_BY_LLAMAS[1:3],
        Field("tie_word_embeddings", "tied", check_flag, False),
        Field("attention_bias", "", only(False), False),
        Field(WHOLE, "", without_experts),
        Field(WHOLE, "rope", rope_of_deepseek),
        Field(WHOLE, "scale", scale_of_deepseek),
        Field(WHOLE, "latent", latent_of_deepseek),
    ),
    "gpt_oss": (  # its code does not read hidden_act
        *SIZES,
        Field("head_dim", "head_dim", check_count, 64),
        Field("num_key_value_heads", "num_kv_heads", count_or_null, 8),
        Field("rms_norm_eps", "eps", EPS, 1e-5),
        Field("tie_word_embeddings", "tied", check_flag, False),
        Field("attention_bias", "bias", check_flag, True),
        Field(WHOLE, "rope", rope_of_gpt_oss),
        Field(WHOLE, "window", windows(lambda i: i % 2 == 1, 128)),
        Field(WHOLE, "experts", experts_of_gpt_oss),
    ),
    "qwen3_next": (
        *QWENS,
        Field("num_key_value_heads", "num_kv_heads", check_count, 2),
        Field(WHOLE, "", without_experts_of_qwen),
    ),
    "qwen3_5_text": (*QWENS, Field("num_key_value_heads", "num_kv_heads", check_count, 4)),
    "olmo2": (
        *SIZES,
        *(each._replace(default=1e-5) if each.name == "rms_norm_eps" else each
          for each in SHARED_BY_LLAMAS[1:]),
        Field("num_key_value_heads", "num_kv_heads", count_or_null, None),
        Field("attention_bias", "", only(False), False),
        Field("rms_norm_eps", "qk_norm", norm_of_all_heads, 1e-5),
    ),
}  # fmt: skip


NOT_COVERED = {  # kinds of models that many ask for, and what they have that is missing here
    "mixtral": EXPERTS, "qwen3_moe": EXPERTS, "deepseek_v2": EXPERTS,
    "qwen3_5": "a part that reads pictures, which is not supported; a qwen3_5_text has none",
    "gemma3": "a part that reads pictures, which is not supported; a gemma3_text has none",
    "t5": "a stack of its own, which is not supported; its bias is relative_bias_forward",
}  # fmt: skip


class ModelConfig:
    """The config.json in a model's folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        values = read_json(self.path)
        self.values = values | {"rope_parameters": values}  # with all that a rotation depends on

    def read(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        """Return the options that the fields of a table become, or raise a FileError."""
        try:
            return read_fields(self.values, fields)
        except ConfigError as reason:
            raise FileError(f"{self.path}: {reason}") from reason

    def read_kind(self) -> str:
        """Return the kind of its model, or raise a FileError."""
        kind = self.values.get("model_type")
        if isinstance(kind, str) and kind in NOT_COVERED:
            raise FileError(f"{self.path}: model_type: {kind} has {NOT_COVERED[kind]}")
        if self.values.get("quantization_config") is not None:
            raise FileError(
                f"{self.path}: quantization_config: expected none, because packed params are not "
                f"supported; got {describe(self.values['quantization_config'])}; use a copy in "
                "bfloat16"
            )
        kinds = {kind: kind for kind in FIELDS}
        return self.read((Field("model_type", "kind", one_of(kinds)),))["kind"]
