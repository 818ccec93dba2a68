"""Numeric derivatives along a direction: central difference and complex step."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_numpy.check.trees import is_float_array, leaves, replaced
from mha_numpy.core.dtypes import Array, allow_complex

TINY_STEP = 1e-30  # a complex step subtracts nothing, so nothing cancels


@dataclass(frozen=True)
class Probe:
    """A direction to differentiate along: one element, or all of them with random signs."""

    label: tuple[int, ...] | str
    index: tuple[int, ...] | None
    signs: Array | None  # +-1 / sqrt(size), in the array's shape

    @property
    def is_direction(self) -> bool:
        """Whether the probe takes part of every element."""
        return self.signs is not None

    def along(self, gradient: Array) -> float:
        """Return the derivative along this direction that a gradient predicts."""
        if self.signs is not None:
            return float((gradient * self.signs).sum())
        return float(gradient[self.index])

    def step_from(self, array: Array, length: complex) -> Array:
        """Return the array moved by `length` along this direction."""
        if self.signs is not None:
            return array + length * self.signs
        moved = array.astype(np.result_type(array, length))
        moved[self.index] += length
        return moved


def make_probes(
    array: Array, rng: np.random.Generator, max_full: int, samples: int, directions: int
) -> list[Probe]:
    """Return every element of a small array, or some elements and directions of a large one."""
    flat = np.arange(array.size)
    if array.size > max_full:
        flat = np.sort(rng.choice(array.size, size=min(samples, array.size), replace=False))
    indices = [tuple(int(i) for i in np.unravel_index(n, array.shape)) for n in flat]
    probes = [Probe(index, index, None) for index in indices]
    if array.size > max_full:
        for number in range(directions):
            signs = rng.choice([-1.0, 1.0], size=array.shape) / np.sqrt(array.size)
            probes.append(Probe(f"direction {number}", None, signs))
    return probes


class Pair:
    """A forward function with its inputs, which can be run with some arrays moved."""

    def __init__(self, forward: Callable[..., Any], inputs: Mapping[str, Any] | Sequence[Any]):
        self.forward = forward
        self.by_keyword = isinstance(inputs, Mapping)
        named = inputs if isinstance(inputs, Mapping) else {str(i): x for i, x in enumerate(inputs)}
        originals = {name: x for name, x in leaves(named).items() if is_float_array(x)}
        self.arrays = {name: np.array(x, dtype=np.float64) for name, x in originals.items()}
        self.inputs = replaced(named, {name: x.copy() for name, x in self.arrays.items()})

    def call(self, function: Callable[..., Any], *first: Any, **moved: Array) -> Any:
        """Call a function with the inputs, some arrays replaced."""
        inputs = replaced(self.inputs, moved) if moved else self.inputs
        return function(*first, **inputs) if self.by_keyword else function(*first, *inputs.values())

    def run(self, **moved: Array) -> tuple[Array, tuple[Any, ...]]:
        """Return forward's output, and its cache as a tuple of one; or empty if it has none."""
        result = self.call(self.forward, **moved)
        if isinstance(result, tuple):
            return np.asarray(result[0]), (result[1],)
        return np.asarray(result), ()


def central_difference(pair: Pair, d_out: Array, name: str, probe: Probe, h: float) -> float:
    """Return ``(f(x + h u) - f(x - h u)) / 2 h`` for f = sum(out * d_out)."""
    array = pair.arrays[name]
    if probe.index is not None:
        h *= max(1.0, abs(float(array[probe.index])))
    ahead, _ = pair.run(**{name: probe.step_from(array, h)})
    behind, _ = pair.run(**{name: probe.step_from(array, -h)})
    # the difference before the sum: what does not depend on x cancels exactly
    return float(((ahead - behind) * d_out).sum() / (2 * h))


def complex_step(pair: Pair, d_out: Array, name: str, probe: Probe) -> float:
    """Return ``Im f(x + i h u) / h`` for f = sum(out * d_out)."""
    with allow_complex():
        out, _ = pair.run(**{name: probe.step_from(pair.arrays[name], 1j * TINY_STEP)})
    return float((out.imag * d_out).sum() / TINY_STEP)


def is_complex_safe(pair: Pair, d_out: Array, rng: np.random.Generator, h: float) -> str:
    """Try whether forward carries a complex step through; return why not, or nothing."""
    for name, array in pair.arrays.items():
        if not array.size:
            continue
        signs = rng.choice([-1.0, 1.0], size=array.shape) / np.sqrt(array.size)
        probe = Probe("trial", None, signs)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                stepped = complex_step(pair, d_out, name, probe)
        except Exception as error:
            return f"no complex step: forward with a complex {name} raises {type(error).__name__}"
        differed = central_difference(pair, d_out, name, probe, h)
        if not abs(stepped - differed) <= 1e-5 * (abs(differed) + 1):
            return f"no complex step: forward does not carry it through from {name}"
    return ""
