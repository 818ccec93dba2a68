"""A trace computed again, with fewer digits in some of its steps or in all sums."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.rounding import FORMATS, keep_digits, round_to
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checks import check_choice, check_number, check_type
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe


class OneByOne(np.ndarray):
    """Numbers that are added up one after another, with few digits in the total."""

    digits = 53

    def __array_finalize__(self, of: Any) -> None:
        """Take over the digits of the array that this one is made from."""
        self.digits = getattr(of, "digits", 53)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute as NumPy does, apart from sums and products of matrices."""
        plain = [np.asarray(x) for x in inputs]
        options.pop("out", None)  # one of these arrays; its numbers are returned
        if ufunc is np.matmul:
            result = self._multiply(*plain)
        elif ufunc is np.add and method == "reduce":
            result = self._sum(*plain, **options)
        else:
            result = getattr(ufunc, method)(*plain, **options)
        return one_by_one(result, self.digits)

    def __array_function__(self, *call: Any) -> Any:
        """Select with np.where as NumPy does, whose result would add up in float64."""
        found = super().__array_function__(*call)
        return one_by_one(found, self.digits) if isinstance(found, np.ndarray) else found

    def _multiply(self, a: Array, b: Array) -> Array:
        shape = (a @ b).shape
        a, b = (a if a.ndim > 1 else a[None]), (b if b.ndim > 1 else b[:, None])
        total = np.zeros((a @ b).shape)
        for j in range(a.shape[-1]):
            total = keep_digits(total + a[..., j, None] * b[..., None, j, :], self.digits)
        return total.reshape(shape)

    def _sum(
        self, x: Array, *, axis: Any = 0, keepdims: bool = False, initial: Any = 0.0,
        where: Any = True, **_: Any,
    ) -> Array:  # fmt: skip
        axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
        total = np.full(x.sum(axis=axes).shape, initial)
        x = np.moveaxis(np.where(where, x, 0), axes, tuple(range(len(axes))))
        summands = x.reshape(math.prod(x.shape[: len(axes)]), *total.shape)
        for summand in summands:
            total = keep_digits(total + summand, self.digits)
        return np.expand_dims(total, axes) if keepdims else total


def one_by_one(x: Any, digits: int) -> OneByOne:
    """Return an array whose sums add up one after another, with this number of digits."""
    found = np.asarray(x).view(OneByOne)
    found.digits = digits
    return found


def replay(
    recorded: Trace,
    formats: Mapping[str, str],
    *,
    scales: Mapping[str, float] | None = None,
    sums: str = "float64",
) -> dict[str, Array]:
    """Compute a trace again, with the result of some steps rounded.

    Parameters
    ----------
    recorded : Trace
        Of a computation in float64.
    formats : mapping
        From names of steps and inputs to formats of `round_to`; others keep all digits.
    scales : mapping, optional
        From some of these names to factors.
    sums : str
        The format of all sums within steps, as those of a product or of softmax. Numbers are added
        one after another, and the total is rounded to the digits of the format each time. Its range
        does not matter, because a kernel would keep powers in it.

    Returns
    -------
    dict
        The array of each step, by name. If several steps share a name, the last one counts.

    Examples
    --------
    >>> from mha_numpy import attention_forward, trace
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 4, 8))
    >>> with trace() as t:
    ...     out, cache = attention_forward(q, k, v)
    >>> found = replay(t, {"weights": "bfloat16"})
    >>> off = abs(found["heads"] - out).max()
    >>> bool(1e-4 < off < 1e-2), bool(np.allclose(found["scores"], t["scores"], rtol=1e-14))
    (True, True)
    """
    scales = {} if scales is None else scales
    check_formats(recorded, formats, scales)
    digits = FORMATS[check_choice("sums", sums, FORMATS)].digits

    def change(step: Step, array: Any) -> Array:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return array
        if step.name in formats:
            rounded = round_to(array, formats[step.name], scale=scales.get(step.name, 1.0))
            array = np.where(np.isfinite(array), rounded, array)  # -inf is a mask, in any format
        return array if digits == 53 else one_by_one(array, digits)

    return {name: np.asarray(array) for name, array in recorded.recompute(change).items()}


def check_formats(recorded: Trace, formats: Mapping[str, str], scales: Mapping[str, float]) -> None:
    """Check that all names are those of steps, that there are such formats, and all scales."""
    check_type("recorded", recorded, Trace, "trace()")
    for step in recorded:
        if step.array.dtype.kind in "fV" and step.array.dtype != np.float64:
            raise ConfigError(
                f"recorded: expected a trace in float64; {step.name} is {step.array.dtype}; write "
                "x.astype(np.float64) for all inputs and params"
            )
    names = {step.name for step in recorded if step.array.dtype.kind == "f"}
    for argument, given in (("formats", formats), ("scales", scales)):
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"{argument}: expected a dict by names of steps; got {describe(given)}"
            )
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"{argument}: expected names of steps and inputs, {sorted(names)}; got {name!r}"
                )
    for name, wanted in formats.items():
        check_choice(f"formats[{name!r}]", wanted, FORMATS)
    for name, scale in scales.items():
        check_number(f"scales[{name!r}]", scale, positive=True)
        if name not in formats:
            raise ConfigError(f"scales: expected steps that have a format; got {name!r}")
