"""How a model rotates its queries and keys, from its config.json."""

from collections.abc import Mapping
from typing import Any

from mha_numpy.checks import check_choice, check_count, check_number
from mha_numpy.core import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ProportionalScaling,
    RopeOptions,
    YarnScaling,
)
from mha_numpy.core.rope_scaling import check_scaling
from mha_numpy.errors import ConfigError, describe

SCALINGS: dict[str, Any] = {  # by rope_type; the fields of a scaling are named as in a config
    "default": None, "linear": LinearScaling, "dynamic": DynamicScaling, "yarn": YarnScaling,
    "longrope": LongRopeScaling, "su": LongRopeScaling, "llama3": Llama3Scaling,
    "proportional": ProportionalScaling,
}  # fmt: skip


def rope_from_config(config: Mapping[str, Any], layer_type: str | None = None) -> RopeOptions:
    """Return the rotation that the config of a model in transformers describes.

    Parameters
    ----------
    config : mapping
        What is in config.json: `rope_parameters`, or `rope_scaling` with `rope_theta`, which is
        the older spelling, and the sizes that they need.
    layer_type : str, optional
        Such as "sliding_attention", if each type of layer has its own rotation.

    Returns
    -------
    RopeOptions
        Its `interleaved` is False: a config does not say which features form a pair. Use
        ``._replace(interleaved=True)`` for a model with the layout of GPT-J.

    Raises
    ------
    ConfigError
        If the rotation is of an unknown type, or the config lacks what its type needs.

    Examples
    --------
    >>> old = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}
    >>> rope_from_config(old).scaling
    LinearScaling(factor=4.0)
    >>> new = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}}
    >>> rope_from_config(new) == rope_from_config(old)
    True
    """
    given = _parameters(config, layer_type)
    names = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}  # of GPT-NeoX
    for name, older in names.items():
        given.setdefault(name, config.get(name, config.get(older)))
    base, share = given["rope_theta"], given["partial_rotary_factor"]
    base = 10000.0 if base is None else check_number("rope_theta", base, least=1.0)
    share = 1.0 if share is None else check_number("partial_rotary_factor", share, positive=True)
    rope_type = check_choice("rope_type", given.get("rope_type", given.get("type")), SCALINGS)
    kind = SCALINGS[rope_type]

    rotary_dim = None
    if share != 1 and kind is not ProportionalScaling:
        rotary_dim = int(_head_dim(config) * share)
    if kind is None:
        return RopeOptions(base, rotary_dim)
    if "alpha" in given:  # of HunYuan: a factor on the base, in its model's code
        raise ConfigError(f"rope_parameters: expected no alpha with {rope_type!r}; got alpha")
    scaling = _scaling(config, given | {"share": share}, kind, rope_type, layer_type)
    width = _head_dim(config) if kind is LongRopeScaling and rotary_dim is None else rotary_dim
    check_scaling(scaling, width or 0, base)
    return RopeOptions(base, rotary_dim, scaling=scaling)


def _parameters(config: Mapping[str, Any], layer_type: str | None) -> dict[str, Any]:
    """Return the parameters of the rotation, or of that of one type of layer."""
    found = config.get("rope_scaling") or config.get("rope_parameters")
    found = {} if found is None else found
    if layer_type is not None and isinstance(found, dict):
        found = found[check_choice("layer_type", layer_type, found)]
    if not isinstance(found, dict):
        raise ConfigError(f"rope_parameters: expected an object; got {describe(found)}")
    if found and all(isinstance(each, dict) for each in found.values()):
        raise ConfigError(
            f"rope_parameters: expected the rotation of one type of layer; got those of "
            f"{', '.join(found)}; write layer_type={next(iter(found))!r}"
        )
    return {"type": "default"} | found


def _scaling(
    config: Mapping[str, Any], given: dict[str, Any], kind: Any, rope_type: str,
    layer_type: str | None,
) -> Any:  # fmt: skip
    """Return the scaling, whose fields have the values that are given, or that follow."""
    longest = config.get("max_position_embeddings")
    if "original_length" in kind._fields and kind is not DynamicScaling:
        name = "original_max_position_embeddings"
        places = [given, config] if layer_type else [config, given]  # Phi-3 has it beside them
        lengths = [place[name] for place in places if place.get(name) is not None]
        original = check_count(name, [*lengths, longest][0])
        given["original_length"] = original
        if kind in (YarnScaling, LongRopeScaling) and given.get("factor") is None:
            given["factor"] = check_count("max_position_embeddings", longest) / original
    elif kind is DynamicScaling:
        given["original_length"] = check_count("max_position_embeddings", longest)
    fields = {name: given[name] for name in kind._fields if given.get(name) is not None}
    for name in kind._fields:
        if name not in fields and name not in kind._field_defaults:
            raise ConfigError(f"rope_parameters: expected {name} for {rope_type!r}; got none")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


def _head_dim(config: Mapping[str, Any]) -> int:
    """Return the width of a head, or of its rotated part if that is separate."""
    for name in ("qk_rope_head_dim", "head_dim"):
        if config.get(name) is not None:
            return check_count(name, config[name])
    D, H = (check_count(name, config.get(name)) for name in ("hidden_size", "num_attention_heads"))
    return D // H
