"""gradcheck: compare a hand-written backward with numbers that owe nothing to it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mha_numpy.check.derivatives import (
    Pair,
    Probe,
    central_difference,
    complex_step,
    is_complex_safe,
    make_probes,
)
from mha_numpy.check.report import ArrayReport, GradcheckReport
from mha_numpy.check.trees import leaves, without_d
from mha_numpy.core.dtypes import Array
from mha_numpy.core.shapes import check_count, check_number
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from mha_numpy.progress import progress

# method: (relative to the derivative itself, relative to the largest of the whole set).
# Central differences of attention are off by about 4e-11 of the largest gradient, complex
# steps by 1e-15; an error of 0.1 % in one element is far outside either.
EPSILON, TINY = np.finfo(float).eps, np.finfo(float).tiny
TOLERANCES = {"central": (1e-5, 1e-8), "complex step": (1e-9, 1e-12)}


def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    d_out: Array | None = None,
    rng: int | np.random.Generator = 0,
    h: float = 1e-5,
    max_full: int = 1024,
    samples: int = 128,
    directions: int = 8,
    tolerances: Mapping[str, tuple[float, float]] = TOLERANCES,
) -> GradcheckReport:
    """Compare every gradient that `backward` returns with numeric derivatives of `forward`.

    The scalar that is differentiated is ``sum(out * d_out)`` for a random `d_out`.

    Parameters
    ----------
    forward : callable
        ``forward(*inputs)``, or ``forward(**inputs)`` where inputs is a dict; returns ``out`` or
        ``(out, cache)``.
    backward : callable
        ``backward(d_out, cache)``, or ``backward(d_out, *inputs)`` where forward returns no
        cache. Returns the gradients in the order of the inputs, or by name: a NamedTuple or dict
        with fields ``d_<name>``.
    inputs : dict or sequence
        All inputs; those that are float arrays are checked, in float64, whatever their
        dtype. May be nested: a NamedTuple of params is one input, and its gradient a NamedTuple
        likewise. What shall not be checked goes into `forward` by ``functools.partial``.
    d_out : float array, optional
        Upstream gradient; default random. Ones would hide many mistakes.
    rng : int or numpy Generator
        Seed of `d_out`, samples and directions.
    h : float
        Step of the central difference, times ``max(1, |x|)``.
    max_full : int
        Arrays up to this size are checked element by element.
    samples, directions : int
        In a larger array: how many elements, and how many random directions, each of which
        takes part of every element.
    tolerances : dict
        For "central" and "complex step": a derivative n passes if ``|analytic - n| <= rtol |n|
        + atol * scale``, where scale is the largest of the whole set (or what the output's
        rounding can feign, where that is larger): so a true gradient of zero passes. Directions
        have a hundredth of rtol.

    Returns
    -------
    GradcheckReport
        True if all passed; prints as a table. Complex-step rows are there where forward is
        complex-safe, which is tried out; else the report's note says why they are not.

    Raises
    ------
    ShapeError, DTypeError
        A gradient has not the shape of its array, or forward does not keep float64.
    ConfigError
        There is nothing to check, a gradient is missing, an input is changed in place, or forward
        gives another result the second time.

    Notes
    -----
    A central difference costs two forward passes for each element and errs by O(h^2) and by
    rounding over h; a complex step, ``Im f(x + i h) / h``, one pass, and by rounding alone.
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
    """
    check_number("h", h, positive=True)
    for name, count in (("max_full", max_full), ("samples", samples), ("directions", directions)):
        check_count(name, count, least=0)
    rng = np.random.default_rng(rng)
    pair = Pair(forward, inputs)
    out, cache = pair.run()
    _check_forward(pair, out)
    d_out = rng.normal(size=out.shape) if d_out is None else np.asarray(d_out, dtype=np.float64)
    if d_out.shape != out.shape:
        raise ShapeError(
            f"d_out: expected {out.shape}, the shape of forward's output; got {d_out.shape}"
        )
    analytic = _analytic_gradients(pair, backward, d_out, cache)

    probes = {
        name: make_probes(array, rng, max_full, samples, directions)
        for name, array in pair.arrays.items()
    }
    methods: dict[str, Callable[..., float]] = {
        "central": lambda name, probe: central_difference(pair, d_out, name, probe, h),
        "complex step": lambda name, probe: complex_step(pair, d_out, name, probe),
    }
    reason = is_complex_safe(pair, d_out, rng, h)
    if reason:
        del methods["complex step"]

    flat = [(name, probe) for name, some in probes.items() for probe in some]
    rows: list[ArrayReport] = []
    for method, derivative in methods.items():
        label = f"checking gradients, {method}"
        numeric = [derivative(name, probe) for name, probe in progress(flat, len(flat), label)]
        noise = 4 * EPSILON * np.linalg.norm(out * d_out) / (h if method == "central" else 1)
        rows += _compare(pair, probes, analytic, numeric, method, tolerances[method], noise)
    rows.sort(key=lambda row: list(pair.arrays).index(row.name))
    return GradcheckReport(rows, reason)


def _check_forward(pair: Pair, out: Array) -> None:
    """Raise if the forward's result is no ground to differentiate on."""
    if not pair.arrays:
        raise ConfigError("inputs: expected at least one float array to check; got none")
    if out.dtype != np.float64:
        raise DTypeError(
            f"forward: expected a float64 result for float64 inputs; got {out.dtype}: "
            "differences of narrower numbers are mostly rounding"
        )
    if not np.array_equal(out, pair.run()[0], equal_nan=True):
        raise ConfigError(
            "forward: expected the same result every time; fix its seed or dropout mask"
        )


