"""How wrong can each step be at most? Bounds of errors, carried along with the numbers.

A `Bounded` array is a pair of exact numbers and of bounds, one for each number: what was computed
in its place, from rounded numbers, is no further away than that. Every operation of an equation
makes a new bound from those of its inputs, without leaving anything out: `a * b` is off by at most
``|a| e_b + |b| e_a + e_a e_b``.
Source: Higham 2002, *Accuracy and Stability of Numerical Algorithms*, section 3.3 (running error
analysis).
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.rounding import FORMATS, check_formats
from mha_numpy.checking.tracing import Trace
from mha_numpy.dtypes import Array

ALMOST_ONE = 1 + 1e-9  # bounds are rounded too, a little
TINY = 1e-12  # of the largest number of an array: what float64 itself may round


class Bounded(np.lib.mixins.NDArrayOperatorsMixin):
    """Exact numbers, and how far off what is computed in their place can be."""

    def __init__(self, exact: Any, bound: Any = 0.0) -> None:
        self.exact = np.asarray(exact)
        bound = np.where(np.isnan(bound), np.inf, bound)  # 0 * inf: nothing is known
        self.bound = np.broadcast_to(bound, self.exact.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both."""
        return self.exact.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.exact.ndim

    @property
    def T(self) -> "Bounded":
        """Both transposed."""
        return self.each(lambda x: x.T)

    def each(self, move: Callable[[Array], Any]) -> "Bounded":
        """Move both in the same way."""
        return Bounded(move(self.exact), move(np.asarray(self.bound)))

    def __getitem__(self, index: Any) -> "Bounded":
        return self.each(lambda x: x[index])

    def __getattr__(self, name: str) -> Any:
        """Return a method of arrays that only moves numbers."""
        if name not in ("reshape", "swapaxes", "transpose", "repeat", "ravel"):
            raise AttributeError(name)
        return lambda *args, **options: self.each(lambda x: getattr(x, name)(*args, **options))

    def sum(self, **options: Any) -> "Bounded":
        """Return the sum, whose parts may all be off to one side."""
        return self.each(lambda x: x.sum(**options))

    def mean(self, **options: Any) -> "Bounded":
        """Return the mean."""
        return self.each(lambda x: x.mean(**options))

    def max(self, **options: Any) -> "Bounded":
        """Return the largest, which is off by no more than the one that is off the most."""
        return Bounded(self.exact.max(**options), self._of_finite().max(**options))

    def _of_finite(self) -> Array:
        """Return the bounds, 0 where a cell is hidden by -inf."""
        return np.where(np.isneginf(self.exact), 0, self.bound)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function of NumPy to the numbers, and its rule to the bounds."""
        if method != "__call__" or options:
            return NotImplemented
        exact = ufunc(*(_exact(x) for x in inputs))
        if ufunc not in RULES:
            return exact if exact.dtype == bool else NotImplemented
        bounded = [x if isinstance(x, Bounded) else Bounded(x) for x in inputs]
        with np.errstate(all="ignore"):
            return Bounded(exact, RULES[ufunc](exact, *bounded))

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        """Select with np.where, by what np.isneginf says of the exact numbers."""
        if function is np.isneginf:
            return function(_exact(args[0]), **options)
        if function is not np.where or options:
            return NotImplemented
        condition, a, b = args
        bounds = (x.bound if isinstance(x, Bounded) else 0.0 for x in (a, b))
        return Bounded(np.where(condition, _exact(a), _exact(b)), np.where(condition, *bounds))


def _exact(x: Any) -> Any:
    return x.exact if isinstance(x, Bounded) else x


def _of_product(_: Array, a: Bounded, b: Bounded, times: Any = operator.mul) -> Any:
    size_a, size_b = np.abs(a.exact), np.abs(b.exact)
    bound: Any = times(size_a, b.bound) + times(a.bound, size_b) + times(a.bound, b.bound)
    return bound


def _of_quotient(exact: Array, a: Bounded, b: Bounded) -> Any:
    least = np.abs(b.exact) - b.bound
    return np.where(least > 0, (a.bound + np.abs(exact) * b.bound) / least, np.inf)


def _of_power(exact: Array, x: Bounded, n: Bounded) -> Any:
    if n.exact.ndim or n.exact != 2:
        return np.where(x.bound == 0, 0, np.inf)
    return x.bound * (2 * np.abs(x.exact) + x.bound)


RULES: dict[Any, Callable[..., Any]] = {
    np.add: lambda _, a, b: a.bound + b.bound,
    np.subtract: lambda _, a, b: a.bound + b.bound,
    np.negative: lambda _, a: a.bound,
    np.multiply: _of_product,
    np.matmul: lambda exact, a, b: _of_product(exact, a, b, np.matmul),
    np.divide: _of_quotient,
    np.power: _of_power,
    np.exp: lambda exact, x: np.where(exact == 0, 0, exact * np.expm1(x._of_finite())),
    np.tanh: lambda exact, x: np.minimum(x.bound, 1 + np.abs(exact)),  # nowhere steeper than 1
    np.maximum: lambda _, a, b: np.maximum(a._of_finite(), b._of_finite()),
}


def error_bounds(
    recorded: Trace, formats: Mapping[str, str], *, scales: Mapping[str, float] | None = None
) -> dict[str, Array]:
    """Return how far off each step of a trace can be at most, if some of them are rounded.

    Parameters
    ----------
    recorded : Trace
        Of a computation in float64.
    formats : mapping
        From names of steps and inputs to formats, as `replay` takes them.
    scales : mapping, optional
        From some of these names to factors.

    Returns
    -------
    dict
        For each step a bound of ``|replay(...)[name] - t[name]|``, cell by cell; inf where nothing
        can be said, as after a number that is too large for its format.

    Notes
    -----
    A bound adds up as if all roundings went in the same direction. They do not, so measured errors
    are usually smaller by the root of how many there are.

    Examples
    --------
    >>> from mha_numpy import attention_forward, trace
    >>> from mha_numpy.checking.rounding import replay
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

    def rounded(name: str, result: Any) -> Any:
        result = result if isinstance(result, Bounded) else Bounded(result)
        if result.exact.dtype.kind != "f":
            return result.exact
        finite = np.where(np.isfinite(result.exact), np.abs(result.exact), 0)
        bound = np.where(np.isfinite(result.exact), result.bound, 0) * ALMOST_ONE
        bound = bound + TINY * finite.max(initial=0)
        if name in formats:
            format_, scale = FORMATS[formats[name]], (scales or {}).get(name, 1.0)
            most = finite + bound  # of what is computed before it is rounded
            least = 2.0 ** (format_.least_exponent - format_.digits) / scale  # below normal numbers
            bound = bound + np.maximum(format_.unit * most, least)
            bound = np.where(most * scale > format_.largest, np.inf, bound)
        return Bounded(result.exact, bound)

    found = recorded.recompute(rounded)
    return {name: np.asarray(x.bound) for name, x in found.items() if isinstance(x, Bounded)}
