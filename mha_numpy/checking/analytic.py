"""The results of a pair of functions: output, cache and gradients, matched to the inputs."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.derivatives import Pair
from mha_numpy.checking.trees import is_float_array, leaves, without_d
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, DTypeError, MhaError, ShapeError, describe


def run_twice(pair: Pair) -> tuple[Array, tuple[Any, ...]]:
    """Return forward's output and cache, or raise if they cannot be differentiated."""
    if not pair.arrays:
        raise ConfigError("inputs: expected at least one float array to check; got none")
    try:
        out, _ = pair.run({})
    except TypeError as error:
        if isinstance(error, MhaError):
            raise
        given = ", ".join(pair.inputs) if pair.by_keyword else f"<{len(pair.inputs)} inputs>"
        raise ConfigError(f"forward: called as forward({given}), it raised: {error}") from error
    pair.check_untouched("forward")
    again, cache = pair.run({})
    if not np.array_equal(out, again, equal_nan=True):
        raise ConfigError("forward: expected the same result every time; fix its seed or mask")
    if out.dtype != np.float64:
        raise DTypeError(
            f"forward: expected a float64 result for float64 inputs; got {out.dtype}: "
            "differences of narrower numbers are mostly rounding"
        )
    return out, cache


def analytic_gradients(
    pair: Pair, backward: Callable[..., Any], d_out: Array, cache: tuple[Any, ...]
) -> dict[str, Array]:
    """Return backward's gradients, by the names of the arrays."""
    given = d_out.copy()
    results = []
    for is_again in (False, True):
        if is_again:
            pair.run({})  # a layer wants a forward before each backward
        found = call_backward(pair, backward, given, cache)
        pair.check_untouched("backward")
        results.append({name: g if g is None else np.array(g) for name, g in found.items()})
    if not np.array_equal(given, d_out):
        raise ConfigError("d_out: backward changes it in place; let it work on a copy")
    found, again = results
    if found.keys() != again.keys() or not all(
        np.array_equal(np.asarray(gradient), np.asarray(again[name]), equal_nan=True)
        for name, gradient in found.items()
        if is_float_array(gradient)
    ):
        raise ConfigError(
            "backward: expected the same result every time; is something added up between calls, "
            "or the cache changed?"
        )
    for name, array in pair.arrays.items():
        gradient = found.get(name)
        if gradient is None:
            raise ConfigError(
                f"d_{name}: backward returns no such gradient; bind inputs that are not "
                "checked with functools.partial"
            )
        if gradient.shape != array.shape:
            raise ShapeError(f"d_{name}: expected {array.shape}, as {name}; got {gradient.shape}")
    return {name: np.asarray(found[name], dtype=np.float64) for name in pair.arrays}


def call_backward(
    pair: Pair,
    backward: Callable[..., Any],
    d_out: Array,
    cache: tuple[Any, ...],
    moved: Mapping[str, Array] | None = None,
) -> dict[str, Any]:
    """Return what backward returns, by the names of the inputs; some of which may have moved."""
    try:
        grads = backward(d_out, *cache) if cache else pair.call(backward, moved or {}, d_out)
    except TypeError as error:
        convention = "(d_out, cache)" if cache else "(d_out, <the inputs as forward has them>)"
        raise ConfigError(
            f"backward: called as backward{convention}, it raised: {error}"
        ) from error
    return _by_name(grads, pair)


def _by_name(grads: Any, pair: Pair) -> dict[str, Any]:
    """Match gradients to inputs: by name if they have names, else by order."""
    names = list(pair.inputs)
    if isinstance(grads, (np.ndarray, np.generic, float)):
        grads = (grads,)
    if isinstance(grads, Mapping) or hasattr(grads, "_asdict"):
        fields = grads if isinstance(grads, Mapping) else grads._asdict()
        given = {str(field).lower(): gradient for field, gradient in fields.items()}
        named = {
            name: given[f"{prefix}{name.lower()}"]
            for name in names
            for prefix in ("", "grad_", "d", "d_")
            if f"{prefix}{name.lower()}" in given
        }
        if not named and isinstance(grads, Mapping):
            raise ConfigError(f"backward: expected d_<name> of {names}; got {list(fields)}")
        named = named or dict(zip(names, fields.values(), strict=False))
    elif isinstance(grads, (tuple, list)):
        floats = [n for n in names if any(a.split(".")[0] == n for a in pair.arrays)]
        named = dict(zip(floats if len(grads) == len(floats) else names, grads, strict=False))
    else:
        raise ConfigError(f"backward: expected to return gradients; got {describe(grads)}")
    return {
        f"{name}.{without_d(inner)}" if inner else name: leaf
        for name, gradient in named.items()
        for inner, leaf in ({"": gradient} if name in pair.arrays else leaves(gradient)).items()
    }
