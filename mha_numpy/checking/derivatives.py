"""Numerical derivatives along a direction: central difference and complex step."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mha_numpy.checking.trees import is_float_array, leaves, replaced
from mha_numpy.dtypes import Array, allow_complex, as_array
from mha_numpy.errors import ConfigError, describe

EPSILON = float(np.finfo(float).eps)
TINY_STEP = 1e-30  # a complex step subtracts nothing, so nothing cancels


def central_difference(along: Callable[[float], Any], h: float) -> Any:
    """Return the derivative at 0 of a function of one number."""
    return (along(h) - along(-h)) / (2 * h)


@dataclass(frozen=True)
class Probe:
    """A direction to differentiate along: one element, or all of them with random signs.

    `size` is the size of the numbers that it moves; a step is h times as long.
    """

    name: str  # of the array
    label: tuple[int, ...] | str
    size: float
    index: tuple[int, ...] = ()
    direction: Array | None = None  # in the array's shape; None: the element at `index`

    def along(self, gradient: Array) -> float:
        """Return the derivative along this direction that a gradient predicts."""
        if self.direction is not None:
            return float((gradient * self.direction).sum())
        return float(gradient[self.index])

    def step_from(self, array: Array, length: complex) -> Array:
        """Return the array moved by `length` along this direction."""
        if self.direction is not None:
            return array + length * self.direction
        moved = array.astype(np.result_type(array, length))
        moved[self.index] += length
        return moved


def make_probes(
    name: str, array: Array, rng: np.random.Generator, max_full: int, samples: int, directions: int
) -> list[Probe]:
    """Return every element of a small array, or some elements and directions of a large one.

    Elements that are not finite, such as a bias of -inf, cannot be moved and are left out.
    """
    typical = typical_size(array)
    flat = np.flatnonzero(np.isfinite(array))
    is_large = array.size > max_full
    if is_large:
        flat = np.sort(rng.choice(flat, size=min(samples, flat.size), replace=False))
    indices = [tuple(int(i) for i in np.unravel_index(n, array.shape)) for n in flat]
    probes = [Probe(name, at, max(abs(float(array[at])), typical), at) for at in indices]
    if is_large:
        probes += [random_direction(name, array, rng, f"direction {i}") for i in range(directions)]
    return probes


def random_direction(name: str, array: Array, rng: np.random.Generator, label: str) -> Probe:
    """Return a probe that moves every finite element up or down, large ones further."""
    signs = rng.choice([-1.0, 1.0], size=array.shape) / np.sqrt(max(array.size, 1))
    typical = typical_size(array)
    relative = np.maximum(np.abs(array), typical) / typical
    direction = np.where(np.isfinite(array), signs * relative, 0)
    return Probe(name, label, typical, direction=direction)


def typical_size(array: Array) -> float:
    """Return the root mean square of the finite elements; 1 if they are all 0."""
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(finite**2))) or 1.0 if finite.size else 1.0


class Pair:
    """A forward function with its inputs, which can be run with some arrays moved."""

    def __init__(self, forward: Callable[..., Any], inputs: Mapping[str, Any] | Sequence[Any]):
        self.forward = forward
        self.by_keyword = isinstance(inputs, Mapping)
        named = inputs if isinstance(inputs, Mapping) else {str(i): x for i, x in enumerate(inputs)}
        originals = {name: x for name, x in leaves(named).items() if is_float_array(x)}
        self.arrays = {name: np.array(x, dtype=np.float64) for name, x in originals.items()}
        self.inputs = replaced(named, {name: x.copy() for name, x in self.arrays.items()})

    def call(self, function: Callable[..., Any], moved: Mapping[str, Array], *first: Any) -> Any:
        """Call a function with the inputs, some arrays replaced."""
        inputs = replaced(self.inputs, moved) if moved else self.inputs
        return function(*first, **inputs) if self.by_keyword else function(*first, *inputs.values())

    def run(self, moved: Mapping[str, Array]) -> tuple[Array, tuple[Any, ...]]:
        """Return forward's output, and its cache in a tuple, which is empty if there is none.

        The output is copied: forward may write the next one into the same memory.
        """
        result = self.call(self.forward, moved)
        out: Any = result
        cache: tuple[Any, ...] = ()
        if isinstance(result, tuple):
            if len(result) != 2:
                raise ConfigError(
                    f"forward: expected to return out or (out, cache); got {len(result)} things"
                )
            out, cache = result[0], result[1:]
        copied = np.array(as_array("forward", out, "a float array or (out, cache)", ConfigError))
        if copied.dtype.kind not in "fc":
            raise ConfigError(
                f"forward: expected to return a float array or (out, cache); got {describe(out)}"
            )
        return copied, cache

    def check_untouched(self, function: str) -> None:
        """Raise a ConfigError if an input has been changed in place."""
        now = leaves(self.inputs)
        for name, array in self.arrays.items():
            if not np.array_equal(now[name], array, equal_nan=True):
                raise ConfigError(
                    f"{name}: {function} changes its input in place; let it work on a copy"
                )


@dataclass(frozen=True)
class Slopes:
    """Derivatives of f = sum(out * d_out), where a pair's forward gives `out`."""

    pair: Pair
    out: Array
    d_out: Array
    h: float  # step, in sizes of the probe

    def central(self, probe: Probe, share: float = 1.0) -> float:
        """Return ``(f(x + h u) - f(x - h u)) / 2 h``; with `share` for a part of the step."""
        h = share * self.h * probe.size
        # the difference before the sum: what does not depend on x cancels exactly
        slopes = central_difference(partial(self._outputs, probe), h)
        return float((slopes * self.d_out).sum())

    def complex_step(self, probe: Probe) -> float:
        """Return ``Im f(x + i h u) / h``."""
        return float((self.outputs(probe, is_exact=True) * self.d_out).sum())

    def outputs(self, probe: Probe, is_exact: bool) -> Array:
        """Return how fast every output moves: by a complex step, or by a central difference."""
        if not is_exact:
            return np.asarray(
                central_difference(partial(self._outputs, probe), self.h * probe.size)
            )
        h = TINY_STEP * probe.size
        with allow_complex():
            return self._outputs(probe, 1j * h).imag / h

    def is_kink(self, probe: Probe, off: float) -> bool:
        """Return whether a central difference is off because the slope jumps within h.

        Then its halves, the slopes to either side, differ by at least as much. Over four times the
        distance they differ four times as much if f is smooth, and about the same at a jump.
        """

        def gap(step: float) -> float:
            ahead, behind = self._outputs(probe, step), self._outputs(probe, -step)
            bend = (ahead - self.out) - (self.out - behind)
            return abs(float((bend * self.d_out).sum() / step))

        near, far = gap(4 * self.h * probe.size), gap(16 * self.h * probe.size)
        return off <= near and far < 2 * near

    def noise(self, probe: Probe) -> float:
        """Estimate the error that rounding of the output can cause in a central difference."""
        rounding = 4 * EPSILON * float(np.linalg.norm(np.nan_to_num(self.out * self.d_out)))
        return rounding / (self.h * probe.size)

    def why_no_complex_step(self, rng: np.random.Generator) -> str:
        """Try whether forward takes complex numbers; return why not, or nothing."""
        for name, array in self.pair.arrays.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", np.exceptions.ComplexWarning)
                    self.complex_step(random_direction(name, array, rng, "trial"))
            except Exception as error:
                kind = type(error).__name__
                return f"no complex step: forward with a complex {name} raises {kind}"
        return ""

    def _outputs(self, probe: Probe, length: complex) -> Array:
        moved = probe.step_from(self.pair.arrays[probe.name], length)
        out, _ = self.pair.run({probe.name: moved})
        return out
