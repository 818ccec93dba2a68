"""A pair: equations forward, forward mode and backward, and the code that all pairs share."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_axes, check_type
from mha_numpy.core.tangents import Shapes, shape_of, tangents_of
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, promote, result_dtype
from mha_numpy.errors import ShapeError
from mha_numpy.steps import constant, is_watched, step

Values = dict[str, Any]
Records = Iterable[tuple[str, ...]]
OfValues = Records | Callable[[Values], Records]


@dataclass(eq=False)
class Pair:
    """A forward with its backward: checks, dtypes, kernels and recording around the equations.

    The inputs, the options and the additions of `check` are values, which are passed on by name.
    `steps` takes the values that its arguments name, and returns more values. The cache keeps those
    that its fields name. `steps_backward` takes the gradient of the output, then fields of the
    cache. `steps_jvp` takes the tangents of the inputs in their order, then fields of the cache,
    and returns the output's tangent, or several, for `tangents`. A small example is `RELU` in
    ``layers/activations.py``.

    `records` and `records_backward` say what a trace notes: ``(name, axes, equation)`` for each
    step and ``(name, axes)`` for each constant, as `step` and `constant` explain them; or a
    function of the values that yields these. A value of None is left out.
    """

    steps: Callable[..., Any]
    steps_backward: Callable[..., Any]
    steps_jvp: Callable[..., Any]
    cache: Any  # a NamedTuple, with the dtype of the output and of the gradients
    grads: Any  # a NamedTuple, in the order of the inputs
    inputs: Mapping[str, str]  # arrays of floats, and their axes: "D", "... D"; "" for any
    # the field of the cache that is like the output, or what returns its shape and dtype
    like: str | Callable[[Any], tuple[tuple[int, ...], np.dtype[Any]]]
    tangents: Any = None  # a NamedTuple, if more than the output has one
    optional: tuple[str, ...] = ()  # inputs that may be None
    # shapes of the inputs that have gradients, if not those of the fields that have their names
    shapes: Callable[[Any], Shapes] | None = None
    computes: str = "out"  # names of what `steps` returns, the output last
    options: Mapping[str, Callable[[str, Any], Any]] = field(default_factory=dict)  # their checks
    check: Callable[[Values], None] = lambda values: None  # of what is left to check
    records: OfValues = ()
    records_backward: OfValues = ()
    kernels: dict[str, str] = field(default_factory=lambda: ONE_PASS_KERNELS)
    kernel: Callable[..., Any] | None = None  # of the module of kernels, then what `steps` takes
    kernel_backward: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        self._names = self.computes.split()
        self._takes = _required(self.steps)
        _, *self._takes_backward = _required(self.steps_backward)
        self._moving = [name.removeprefix("d_") for name in self.grads._fields]
        self._takes_jvp = _required(self.steps_jvp)[len(self._moving) :]

    def forward(self, **values: Any) -> tuple[Any, Any]:
        """Return the output and the cache of these inputs and options."""
        arrays = []
        for name, axes in self.inputs.items():
            if values[name] is not None or name not in self.optional:
                values[name] = array = as_float_array(name, values[name])
                arrays.append((name, array, axes))
        dtype = result_dtype(*[array for _, array, _ in arrays])
        inner = compute_dtype(dtype)
        _check_shapes(tuple([(name, array.shape, axes) for name, array, axes in arrays if axes]))
        for name, array, _ in arrays:
            if array.dtype is not inner:
                values[name] = array.astype(inner, copy=False)
        for name, check in self.options.items():
            values[name] = check(name, values[name])
        backend = chosen_backend()
        values |= {"dtype": dtype, "inner": inner, "backend": backend}
        self.check(values)

        given = [values[name] for name in self._takes]
        computed = self._compute(self.steps, self.kernel, values["backend"], given)
        if len(self._names) == 1:
            computed = (computed,)
        values.update(zip(self._names, computed, strict=True))
        if is_watched():
            record(values, self.records)
        cache = self.cache._make([values[name] for name in self.cache._fields])
        return computed[-1].astype(dtype, copy=False), cache

    def backward(self, d_out: Array, cache: Any) -> Any:
        """Return the gradients of the inputs, from the gradient of the output."""
        shape, inner = self._output(cache)
        d_out = as_gradient(f"d_{self._names[-1]}", d_out, shape, inner)

        given = [d_out, *[getattr(cache, name) for name in self._takes_backward]]
        backend = getattr(cache, "backend", "numpy")
        computed = self._compute(self.steps_backward, self.kernel_backward, backend, given)
        if len(self.grads._fields) == 1:
            computed = (computed,)
        grads = self.grads._make(computed)
        if is_watched():
            values = {**cache._asdict(), f"d_{self._names[-1]}": d_out, **grads._asdict()}
            record(values, self.records_backward)
        return self.grads._make(
            [d if d is None else d.astype(cache.dtype, copy=False) for d in computed]
        )

    def jvp(self, tangents: Any, cache: Any) -> Any:
        """Return the tangent of the output, from those of the inputs; `tangents_of` reads them."""
        _, inner = self._output(cache)
        shapes = self._shapes(cache) if self.shapes is None else self.shapes(cache)
        moving = tangents_of(tangents, shapes, inner)
        computed = self.steps_jvp(
            *moving.values(), *[getattr(cache, name) for name in self._takes_jvp]
        )
        if self.tangents is None:
            return computed.astype(cache.dtype, copy=False)
        out_dot, *others = computed
        return self.tangents(
            out_dot.astype(cache.dtype, copy=False), *[dot.astype(inner) for dot in others]
        )

    def _output(self, cache: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape of the output, and the dtype to compute in."""
        name = self.steps.__name__.removesuffix("_steps")
        check_type("cache", cache, self.cache, f"{name}_forward")
        if not isinstance(self.like, str):
            return self.like(cache)
        output = getattr(cache, self.like)
        return output.shape, output.dtype

    def _shapes(self, cache: Any) -> Shapes:
        return {name: shape_of(getattr(cache, name)) for name in self._moving}

    def _compute(self, steps: Any, kernel: Any, backend: str, given: list[Any]) -> Any:
        """Let a kernel compute, or the equations if there is none."""
        if kernel is not None and backend != "numpy":
            floats = [x for x in given if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
            if kernels := find_kernels(self.kernels, *floats, backend=backend):
                return kernel(kernels, *given)
        return steps(*given)


def _required(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


@functools.lru_cache(maxsize=1024)  # for tiny arrays a look at all axes takes as long as a step
def _check_shapes(given: tuple[tuple[str, tuple[int, ...], str], ...]) -> None:
    """Check the axes of the inputs: all have to match the first."""
    sizes: dict[str, int] = {}
    to_match = ""
    for name, shape, axes in given:
        check_axes(name, shape, axes, sizes, to_match=to_match)
        to_match = to_match or f"{name} {shape}"


def as_gradient(name: str, d_out: Any, shape: tuple[int, ...], inner: np.dtype[Any]) -> Array:
    """Return the gradient of an output of this shape, in a dtype to compute in."""
    d_out = as_float_array(name, d_out)
    if d_out.shape != shape:
        raise ShapeError(f"{name}: expected {shape}, as {name[2:]}; got {d_out.shape}")
    return d_out.astype(promote(inner, d_out.dtype), copy=False)


def record(values: Values, records: OfValues) -> None:
    """Note steps and constants."""
    for name, axes, *equation in records(values) if callable(records) else records:
        value = values[name]
        if value is None:
            continue
        if equation:
            step(name, value, axes_of(value, axes), *equation)
        else:
            constant(name, value, axes_of(value, axes))


def axes_of(x: Array, axes: str) -> str:
    """Name the axes of (..., D) for the recorder; `axes` is "... D"."""
    ellipsis, *last = axes.split() or [""]
    if ellipsis != "...":
        return axes
    leading = x.ndim - len(last)
    if leading < 0:
        return ""
    names = {0: "", 1: "T", 2: "B T", 3: "B H T"}
    tokens = names.get(leading, " ".join(f"N_{i}" for i in range(leading)))
    return " ".join([tokens, *last]).strip()


def sum_equation(product: str, x: Array) -> str:
    """Write the sum of (..., D) over every token of every sequence."""
    axes = tuple(range(x.ndim - 1))
    if not axes:
        return product
    return f"{product if product.isidentifier() else f'({product})'}.sum(axis={axes})"


def plus(name: str, b: Any) -> str:
    """Write the bias that a map adds, if there is one."""
    return "" if b is None else f" + {name}"
