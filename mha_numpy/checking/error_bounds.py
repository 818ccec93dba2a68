"""How wrong can each step be at most? Intervals, carried along with the numbers.

An `Interval` array has two ends for each number, and the number that is computed from rounded ones
lies between them. Every operation of an equation is applied to both ends: a sum's low end is the
sum of the low ends, and so on. Rounding moves each end outwards by the largest relative error of
the format. A sum of n numbers that is rounded n times, to a relative error of u each time, is off
by at most n u times the sum of their sizes. What float64 itself may round is estimated, generously:
see `TINY`.
Sources: Rump 2010, *Verification methods*, sections 5 and 9 (products of matrices by midpoint and
radius); Jeannerod and Rump 2013, *Improved error bounds for inner products in floating-point
arithmetic* (n u, however large n is).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.replay import check_formats
from mha_numpy.checking.rounding import FORMATS
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError

TINY = 1e-12  # of the largest number of an array: what float64 itself may round

MOVES = ("reshape", "swapaxes", "transpose", "repeat", "sum", "mean", "max")  # keep the order


class Total(NamedTuple):
    """What a sum was before its rounding, and how far off that is, as a share of it."""

    summands: "Interval"  # none below 0
    low: Any
    high: Any
    off: float


class Interval(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers known only to lie between two ends; `unit` is the unit roundoff of their sums."""

    def __init__(
        self, low: Any, high: Any, unit: float = 0.0, *, total: Total | None = None
    ) -> None:
        self.unit, self.total = unit, total
        # 0 * inf: nothing is known
        self.low = np.where(np.isnan(low), -np.inf, low)
        self.high = np.where(np.isnan(high), np.inf, high)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both ends."""
        return self.low.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.low.ndim

    @property
    def T(self) -> "Interval":
        """Both ends transposed."""
        return Interval(self.low.T, self.high.T, self.unit)

    @property
    def size_of_each(self) -> Any:
        """The largest absolute value that each number may have."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __getitem__(self, index: Any) -> "Interval":
        return Interval(self.low[index], self.high[index], self.unit)

    def __getattr__(self, name: str) -> Any:
        """Return a method of arrays that each end can do by itself."""
        if name not in MOVES:
            raise AttributeError(name)

        def moved(*args: Any, **options: Any) -> Interval:
            def of(ends: Any, how: str = name) -> Any:
                return getattr(ends, how)(*args, **options)

            low, high = of(self.low), of(self.high)
            if name not in ("sum", "mean") or not self.low.size:
                return Interval(low, high, self.unit)
            share = self.low.size // np.size(low) * self.unit
            off = share * of(self.size_of_each)
            least, total = low - off, None
            if name == "sum" and (self.low >= 0).all():
                # what is added later makes it no smaller, and each summand is rounded at least once
                least = np.maximum(least, (1 - self.unit) * of(self.low, "max"))
                # else a cell may meet the sum of others: x / x.sum(axis=-1)
                if options.get("keepdims") or not (args or options):
                    total = Total(self, low, high, share)
            return Interval(least, high + off, self.unit, total=total)

        return moved

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse what would compute with objects."""
        raise _no_rule(None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function of NumPy by its rule."""
        if method != "__call__" or options or ufunc not in RULES:
            raise _no_rule(ufunc)
        operands = [_interval(x) for x in inputs]
        with np.errstate(all="ignore"):
            ends = RULES[ufunc](*operands)
        return Interval(*ends, max(x.unit for x in operands))

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        """Select with np.where; what -inf hides is hidden for both ends."""
        if function is np.isneginf:
            return np.isneginf(self.high)
        if function is not np.where or options:
            raise _no_rule(function)
        condition, a, b = args
        a, b = _interval(a), _interval(b)
        low, high = np.where(condition, a.low, b.low), np.where(condition, a.high, b.high)
        return Interval(low, high, max(a.unit, b.unit))


def _no_rule(function: Any) -> ConfigError:
    known = ", ".join(sorted(rule.__name__ for rule in RULES))
    return ConfigError(
        f"recorded: expected equations of {known}, where, sums and moves; got "
        f"{getattr(function, '__name__', 'another function')}, for which there is no rule"
    )


def _interval(x: Any) -> Interval:
    return x if isinstance(x, Interval) else Interval(np.asarray(x), np.asarray(x))


