"""The stages of attention, and the settings that each of them reads."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
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
    usual: Settings


ORDER = (
    "take", "project", "split", "rotate", "group", "match", "see", "normalise", "mix", "finish",
)  # fmt: skip
MOST_KEPT = 500  # stages of a problem; a long search would fill the memory
STAGES: dict[str, Stage] = {}
SETTINGS: dict[str, tuple[Any, ...]] = {}  # the usual value is the first
USUAL: dict[str, Any] = {}


def stage(**settings: tuple[Any, ...]) -> Callable[[Compute], Compute]:
    """Add a function to the stages, with the settings that it reads and their values."""

    def add(compute: Compute) -> Compute:
        name, usual = compute.__name__, {name: values[0] for name, values in settings.items()}
        SETTINGS.update(settings)
        USUAL.update(usual)
        STAGES[name] = Stage(name, compute, usual)
        return compute

    return add


def evaluate(problem: Problem, settings: Settings) -> dict[str, Any] | None:
    """Compute everything that attention of these settings computes, by name.

    None if it cannot be computed, as where a sum has arrays of different shapes. Stages that were
    computed before with the same settings are not computed again.
    """
    unusual: dict[str, list[tuple[str, Any]]] = {}  # by stage
    for setting in sorted(settings):
        if settings[setting] != USUAL[setting]:
            unusual.setdefault(first_stage(setting), []).append((setting, settings[setting]))
    values = problem.given
    key: tuple[Any, ...] = ()  # a stage depends on its settings and on those of earlier stages
    with np.errstate(all="ignore"):
        for name in ORDER:
            own = unusual.get(name, ())
            key = (*key, *own)
            if (name, key) not in problem.memo:
                for oldest in [*islice(problem.memo, max(0, len(problem.memo) - MOST_KEPT))]:
                    del problem.memo[oldest]
                problem.memo[name, key] = _compute(STAGES[name], values, dict(own), problem)
            known = problem.memo[name, key]
            if known is None:
                return None
            values = known
    return values


def _compute(
    stage: Stage, values: dict[str, Any], own: Settings, problem: Problem
) -> dict[str, Any] | None:
    """Return the values with those of a stage, None if it cannot be computed."""
    try:
        chosen = SimpleNamespace(**{**stage.usual, **own})
        new = stage.compute(SimpleNamespace(**values), chosen, problem)
    except (ValueError, IndexError, AttributeError, KeyError, TypeError, ZeroDivisionError):
        return None
    return {**values, **new}


@cache
def first_stage(setting: str) -> str:
    """Return the name of the stage that reads a setting."""
    return next(stage.name for stage in STAGES.values() if setting in stage.usual)


def softmax(scores: Array, axis: Any) -> Array:
    """Return the softmax over axes; rows without a number above -inf are NaN, as usual."""
    largest = scores.max(axis=axis, keepdims=True, initial=-np.inf)
    e = np.exp(scores - largest)
    return e / e.sum(axis=axis, keepdims=True)
