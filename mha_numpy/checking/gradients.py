"""gradcheck: compare a hand-written backward with numbers computed without it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checking.analytic import analytic_gradients, run_twice
from mha_numpy.checking.derivatives import Pair, Probe, Slopes, make_probes
from mha_numpy.checking.layers import Inputs, pair_of
from mha_numpy.checking.more_modes import check_double_backward, check_jvp
from mha_numpy.checking.report import ArrayReport, GradcheckReport
from mha_numpy.checks import check_count, check_number
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.progress import progress

# method: (relative to the derivative itself, relative to the largest of the whole set).
# Central differences of attention are off by about 4e-11 of the largest gradient, complex
# steps by 1e-15; an error of 0.1 % in one element is far outside either.
TOLERANCES = {"central": (1e-5, 1e-8), "complex step": (1e-9, 1e-12)}
TINY = float(np.finfo(float).tiny)


@explained
def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any] | Inputs,
    inputs: Inputs | None = None,
    *,
    d_out: Array | None = None,
    rng: int | np.random.Generator = 0,
    h: float = 1e-5,
    max_full: int = 1024,
    samples: int = 128,
    directions: int = 8,
    tolerances: Mapping[str, tuple[float, float]] = TOLERANCES,
    jvp: Callable[..., Any] | None = None,
    double_backward: Callable[..., Any] | None = None,
) -> GradcheckReport:
    """Compare every gradient that `backward` returns with numerical derivatives of `forward`.

    ``gradcheck(layer, inputs)`` checks a layer or a model: all its inputs and all its params.
    The scalar that is differentiated is ``sum(out * d_out)`` for a random `d_out`.

    Parameters
    ----------
    forward : callable, or Layer
        ``forward(*inputs)``, or ``forward(**inputs)`` where inputs is a dict; returns ``out`` or
        ``(out, cache)``. It has to compute in float64, leave its inputs as they are, and return the
        same each time (bind a dropout mask), or an error says what is missing. A layer is copied
        for each forward, and stays as it is.
    backward : callable, or the inputs of a layer
        ``backward(d_out, cache)``, or ``backward(d_out, *inputs)`` where forward returns no
        cache. Returns the gradients in the order of the inputs, or by name: a NamedTuple or dict
        with fields ``d_<name>``.
    inputs : dict or sequence
        All inputs. Float arrays of any dtype are checked, in float64. Inputs may be
        nested: a NamedTuple of params is one input, and its gradient is a NamedTuple too. Bind
        inputs that are not to be checked to `forward` with ``functools.partial``.
    d_out : float array, optional
        Upstream gradient; default random. Ones would hide many mistakes.
    rng : int or numpy Generator
        Seed of `d_out`, samples and directions.
    h : float
        Step of the central difference, times the size of the number moved, or of the array's
        numbers if that is larger.
    max_full : int
        Arrays up to this size are checked element by element.
    samples, directions : int
        In each larger array: how many elements, and how many random directions, each of which
        moves every element.
    tolerances : dict
        For "central" and "complex step": a derivative n passes if ``|analytic - n| <= rtol |n|
        + atol * scale``, where scale is the largest of the whole set, or if rounding of the
        output could explain the difference, so a true gradient of zero passes. Directions have a
        hundredth of rtol. If both methods run, the complex step decides, because it has no
        truncation error.
    jvp : callable, optional
        Forward mode, ``jvp(tangents, cache)``, or ``jvp(tangents, *inputs)`` without a cache. It
        returns how fast the output moves, or a tuple that begins with that. The tangents come as
        the inputs do: by name, or in order. One input moves at a time, in a random direction.
    double_backward : callable, optional
        ``double_backward(d_grads, d_out, cache)``, or with the inputs in place of the cache: pulls
        gradients of all gradients back, to ``d_d_out`` and a ``d_<name>`` for each input, by name.

    Returns
    -------
    GradcheckReport
        True if all passed; prints as a table. It has complex-step rows if forward turns out to be
        complex-safe; otherwise the report's note says why not. Within h of a kink, such as ReLU's
        at 0, no numerical derivative is right, so even a right gradient fails there, and the note
        says which input to move.

    Notes
    -----
    For each element a central difference costs two forward passes, and its error is O(h^2) and
    rounding over h. A complex step, ``Im f(x + i h) / h``, costs one pass and has only rounding.
    A model has many arrays that are not larger than `max_full`: one of 8,000 params takes two
    minutes. With ``max_full=0, samples=0, directions=1`` each array moves once, along one random
    direction, which shows a wrong gradient anywhere in it; that takes half a second.
    Sources: Squire and Trapp 1998; CS231n's notes on gradient checks.

    Examples
    --------
    >>> def forward(x):
    ...     return x**2, x
    >>> def backward(d_out, x):
    ...     return (2 * x * d_out,)
    >>> report = gradcheck(forward, backward, {"x": np.array([1.0, -3.0])})
    >>> bool(report), report.max_error < 1e-9
    (True, True)
    >>> bool(gradcheck(forward, lambda d_out, x: (x * d_out,), {"x": np.array([1.0, -3.0])}))
    False

    A layer, whose params are checked as well:

    >>> from mha_numpy.layers import Linear
    >>> report = gradcheck(Linear(3, 2, rng=0), {"x": np.array([[1.0, 2.0, 4.0]])})
    >>> bool(report), list(report.errors("central"))
    (True, ['x', 'params.w', 'params.b'])
    """
    check_number("h", h, positive=True)
    for name, count in (("max_full", max_full), ("samples", samples), ("directions", directions)):
        check_count(name, count, least=0)
    if samples + directions == 0:
        raise ConfigError("samples: expected samples + directions >= 1; got 0")
    tolerances = {**TOLERANCES, **tolerances}
    rng = np.random.default_rng(rng)
    forward, backward, inputs = pair_of(forward, backward, inputs)
    pair = Pair(forward, inputs)
    out, cache = run_twice(pair)
    d_out = rng.normal(size=out.shape) if d_out is None else as_float_array("d_out", d_out)
    if d_out.shape != out.shape:
        raise ShapeError(f"d_out: expected {out.shape}, as forward's output; got {d_out.shape}")
    analytic = analytic_gradients(pair, backward, d_out, cache)

    probes = [
        probe
        for name, array in pair.arrays.items()
        for probe in make_probes(name, array, rng, max_full, samples, directions)
    ]
    slopes = Slopes(pair, out, d_out, h)
    methods = {"central": slopes.central, "complex step": slopes.complex_step}
    notes = [slopes.why_no_complex_step(rng)]
    if notes[0]:
        del methods["complex step"]
    numeric = {
        method: np.array([
            derivative(probe)
            for probe in progress(probes, len(probes), f"checking gradients, {method}")
        ])
        for method, derivative in methods.items()
    }  # fmt: skip
    noise = np.array([slopes.noise(probe) for probe in probes])
    lost = ""
    if "complex step" in methods:
        lost = _lost_by_complex_step(slopes, probes, numeric, noise, tolerances["central"])
        if lost:
            del numeric["complex step"]
    worst_noise = noise.max(initial=0)
    if "complex step" not in numeric and worst_noise > 1e-3 * _largest(numeric["central"]) > 0:
        notes.append(f"rounding hides differences below {worst_noise:.0e}")

    rows = []
    for name, gradient in analytic.items():
        here = [i for i, probe in enumerate(probes) if probe.name == name]
        some = [probes[i] for i in here]
        for method, found in numeric.items():
            share = 1 if method == "central" else h  # a complex step's noise is not divided by h
            compared = (some, found[here], noise[here] * share)
            rows.append(_row(method, name, gradient, compared, tolerances[method], _largest(found)))
    exact = {row.name: row.passed for row in rows if row.method == "complex step"}
    rows = [replace(row, passed=exact.get(row.name, row.passed)) for row in rows]
    is_exact = "complex step" in numeric
    of_more_modes = is_exact, tolerances["complex step" if is_exact else "central"], rng
    if jvp is not None:
        rows += check_jvp(slopes, jvp, cache, *of_more_modes)
    if double_backward is not None:
        rows += check_double_backward(slopes, backward, double_backward, cache, *of_more_modes)
    kinks = _kinks(rows, slopes, probes)
    if lost and lost not in kinks:
        notes.append(f"no complex step: forward does not carry it through from {lost}")
    if kinks:
        notes.append(f"the slope jumps within h of {', '.join(kinks.values())}: move the input")
    return GradcheckReport(rows, "; ".join(filter(None, notes)))


def _largest(derivatives: Array) -> float:
    return float(abs(derivatives[np.isfinite(derivatives)]).max(initial=0))


def _lost_by_complex_step(
    slopes: Slopes,
    probes: list[Probe],
    numeric: dict[str, Array],
    noise: Array,
    tolerance: tuple[float, float],
) -> str:
    """Return the name of an array whose complex steps miss a part of forward, or "".

    If the methods disagree, either the central difference is truncated, and a quarter of the step
    brings it sixteen times closer, or forward has dropped a part of the complex step.
    """
    central, stepped = numeric["central"], numeric["complex step"]
    off = np.abs(central - stepped)
    allowed = tolerance[0] * np.abs(central) + np.maximum(tolerance[1] * _largest(central), noise)
    suspects = [int(n) for n in np.argsort(-off) if off[n] > allowed[n]]
    for name in slopes.pair.arrays:
        for n in [n for n in suspects if probes[n].name == name][:8]:
            closer = slopes.central(probes[n], share=1 / 4)
            if abs(closer - stepped[n]) > off[n] / 4 + 4 * noise[n]:
                return name
    return ""


def _kinks(rows: list[ArrayReport], slopes: Slopes, probes: list[Probe]) -> dict[str, str]:
    """Return the worst place of each array that fails there because the slope jumps."""
    by_place = {(probe.name, probe.label): probe for probe in probes}
    places = {}
    for row in rows:
        if row.method == "central" and not row.passed:
            probe = by_place[row.name, row.worst]
            if slopes.is_kink(probe, abs(row.analytic - row.numeric)):
                at = f" along {row.worst}" if isinstance(row.worst, str) else list(row.worst) or ""
                places[row.name] = f"{row.name}{at}"
    return places


def _row(
    method: str,
    name: str,
    gradient: Array,
    compared: tuple[list[Probe], Array, Array],
    tolerance: tuple[float, float],
    scale: float,
) -> ArrayReport:
    probes, numeric, noise = compared
    if not probes:
        return ArrayReport(name, gradient.shape, method, "none", True, "-", 0, 0, 0)
    rtol = np.array([tolerance[0] * (1 if p.direction is None else 0.01) for p in probes])
    analytic = np.array([probe.along(gradient) for probe in probes])
    off = np.abs(analytic - numeric)
    off[np.isnan(off)] = np.inf
    allowed = rtol * np.abs(np.nan_to_num(numeric)) + np.maximum(tolerance[1] * scale, noise)
    excess = off / np.maximum(allowed, TINY)
    worst = int(excess.argmax())
    directions = sum(probe.direction is not None for probe in probes)
    elements = len(probes) - directions
    checked = f"all {gradient.size}"
    if elements < gradient.size or directions:
        checked = f"{elements} of {gradient.size}"
        checked += f" + {directions} directions" if directions else ""
    return ArrayReport(
        name, gradient.shape, method, checked, bool(excess[worst] <= 1), probes[worst].label,
        float(analytic[worst]), float(numeric[worst]),
        error=float(off.max() / max(scale, noise.max() / tolerance[1], TINY)),
    )  # fmt: skip
