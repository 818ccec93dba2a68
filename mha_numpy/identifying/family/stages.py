"""The stages of attention, and the settings that each of them reads."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.problem import Problem

Settings = Mapping[str, Any]  # only those that are not usual
Compute = Callable[[SimpleNamespace, SimpleNamespace, Problem], dict[str, Any]]


class Stage(NamedTuple):
    """A step of attention: its settings, and what it computes of what came before."""

    name: str
    compute: Compute
    settings: tuple[str, ...]


ORDER = (
    "take", "project", "split", "rotate", "group", "match", "see", "normalise", "mix", "finish",
)  # fmt: skip
STAGES: dict[str, Stage] = {}
SETTINGS: dict[str, tuple[Any, ...]] = {}  # the usual value is the first
USUAL: dict[str, Any] = {}


def stage(**settings: tuple[Any, ...]) -> Callable[[Compute], Compute]:
    """Add a function to the stages, with the settings that it reads and their values."""

    def add(compute: Compute) -> Compute:
        SETTINGS.update(settings)
        USUAL.update({name: values[0] for name, values in settings.items()})
        STAGES[compute.__name__] = Stage(compute.__name__, compute, tuple(settings))
        return compute

    return add


def evaluate(problem: Problem, settings: Settings) -> dict[str, Any] | None:
    """Compute everything that attention of these settings computes, by name.

    None if it cannot be computed, as where a sum has arrays of different shapes. Stages that were
    computed before with the same settings are not computed again.
    """
    key: tuple[Any, ...] = ()
    values: dict[str, Any] | None = problem.given
    for name, compute, names in (STAGES[name] for name in ORDER):
        key = (*key, name, *(settings.get(setting, USUAL[setting]) for setting in names))
        if key not in problem.memo:
            chosen = SimpleNamespace(**{n: settings.get(n, USUAL[n]) for n in names})
            try:
                with np.errstate(all="ignore"):
                    new = compute(SimpleNamespace(**values), chosen, problem)
                problem.memo[key] = {**values, **new}
            except (ValueError, IndexError, AttributeError, KeyError, TypeError):
                problem.memo[key] = None
        values = problem.memo[key]
        if values is None:
            return None
    return values


def first_stage(setting: str) -> str:
    """Return the name of the stage that reads a setting."""
    return next(stage.name for stage in STAGES.values() if setting in stage.settings)


def softmax(scores: Array, axis: Any) -> Array:
    """Return the softmax over axes; rows without a number above -inf are NaN, as usual."""
    largest = scores.max(axis=axis, keepdims=True, initial=-np.inf)
    e = np.exp(scores - largest)
    return e / e.sum(axis=axis, keepdims=True)
