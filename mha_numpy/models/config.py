"""A model's config.json: its fields, their valid values, and the options that they become here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.checks import check_choice, check_count, check_flag, check_integer, check_number
from mha_numpy.core import RopeOptions
from mha_numpy.errors import ConfigError, FileError, describe
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
    """Read how queries and keys are rotated: what is said of it is in several places."""
    return rope_from_config(config)


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
        Field("sliding_window", "window", window, 4096),
    ),
}


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
        kinds = {kind: kind for kind in FIELDS}
        return self.read((Field("model_type", "kind", one_of(kinds)),))["kind"]