def _analytic_gradients(
    pair: Pair, backward: Callable[..., Any], d_out: Array, cache: tuple[Any, ...]
) -> dict[str, Array]:
    """Return the gradients that backward gives, by the names of the arrays."""
    grads = backward(d_out.copy(), *cache) if cache else pair.call(backward, d_out.copy())
    for name, array in leaves(pair.inputs).items():
        if name in pair.arrays and not np.array_equal(array, pair.arrays[name], equal_nan=True):
            raise ConfigError(
                f"{name}: forward or backward changes its input in place; work on a copy"
            )
    found = _by_name(grads, list(pair.inputs))
    for name, array in pair.arrays.items():
        gradient = found.get(name)
        if gradient is None:
            raise ConfigError(
                f"d_{name}: backward returns no such gradient; what shall not be checked goes into "
                "forward by functools.partial"
            )
        if np.shape(gradient) != array.shape:
            raise ShapeError(
                f"d_{name}: expected {array.shape}, as {name}; got {np.shape(gradient)}"
            )
    return {name: np.asarray(found[name], dtype=np.float64) for name in pair.arrays}


def _by_name(grads: Any, names: list[str]) -> dict[str, Any]:
    """Match gradients to inputs: by their own names where these fit, else by order."""
    if hasattr(grads, "_asdict"):
        grads = grads._asdict()
    if isinstance(grads, np.ndarray):
        grads = (grads,)
    if isinstance(grads, Mapping):
        named = {without_d(str(name)): gradient for name, gradient in grads.items()}
        if not set(names) & set(named):
            named = dict(zip(names, grads.values(), strict=False))
    else:
        named = dict(zip(names, grads, strict=False))
    return {without_d(name): leaf for name, leaf in leaves(named).items()}


def _compare(
    pair: Pair,
    probes: dict[str, list[Probe]],
    analytic: dict[str, Array],
    results: list[float],
    method: str,
    tolerance: tuple[float, float],
    noise: float,
) -> list[ArrayReport]:
    """Compare one method's derivatives with the analytic ones, array by array."""
    taken = iter(results)
    numeric = {name: np.array([next(taken) for _ in some]) for name, some in probes.items()}
    finite = [abs(n[np.isfinite(n)]).max(initial=0) for n in numeric.values()]
    scale = max(*finite, noise / tolerance[1], TINY)
    rows = []
    for name, some in probes.items():
        a = np.array([probe.along(analytic[name]) for probe in some])
        n = numeric[name]
        rtol = np.array([tolerance[0] * (0.01 if probe.is_direction else 1) for probe in some])
        off = np.abs(a - n)
        excess = np.nan_to_num(off / (rtol * np.abs(n) + tolerance[1] * scale), nan=np.inf)
        if not some:  # an empty array has nothing to be wrong
            rows.append(
                ArrayReport(name, pair.arrays[name].shape, method, "none", True, "-", 0, 0, 0)
            )
            continue
        worst = int(excess.argmax())
        rows.append(
            ArrayReport(
                name=name,
                shape=pair.arrays[name].shape,
                method=method,
                checked=_what_was_checked(some, pair.arrays[name].size),
                passed=bool(excess[worst] <= 1),
                worst=some[worst].label,
                analytic=float(a[worst]),
                numeric=float(n[worst]),
                error=float(np.nan_to_num(off, nan=np.inf).max() / scale),
            )
        )
    return rows


def _what_was_checked(probes: list[Probe], size: int) -> str:
    """Describe the probes of one array."""
    directions = sum(probe.is_direction for probe in probes)
    elements = len(probes) - directions
    if not directions:
        return f"all {size}"
    return f"{elements} of {size} + {directions} directions"
