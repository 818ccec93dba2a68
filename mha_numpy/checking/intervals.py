"""Intervals: numbers known to lie between two ends, and how NumPy computes with them.

Every operation of an equation is applied to both ends: a sum's low end is the sum of the low ends,
and so on.

In few digits, a sum is rounded after each of its n additions. Its running total is a number of the
format, so rounding to the nearest moves the next total by no more than its last summand, nor by
more than u times the total. So a sum is off by at most n u times the sum of the sizes, however
large n is.
Sources: Rump 2010, *Verification methods*, sections 5 and 9 (products of matrices by midpoint and
radius); Jeannerod and Rump 2013, *Improved error bounds for inner products in floating-point
arithmetic*.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.errors import ConfigError

# What float64 itself rounds. An operation on single numbers keeps their order, so each end is as
# rounded as the number itself. Only the order of additions may differ:
ROUND = 1e-15  # in a sum of n numbers, n times as much of their sizes; several times over
TINY = 1e-12  # of a sum, where a share of it is computed in another way

MOVES = ("reshape", "swapaxes", "transpose", "repeat")  # methods that compute nothing


class Total(NamedTuple):
    """A sum before its rounding, by how much that moves it, and of which numbers it is the sum."""

    of: Any  # the key of the summands, none of which is below 0
    low: Any
    high: Any
    off: float  # as a share of it


class Interval(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers known only to lie between two ends. From -inf to inf, they may be NaN as well.

    `unit` is the unit roundoff of their sums. Intervals of equal keys have the same numbers: what
    the same operations made of the same intervals.
    """

    def __init__(
        self, low: Any, high: Any, unit: float = 0.0, *, key: Any = None, total: Total | None = None
    ) -> None:
        self.unit, self.total = unit, total
        self.key = object() if key is None else key
        is_unknown = np.isnan(low) | np.isnan(high)  # as 0 * inf
        self.low = np.where(is_unknown, -np.inf, low)
        self.high = np.where(is_unknown, np.inf, high)

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
        return Interval(self.low.T, self.high.T, self.unit, key=("T", self.key))

    @property
    def size_of_each(self) -> Any:
        """The largest absolute value that each number may have."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def is_unknown(self) -> Any:
        """Where the numbers may be anything, even NaN."""
        return (self.low == -np.inf) & (self.high == np.inf)

    @property
    def is_mask(self) -> Any:
        """Where the numbers are -inf for sure, or inf: as what hides a cell, in any format."""
        return np.isinf(self.low) & (self.low == self.high)

    def __getitem__(self, index: Any) -> "Interval":
        return Interval(self.low[index], self.high[index], self.unit)

    def __getattr__(self, name: str) -> Any:
        """Return a method of arrays that each end can do by itself."""
        if name not in MOVES:
            is_known = not name.startswith("_") and hasattr(np.ndarray, name)
            raise _no_rule(name) if is_known else AttributeError(name)

        def moved(*args: Any, **options: Any) -> Interval:
            low, high = (getattr(end, name)(*args, **options) for end in (self.low, self.high))
            key = self._key_after(name, *args, *options.items())
            return Interval(low, high, self.unit, key=key)

        return moved

    def _key_after(self, *how: Any) -> Any:
        """Return the key of what a method makes of these numbers, None for one of its own."""
        try:
            hash(how)
        except TypeError:  # it contains an array
            return None
        return self.key, *how

    def max(self, axis: Any = None, *, keepdims: bool = False, **others: Any) -> "Interval":
        """Return the largest numbers; a NaN is larger than all."""
        _refuse("max", others)
        low, high, is_unknown = (
            ends.max(axis=axis, keepdims=keepdims)
            for ends in (self.low, self.high, self.is_unknown)
        )
        low, high = np.where(is_unknown, -np.inf, low), np.where(is_unknown, np.inf, high)
        return Interval(low, high, self.unit, key=self._key_after("max", axis, keepdims))

    def sum(self, axis: Any = None, *, keepdims: bool = False, **others: Any) -> "Interval":
        """Add up each end; rounding moves them outwards."""
        _refuse("sum", others)
        low, high, size_low, size_high = (
            ends.sum(axis=axis, keepdims=keepdims)
            for ends in (self.low, self.high, np.abs(self.low), np.abs(self.high))
        )
        unit = max(self.unit, ROUND)
        off, total = self.low.size // max(1, np.size(low)) * unit, None
        is_positive = self.low.size > 0 and bool((self.low >= 0).all())
        # else a cell may meet the sum of others: x / x.sum(axis=-1)
        if is_positive and (keepdims or axis is None):
            total = Total(self.key, low, high, off)
        # rounding keeps the order, so each end has only its own errors
        low, high = low - off * size_low, high + off * size_high
        if is_positive:  # what is added later makes it no smaller than any summand, rounded once
            low = np.maximum(low, (1 - unit) * self.low.max(axis=axis, keepdims=keepdims))
        key = self._key_after("sum", axis, keepdims)
        return Interval(low, high, self.unit, key=key, total=total)

    def mean(self, axis: Any = None, *, keepdims: bool = False, **others: Any) -> "Interval":
        """Divide a sum by the number of its summands."""
        _refuse("mean", others)
        total = self.sum(axis, keepdims=keepdims)
        return total / (self.low.size / max(1, np.size(total.low)))

    def __bool__(self) -> bool:
        """Refuse, because it may be both."""
        raise _no_rule("a choice of Python")

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse what would compute with objects."""
        raise _no_rule("a function of other arrays")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function of NumPy by its rule."""
        if method != "__call__" or options or ufunc not in RULES:
            raise _no_rule(ufunc.__name__)
        operands = [interval(x) for x in inputs]
        with np.errstate(all="ignore"):
            low, high = RULES[ufunc](*operands)
        if ufunc is not np.matmul:  # whose middles are NaN then
            for x in operands:
                low = np.where(x.is_unknown, -np.inf, low)
                high = np.where(x.is_unknown, np.inf, high)
        unit = max(x.unit for x in operands)
        return Interval(low, high, unit, key=(ufunc, *(x.key for x in operands)))

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        """Select, or join arrays, at each end."""
        if function is np.isneginf and len(args) == 1:
            low, high = (1.0 * np.isneginf(end) for end in (self.high, self.low))
            return Interval(low, high, self.unit)
        if function is np.where and len(args) == 3:
            return _select(*map(interval, args))
        if function in JOINS:
            parts = [interval(x) for x in args[0]]
            low, high = (
                function([getattr(x, end) for x in parts], *args[1:], **options)
                for end in ("low", "high")
            )
            return Interval(low, high, max(x.unit for x in parts))
        if function is np.pad:
            low, high = (np.pad(end, *args[1:], **options) for end in (self.low, self.high))
            return Interval(low, high, self.unit)
        raise _no_rule(getattr(function, "__name__", function))


def _select(condition: Interval, a: Interval, b: Interval) -> Interval:
    """Take a or b, and from the lower to the higher end of both if the condition may be either."""
    is_a, is_b = (condition.low > 0) | (condition.high < 0), condition.size_of_each == 0
    low, high = (
        np.where(is_a, a_end, np.where(is_b, b_end, outer(a_end, b_end)))
        for a_end, b_end, outer in ((a.low, b.low, np.minimum), (a.high, b.high, np.maximum))
    )
    return Interval(low, high, max(condition.unit, a.unit, b.unit))


def _refuse(method: str, options: dict[str, Any]) -> None:
    if options:
        raise _no_rule(f"{method} with {', '.join(options)}")


def _no_rule(name: Any) -> ConfigError:
    known = ", ".join(sorted(rule.__name__ for rule in RULES))
    return ConfigError(
        f"recorded: expected equations of {known}, where, sums and moves; got {name}, for which "
        "there is no rule"
    )


def interval(x: Any) -> Interval:
    """Return an interval as it is, and numbers that are known as one without width."""
    if isinstance(x, Interval):
        return x
    return Interval(np.asarray(x), np.asarray(x), key=None if np.ndim(x) else ("number", float(x)))


def _of_corners(operation: Any, a: Interval, b: Interval) -> tuple[Any, Any]:
    """Return the least and the largest result of the four pairs of ends."""
    corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _of_quotient(a: Interval, b: Interval) -> tuple[Any, Any]:
    low, high = _of_corners(np.divide, a, b)
    holds_0 = (b.low <= 0) & (b.high >= 0)
    low, high = np.where(holds_0, -np.inf, low), np.where(holds_0, np.inf, high)
    if b.total is None or b.total.of != a.key:
        return low, high
    # a share of the sum, a / (a + rest): what makes a larger makes the sum larger, too
    _, least, most, off = b.total
    most, least = most * (1 + TINY) - a.high, least * (1 - TINY) - a.low  # of the rest
    of_low, of_high = a.low / (a.low + most), a.high / (a.high + np.maximum(least, 0))
    is_known = (b.low > 0) & np.isfinite(b.high)  # else it may be 0 / 0
    of_low = np.where(is_known, np.where(a.low > 0, of_low, 0), -np.inf) / (1 + off)
    of_high = np.where(is_known, np.where(a.high > 0, of_high, 0), np.inf) / max(0, 1 - off)
    return np.fmax(low, of_low), np.fmin(high, of_high)


def _of_matmul(a: Interval, b: Interval) -> tuple[Any, Any]:
    """Add up each number's distance from the middle, as if all were on one side."""
    (middle_a, radius_a), (middle_b, radius_b) = (
        ((x.low + x.high) / 2, (x.high - x.low) / 2) for x in (a, b)
    )
    middle = middle_a @ middle_b
    radius = np.abs(middle_a) @ radius_b + radius_a @ (np.abs(middle_b) + radius_b)
    off = a.shape[-1] * max(a.unit, b.unit, ROUND)
    radius = radius + off * (a.size_of_each @ b.size_of_each)
    return middle - radius, middle + radius


def _of_power(x: Interval, n: Interval) -> tuple[Any, Any]:
    low, high = _of_corners(np.multiply, x, x)
    if n.ndim or not n.low == n.high == 2:
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
    # of conditions: 0, 1, or between them if a condition may be either
    np.invert: lambda a: (1 - a.high, 1 - a.low),
    np.bitwise_and: _of_each(np.minimum),
}
JOINS = (np.concatenate, np.stack)
