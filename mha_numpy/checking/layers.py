"""A layer as a pair of functions: its params are inputs, and backward returns all gradients."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from inspect import signature
from typing import Any

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

Inputs = Mapping[str, Any] | Sequence[Any]


def layer_of(function: Any) -> Any:
    """Return the layer that a function is, or that a method belongs to; None if there is none."""
    owner = getattr(function, "__self__", function)
    is_layer = all(hasattr(owner, name) for name in ("named_layers", "named_grads", "zero_grads"))
    return owner if is_layer else None


def pair_of(
    forward: Any, backward: Any, inputs: Inputs | None
) -> tuple[Callable[..., Any], Callable[..., Any], Inputs]:
    """Return forward, backward and inputs for `gradcheck`; a layer stands for both functions."""
    layer = layer_of(forward)
    if layer is None and inputs is None:
        raise ConfigError(
            "inputs: expected gradcheck(forward, backward, inputs), or gradcheck(layer, inputs); "
            f"got no inputs, and no layer but {describe(forward)}"
        )
    if layer is not None and inputs is not None and layer_of(backward) is layer:
        raise ConfigError(
            "backward: expected none with a layer, whose params are checked as well; got its own; "
            "write gradcheck(layer, inputs)"
        )
    given = backward if inputs is None else inputs
    if not isinstance(given, (Mapping, tuple, list)):
        raise ConfigError(f"inputs: expected a dict, tuple or list; got {describe(given)}")
    return (forward, backward, given) if given is inputs else _pair_of_layer(layer, given)


def _pair_of_layer(
    layer: Any, inputs: Inputs
) -> tuple[Callable[..., Any], Callable[..., Any], Mapping[str, Any]]:
    """Return a layer as functions without state, of its params and its inputs."""
    inputs = _by_name(layer, inputs)
    params = dict(layer.named_params())
    unused = deepcopy(layer).forget()  # its generators, too: the same numbers are dropped each time

    def forward(params: Mapping[str, Array], **inputs: Any) -> tuple[Any, Any]:
        used = deepcopy(unused)
        for place, part in used.named_layers():
            names = {name: f"{place}.{name}" if place else name for name in part.params}
            part.params = {name: params[dotted] for name, dotted in names.items()}
        return used(**inputs), used

    def backward(d_out: Array, used: Any) -> dict[str, Any]:
        used.zero_grads()
        d_inputs = used.backward(d_out)
        d_inputs = d_inputs if isinstance(d_inputs, tuple) else (d_inputs,)
        named = dict(zip(signature(layer.forward).parameters, d_inputs, strict=False))
        return {**named, "params": dict(used.named_grads())}

    return forward, backward, {**inputs, "params": params}


def _by_name(layer: Any, inputs: Inputs) -> Mapping[str, Any]:
    """Return a layer's inputs by the names that its forward gives them."""
    called = signature(layer.forward)
    try:
        if isinstance(inputs, Mapping):
            called.bind(**inputs)
            return inputs
        return called.bind(*inputs).arguments
    except TypeError as error:
        kind, names = type(layer).__name__, ", ".join(called.parameters)
        got = list(inputs) if isinstance(inputs, Mapping) else len(inputs)
        raise ConfigError(f"inputs: expected those of {kind}({names}); got {got}") from error
