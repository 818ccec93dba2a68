"""A function that is asked for its gradients: its inputs, and the gradient of its output."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.derivatives import central_difference
from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.layouts import arrange, parts_of_axis
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import SHARED
from mha_numpy.identifying.family import AXES, Problem, evaluate
from mha_numpy.identifying.searching.search import ROLE_OF, Found

GIVEN_ONLY = (
    "dropout_mask", "cos", "sin", "cos_sin", "mask", "more_mask", "lengths", "q_lengths",
    "positions", "k_positions", "segments", "q_segments",
)  # fmt: skip


class Leaf(NamedTuple):
    """An array that a function is given, or has itself, whose gradient can be asked for."""

    argument: str
    role: str
    layout: str
    is_hidden: bool = False  # the function has it itself

    @property
    def label(self) -> str:
        """Return how the array is called in the function, without what holds it."""
        return ".".join(re.findall(r"\['?([^]']+)'?\]", self.argument)) or self.argument

    def as_passed(self, d: Array, problem: Problem) -> Array:
        """Return a gradient in the layout of its array: summed over the axes that this lacks."""
        wanted, axes = self.layout.split(), AXES[self.role]
        if d.ndim != len(axes.split()):
            return d
        for at, axis in enumerate(axes.split()):
            if axis not in wanted and not {*parts_of_axis(axis, wanted)} <= {*wanted}:
                d = d.sum(at, keepdims=True)
        try:
            return arrange(d, axes, self.layout, problem.sizes)
        except ValueError:  # a mistake's shape
            return d


class Trial(NamedTuple):
    """A function, called in the way that was found, and the gradient of its output."""

    subject: Subject
    found: Found
    problem: Problem
    leaves: list[Leaf]
    d_out: Array  # with the axes of the family
    d_passed: Array  # as the function returns its output

    @property
    def few(self) -> float:
        """Return the largest relative difference of a right gradient."""
        return 1e-5 if self.found.fits[0].error < 1e-9 else 5e-3  # it computes in float32

    def given(self) -> dict[str, Any]:
        """Return the arguments."""
        return self.found.seen.way.given(self.problem)

    def shapes(self) -> dict[Leaf, tuple[int, ...]]:
        """Return the shape of each array."""
        given, hidden = self.given(), self.subject.hidden
        arrays = {x: (hidden if x.is_hidden else given)[x.argument] for x in self.leaves}
        return {leaf: np.shape(array) for leaf, array in arrays.items()}

    def output(self, given: Mapping[str, Any]) -> Array | None:
        """Return the function's output."""
        return dict(self.subject.call(given).arrays).get(self.found.fits[0].path)

    def loss(self, given: Mapping[str, Any]) -> float:
        """Return the sum of the output times its gradient, as the function computes it."""
        return _sum(self.output(given), self.d_passed)

    def family_loss(self, problem: Problem) -> float:
        """Return the same sum, as the family computes it."""
        values = evaluate(problem, self.found.settings)
        return _sum(values[self.found.fits[0].what] if values else None, self.d_out)

    def slope(self, leaf: Leaf, direction: Array) -> float:
        """Return the derivative of the loss along a direction of an array."""
        given = self.given()

        def moved(by: float) -> float:
            return self.loss({**given, leaf.argument: given[leaf.argument] + by * direction})

        return float(central_difference(moved, 10 * self.few))


def make_trial(subject: Subject, found: Found) -> Trial:
    """Draw the gradient of the output; it is 0 where the output is not finite, or a mere mean.

    A mean comes of scores of -1e9, through which a backward may go as if they were not constant.
    """
    problem, fit, way = found.seen.problem, found.fits[0], found.seen.way
    values = evaluate(problem, found.settings) or {}
    out, has_keys = values[fit.what], values["visible"].any(-1, keepdims=True)
    if found.settings.get("blind") == "mean of all values":
        own = has_keys if fit.what == "out" else has_keys.all(1)
        out = np.where(own, out, np.nan)
    d_out = np.where(np.isfinite(out), np.random.default_rng(5).normal(size=out.shape), 0.0)
    d_passed = arrange(d_out, AXES[ROLE_OF.get(fit.what, fit.what)], fit.layout, problem.sizes)
    leaves = [Leaf(name, slot.role, slot.layout) for name, slot in way.slots.items()]
    leaves += [
        Leaf(name, slot.role, slot.layout, is_hidden=True)
        for name, slot in way.hidden.items()
        if slot.layout not in SHARED
    ]
    asked = [x for x in leaves if x.layout and x.role in AXES and x.role not in GIVEN_ONLY]
    return Trial(subject, found, problem, asked, d_out, d_passed)


def _sum(out: Array | None, d: Array) -> float:
    if out is None or out.shape != d.shape:
        return np.nan
    return float(np.where(d == 0, 0, out * d).sum())