def _of_corners(operation: Any, a: Interval, b: Interval) -> tuple[Any, Any]:
    """Return the least and the largest result of the four pairs of ends."""
    corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _of_quotient(a: Interval, b: Interval) -> tuple[Any, Any]:
    low, high = _of_corners(np.divide, a, b)
    holds_0 = (b.low <= 0) & (b.high >= 0)
    low, high = np.where(holds_0, -np.inf, low), np.where(holds_0, np.inf, high)
    if b.total is None or not _are_same(a, b.total.summands):
        return low, high
    # a share of the sum, a / (a + rest): what makes a larger makes the sum larger, too
    _, least, most, off = b.total
    most, least = most * (1 + TINY) - a.high, least * (1 - TINY) - a.low  # of the rest
    of_low, of_high = a.low / (a.low + most), a.high / (a.high + np.maximum(least, 0))
    is_known = np.isfinite(b.low) & np.isfinite(b.high)
    of_low = np.where(is_known, np.where(a.low > 0, of_low, 0), -np.inf) / (1 + off)
    of_high = np.where(is_known, np.where(a.high > 0, of_high, 0), np.inf) / max(0, 1 - off)
    return np.fmax(low, of_low), np.fmin(high, of_high)


def _are_same(a: Interval, b: Interval) -> bool:
    return np.array_equal(a.low, b.low) and np.array_equal(a.high, b.high)


def _of_matmul(a: Interval, b: Interval) -> tuple[Any, Any]:
    """Add up each number's distance from the middle, as if all were on one side."""
    (middle_a, radius_a), (middle_b, radius_b) = (
        ((x.low + x.high) / 2, (x.high - x.low) / 2) for x in (a, b)
    )
    middle = middle_a @ middle_b
    radius = np.abs(middle_a) @ radius_b + radius_a @ (np.abs(middle_b) + radius_b)
    if unit := max(a.unit, b.unit):
        radius = radius + a.shape[-1] * unit * (a.size_of_each @ b.size_of_each)
    return middle - radius, middle + radius


def _of_power(x: Interval, n: Interval) -> tuple[Any, Any]:
    low, high = _of_corners(np.multiply, x, x)
    if n.ndim or n.low != 2:
        return np.full_like(low, -np.inf), np.full_like(high, np.inf)
    return np.where((x.low <= 0) & (x.high >= 0), 0, low), high


def _of_each(function: Any) -> Callable[..., tuple[Any, Any]]:
    """Return the rule of a function that rises with all its inputs."""
    return lambda *x: (function(*[a.low for a in x]), function(*[a.high for a in x]))


RULES: dict[Any, Callable[..., tuple[Any, Any]]] = {
    **{
        rising: _of_each(rising)
        for rising in (np.add, np.exp, np.tanh, np.maximum, np.sqrt, np.log)
    },
    np.subtract: lambda a, b: (a.low - b.high, a.high - b.low),
    np.negative: lambda a: (-a.high, -a.low),
    np.multiply: lambda a, b: _of_corners(np.multiply, a, b),
    np.divide: _of_quotient,
    np.matmul: _of_matmul,
    np.power: _of_power,
}


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
    """
    check_formats(recorded, formats, scales or {})
    format_of_sums = FORMATS[check_choice("sums", sums, FORMATS)]
    unit = 0.0 if format_of_sums.digits == 53 else format_of_sums.unit

    @np.errstate(invalid="ignore")  # inf - inf, where a mask hides
    def rounded(step: Step, result: Any) -> Any:
        name, array = step.name, step.array
        if array.dtype.kind != "f":
            return np.asarray(result)
        ends = _interval(result)
        finite = np.isfinite(array)
        slack = TINY * np.abs(array[finite]).max(initial=0)
        low, high = ends.low - slack, ends.high + slack
        if name in formats:
            format_, scale = FORMATS[formats[name]], (scales or {}).get(name, 1.0)
            largest = np.maximum(np.abs(low), np.abs(high))
            least = 2.0 ** (format_.least_exponent - format_.digits) / scale  # below normal numbers
            off = np.maximum(format_.unit * largest, least)
            off = np.where(largest * scale > format_.largest, np.inf, off)
            low, high = low - off, high + off
        # -inf is a mask, in any format
        return Interval(np.where(finite, low, array), np.where(finite, high, array), unit)

    found = recorded.recompute(rounded)
    exact = {step.name: step.array for step in recorded}
    with np.errstate(invalid="ignore"):  # inf - inf, where a mask hides
        return {
            name: np.where(
                np.isfinite(exact[name]), np.maximum(x.high - exact[name], exact[name] - x.low), 0
            )
            for name, x in found.items()
            if isinstance(x, Interval)
        }
