"""Rounding to narrower floats, and computing a trace again with some of its steps rounded."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.tracing import Trace
from mha_numpy.checks import check_choice, check_number, check_type
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, describe


class Format(NamedTuple):
    """A format of floats: how many digits it keeps, and which numbers are in it."""

    digits: int  # binary, with the first, which is always 1
    least_exponent: int  # of a normal number; below it the digits get fewer
    largest: float
    has_inf: bool = True  # else what is too large becomes NaN

    @property
    def unit(self) -> float:
        """The unit roundoff: the largest relative error of rounding a normal number."""
        return 2.0**-self.digits


FORMATS = {
    "float64": Format(53, -1022, float(np.finfo(np.float64).max)),
    "float32": Format(24, -126, float(np.finfo(np.float32).max)),
    "tf32": Format(11, -126, (2 - 2.0**-10) * 2.0**127),
    "bfloat16": Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "float16": Format(11, -14, 65504.0),
    "e5m2": Format(3, -14, 57344.0),
    "e4m3": Format(4, -6, 448.0, has_inf=False),
}


@np.errstate(invalid="ignore", over="ignore")  # a signalling NaN; inf is the answer
def round_to(x: Array, name: str, *, scale: float = 1.0) -> Array:
    """Round to the nearest number of a format, and of two equally near to the even one.

    Parameters
    ----------
    x : float array of any shape
    name : {"float64", "float32", "tf32", "bfloat16", "float16", "e5m2", "e4m3"}
        The last two have 8 bits. Each number is rounded once, and the result stays float64.
    scale : float
        > 0; ``x * scale`` is rounded, and divided by it again: a factor that puts the numbers where
        the format has most to offer.

    Returns
    -------
    float64 array like `x`
        A number that is too large becomes inf, or NaN in "e4m3", which has no inf.

    Notes
    -----
    Sources: Micikevicius et al. 2022, *FP8 formats for deep learning*, table 1; Kalamkar et al.
    2019, *A study of bfloat16*, section 3.

    Examples
    --------
    >>> round_to(np.array([3.14159265, 1000.5, 70000.0]), "float16").tolist()
    [3.140625, 1000.5, inf]
    >>> round_to(np.array([3.14159265, 1000.5, 70000.0]), "bfloat16").tolist()
    [3.140625, 1000.0, 70144.0]
    >>> round_to(np.array([3.14159265, 1000.5]), "e4m3", scale=0.1).tolist()
    [3.125, 1040.0]
    """
    found = FORMATS[check_choice("name", name, FORMATS)]
    scale = check_number("scale", scale, positive=True)
    scaled = as_float_array("x", x).astype(np.float64) * scale
    if found.digits == 53:
        return scaled / scale
    rounded = _keep_digits(scaled, found.digits, found.least_exponent)
    beyond = np.copysign(np.inf if found.has_inf else np.nan, scaled)
    return np.where(np.abs(rounded) > found.largest, beyond, rounded) / scale


def _keep_digits(x: Array, digits: int, least_exponent: int = -1022) -> Array:
    """Round to so many digits; below 2^least_exponent to the same last digit as there."""
    _, exponent = np.frexp(x)  # x = m 2^exponent with m from 1/2 to 1
    last = np.maximum(exponent - digits, least_exponent + 1 - digits)
    quantum = np.ldexp(1.0, last)
    rounded: Array = np.rint(x / quantum) * quantum
    return rounded


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
        return keep_total(result, self.digits)

    def _multiply(self, a: Array, b: Array) -> Array:
        shape = (a @ b).shape
        a, b = (a if a.ndim > 1 else a[None]), (b if b.ndim > 1 else b[:, None])
        total = np.zeros((a @ b).shape)
        for j in range(a.shape[-1]):
            total = _keep_digits(total + a[..., j, None] * b[..., None, j, :], self.digits)
        return total.reshape(shape)

    def _sum(self, x: Array, *, axis: Any = 0, keepdims: bool = False, **_: Any) -> Array:
        axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
        total = np.zeros(x.sum(axis=axes).shape)
        summands = np.moveaxis(x, axes, tuple(range(len(axes)))).reshape(-1, *total.shape)
        for summand in summands:
            total = _keep_digits(total + summand, self.digits)
        return np.expand_dims(total, axes) if keepdims else total


def keep_total(x: Any, digits: int) -> OneByOne:
    """Return an array whose sums keep so many digits."""
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
        does not matter, for a kernel would keep powers in it.

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
    check_formats(recorded, formats, scales := scales or {})
    digits = FORMATS[check_choice("sums", sums, FORMATS)].digits

    def change(name: str, array: Any) -> Array:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return array
        if name in formats:
            rounded = round_to(array, formats[name], scale=scales.get(name, 1.0))
            array = np.where(np.isfinite(array), rounded, array)  # -inf is a mask, in any format
        return array if digits == 53 else keep_total(array, digits)

    return {name: np.asarray(array) for name, array in recorded.recompute(change).items()}


def check_formats(recorded: Trace, formats: Mapping[str, str], scales: Mapping[str, float]) -> None:
    """Check that all names are those of steps, that there are such formats, and all scales."""
    check_type("recorded", recorded, Trace, "trace()")
    names = {step.name for step in recorded}
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
