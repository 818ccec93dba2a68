"""How wrong can each step be at most? Intervals, carried along with the numbers.

Rounding moves each end of an `Interval` outwards by the largest relative error of the format. What
float64 itself may round is estimated, generously: see `TINY`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.intervals import TINY, Interval, interval
from mha_numpy.checking.replay import check_formats
from mha_numpy.checking.rounding import FORMATS
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
    So measured errors are usually several times smaller. What float64 itself rounds is estimated,
    by 1e-12 of an array's largest number.

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
    format_of_sums = FORMATS[check_choice("sums", sums, FORMATS)]
    unit = 0.0 if format_of_sums.digits == 53 else format_of_sums.unit

    @np.errstate(invalid="ignore")  # inf - inf, where a mask hides
    def rounded(step: Step, result: Any) -> Any:
        name, array = step.name, step.array
        if array.dtype.kind != "f":
            return result
        ends = interval(result)
        slack = TINY * np.abs(array[np.isfinite(array)]).max(initial=0)
        low, high = ends.low - slack, ends.high + slack
        if name in formats:
            format_, scale = FORMATS[formats[name]], scales.get(name, 1.0)
            largest = np.maximum(np.abs(low), np.abs(high))
            below = 2.0 ** max(format_.least_exponent - format_.digits, -1074)  # normal numbers
            least = below / scale
            off = np.maximum(format_.unit * largest, least)
            off = np.where(largest * scale > format_.largest, np.inf, off)
            low, high = low - off, high + off
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


def _farthest(x: Interval, exact: Array) -> Array:
    """Return how far the ends are from the exact numbers; inf where these are NaN."""
    off = np.fmax(x.high - exact, exact - x.low)
    return np.where(x.is_mask, 0, np.where(np.isnan(off), np.inf, off))
