"""How wrong can each step be at most? Intervals, carried along with the numbers.

Rounding keeps the order of numbers, so each end of an `Interval` moves outwards by as much as the
format may round it. What float64 itself rounds in a sum is estimated, generously.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.intervals import Interval, interval
from mha_numpy.checking.replay import check_formats
from mha_numpy.checking.rounding import FORMATS, Format
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array


def error_bounds(
    recorded: Trace,
    formats: Mapping[str, str],
    *,
    scales: Mapping[str, float] | None = None,
    sums: str = "float64",
) -> dict[str, Array]:
    """Return how far off each step of a trace can be at most, if some of them are rounded.

    Parameters
    ----------
    recorded : Trace
        Of a computation in float64, as attention and norms; there are no rules for every function.
    formats : mapping
        From names of steps and inputs to formats, as `replay` takes them.
    scales : mapping, optional
        From some of these names to factors.
    sums : str
        The format of all sums within steps, as `replay` takes it.

    Returns
    -------
    dict
        For each step a bound of ``|replay(...)[name] - t[name]|``, cell by cell; inf where there is
        none, as after a number that is too large for its format.

    Notes
    -----
    The bounds take the worst direction of each rounding, and forget that a number may occur twice.
    So measured errors are usually several times smaller. What float64 itself rounds in sums is
    estimated.

    Examples
    --------
    >>> from mha_numpy import attention_forward, trace
    >>> from mha_numpy.checking import replay
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 4, 8))
    >>> with trace() as t:
    ...     out, cache = attention_forward(q, k, v)
    >>> formats = {"scores": "bfloat16", "weights": "bfloat16"}
    >>> bound = error_bounds(t, formats)["heads"]
    >>> off = abs(replay(t, formats)["heads"] - out)
    >>> bool((off <= bound).all()), bool(bound.max() < 0.1)
    (True, True)
    >>> bound = error_bounds(t, {}, sums="float16")["heads"]
    >>> off = abs(replay(t, {}, sums="float16")["heads"] - out)
    >>> bool((off <= bound).all()), bool(0.001 < bound.max() < 0.1)
    (True, True)
    """
    scales = {} if scales is None else scales
    check_formats(recorded, formats, scales)
    unit = FORMATS[check_choice("sums", sums, FORMATS)].unit

    @np.errstate(invalid="ignore", over="ignore")  # inf - inf, where a mask hides
    def rounded(step: Step, result: Any) -> Any:
        if step.array.dtype.kind != "f":
            return result
        ends = interval(result)
        low, high = ends.low, ends.high
        if format_of_step := formats.get(step.name):
            scale = scales.get(step.name, 1.0)
            low, high = _round_ends(low, high, FORMATS[format_of_step], scale)
        low, high = (np.where(ends.is_mask, ends.low, end) for end in (low, high))
        return Interval(low, high, unit)

    found = recorded.recompute(rounded)
    exact = {step.name: step.array for step in recorded}
    with np.errstate(invalid="ignore"):  # inf - inf, where a mask hides
        return {
            name: _farthest(x, exact[name])
            for name, x in found.items()
            if exact[name].dtype.kind == "f"
        }


def _round_ends(low: Array, high: Array, format_: Format, scale: float) -> tuple[Array, Array]:
    """Move the ends outwards as the format may round them; beyond its largest number is inf."""
    below = 2.0 ** max(format_.least_exponent - format_.digits, -1074) / scale  # normal numbers
    limit = format_.largest / scale
    sure = limit * (1 + 2 * format_.unit)  # beyond it is inf, whatever way numbers are rounded
    low_end = np.minimum(low - np.maximum(format_.unit * np.abs(low), below), limit)
    high_end = np.maximum(high + np.maximum(format_.unit * np.abs(high), below), -limit)
    low_end = np.where(low > sure, np.inf, np.where(low < -limit, -np.inf, low_end))
    high_end = np.where(high < -sure, -np.inf, np.where(high > limit, np.inf, high_end))
    if format_.has_inf:
        return low_end, high_end
    is_nan = (low < -limit) | (high > limit)
    return np.where(is_nan, -np.inf, low_end), np.where(is_nan, np.inf, high_end)


def _farthest(x: Interval, exact: Array) -> Array:
    """Return how far the ends are from the exact numbers; inf where these are NaN."""
    off = np.fmax(x.high - exact, exact - x.low)
    is_same = x.is_mask & (x.low == exact)
    return np.where(is_same, 0, np.where(np.isnan(off), np.inf, off))
