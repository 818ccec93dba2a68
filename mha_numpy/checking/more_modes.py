"""Forward mode and double backward, checked along random directions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.analytic import call_backward
from mha_numpy.checking.derivatives import Pair, Slopes, random_direction
from mha_numpy.checking.report import ArrayReport
from mha_numpy.checking.trees import leaves, replaced, without_d
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, MhaError, ShapeError

Tolerance = tuple[float, float]


def check_jvp(
    slopes: Slopes, jvp: Callable[..., Any], cache: tuple[Any, ...], is_exact: bool,
    tolerance: Tolerance, rng: np.random.Generator,
) -> list[ArrayReport]:  # fmt: skip
    """Compare the tangent of the output with the slopes of every output, for each input."""
    pair = slopes.pair
    found = {}
    for name, array in pair.arrays.items():
        probe = random_direction(name, array, rng, "a direction")
        direction = np.asarray(probe.direction)
        tangents = _like_inputs(pair, {name: direction.copy()})
        result = _call(pair, "jvp", jvp, cache, tangents)
        pair.check_untouched("jvp")
        if not np.array_equal(leaves(tangents)[name], direction):
            raise ConfigError("tangents: jvp changes them in place; let it work on a copy")
        first = result[0] if isinstance(result, tuple) and result else result
        out_dot = as_float_array("out_dot", first)
        if out_dot.shape != slopes.out.shape:
            raise ShapeError(
                f"out_dot: expected {slopes.out.shape}, as out; jvp returned {out_dot.shape}"
            )
        found[name] = probe, np.asarray(out_dot, np.float64), slopes.outputs(probe, is_exact)
    scale = max(float(np.abs(slope).max(initial=0)) for _, _, slope in found.values())
    return [
        _row(name, "jvp", pair.arrays[name], out_dot, slope, tolerance, scale)
        for name, (_, out_dot, slope) in found.items()
    ]


def check_double_backward(
    slopes: Slopes, backward: Callable[..., Any], double_backward: Callable[..., Any],
    cache: tuple[Any, ...], is_exact: bool, tolerance: Tolerance, rng: np.random.Generator,
) -> list[ArrayReport]:  # fmt: skip
    """Compare the gradients of ``sum(d_grads * grads)`` with its slopes; d_out is an input, too."""
    pair, d_out = slopes.pair, slopes.d_out
    d_grads = {name: rng.normal(size=x.shape) for name, x in pair.arrays.items()}
    given = _like_inputs(pair, d_grads), d_out.copy()
    result = _call(pair, "double_backward", double_backward, cache, *given)
    analytic = _double_gradients(pair, result)

    def penalty(**moved: Any) -> Array:
        dtype = np.result_type(*moved.values())  # if one makes a complex step, all are complex
        moved = {name: x.astype(dtype) for name, x in moved.items()}
        moved_out = moved.pop("d_out")
        _, its_cache = pair.run(moved)
        grads = call_backward(pair, backward, moved_out, its_cache, moved)
        return np.asarray(sum((d_grads[name] * grads[name]).sum() for name in d_grads))

    of_penalty = Pair(penalty, {**pair.arrays, "d_out": d_out})
    numeric = Slopes(of_penalty, np.zeros(()), np.ones(()), slopes.h)
    found = {}
    for name, array in of_penalty.arrays.items():
        probe = random_direction(name, array, rng, "a direction")
        if analytic.get(name) is None:
            raise ConfigError(f"d_{name}: double_backward returns no such gradient")
        gradient = as_float_array(f"d_{name}", analytic[name])
        if gradient.shape != array.shape:
            raise ShapeError(f"d_{name}: expected {array.shape}; got {gradient.shape}")
        along = np.asarray(probe.along(gradient.astype(np.float64)))
        found[name] = along, numeric.outputs(probe, is_exact)
    scale = max(abs(float(slope)) for _, slope in found.values())
    return [
        _row(name, "double backward", of_penalty.arrays[name], along, slope, tolerance, scale)
        for name, (along, slope) in found.items()
    ]


def _call(
    pair: Pair, name: str, function: Callable[..., Any], cache: tuple[Any, ...], *given: Any
) -> Any:
    """Call a function with the cache, or with the inputs if there is none."""
    try:
        return function(*given, *cache) if cache else pair.call(function, {}, *given)
    except TypeError as error:
        if isinstance(error, MhaError):
            raise
        first = "tangents" if name == "jvp" else "d_grads, d_out"
        convention = f"({first}, {'cache' if cache else '<the inputs as forward has them>'})"
        raise ConfigError(f"{name}: called as {name}{convention}, it raised: {error}") from error


def _double_gradients(pair: Pair, result: Any) -> dict[str, Any]:
    """Return the gradients by the names of the inputs, and that of d_out."""
    fields = result._asdict() if hasattr(result, "_asdict") else result
    if not isinstance(fields, Mapping) or "d_d_out" not in fields:
        raise ConfigError("double_backward: expected d_d_out and d_<name> of each input, by name")
    if not pair.by_keyword:  # in order, as the inputs are
        of_inputs = [x for name, x in fields.items() if not name.startswith("d_d_")]
        numbered = {f"d_{n}": x for n, x in enumerate(of_inputs)}
        fields = {"d_d_out": fields["d_d_out"], **numbered}
    return {without_d(name): x for name, x in leaves(dict(fields)).items()}


def _like_inputs(pair: Pair, moving: Mapping[str, Any]) -> Any:
    """Return tangents nested as the inputs, 0 but for what moves; what cannot move is left out."""
    dots: dict[str, Any] = {
        name: moving.get(name, np.zeros(x.shape)) for name, x in pair.arrays.items()
    }
    of_each: dict[str, Any] = {name: dots.get(name) for name in leaves(pair.inputs)}
    whole = replaced(pair.inputs, of_each)
    if not pair.by_keyword:
        return tuple(whole.values())
    can_move = {name.split(".")[0] for name in pair.arrays}
    return {name: tangent for name, tangent in whole.items() if name in can_move}


def _row(
    name: str, method: str, array: Array, analytic: Array, numeric: Array, tolerance: Tolerance,
    scale: float,
) -> ArrayReport:  # fmt: skip
    """Compare cell by cell; the worst one is named by its place in the output."""
    off = np.asarray(np.abs(analytic - numeric))
    off[np.isnan(off)] = np.inf
    rtol, atol = tolerance
    excess = off / np.maximum(rtol * np.abs(numeric) + atol * scale, np.finfo(float).tiny)
    worst = np.unravel_index(int(excess.argmax()), off.shape) if off.size else ()
    at = tuple(int(i) for i in worst)
    return ArrayReport(
        name, array.shape, method, "1 direction", bool((excess <= 1).all()), at,
        float(analytic[at]) if off.size else 0.0, float(numeric[at]) if off.size else 0.0,
        error=float(off.max(initial=0) / max(scale, np.finfo(float).tiny)),
    )  # fmt: skip
