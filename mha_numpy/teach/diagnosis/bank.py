"""The bank of known mistakes: those of the tasks, and those in how a function behaves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.teach.conventions import CONVENTIONS
from mha_numpy.teach.in_force import InForce
from mha_numpy.teach.task import Edits, Mistake, Task
from mha_numpy.teach.tasks import BUILT_IN

Function = Callable[..., Any]

FLOAT32, IN_PLACE = "float32 inside", "an input changed in place"
ACCUMULATES = "results accumulate between calls"
MISBEHAVIOURS = [
    Mistake(FLOAT32, "part of the computation is in float32", "keep the dtype of the inputs", {}),
    Mistake(IN_PLACE, "an input is changed in place", "work on a copy: x = x * 2, not x *= 2", {}),
    Mistake(ACCUMULATES, "each call adds its results to those of the call before",
            "start every call with np.zeros; no array as a default argument", {}),
]  # fmt: skip

IGNORE_ALL = Mistake(
    "no convention followed",
    "your code follows the usual conventions, and none of those of your variant",
    "follow the conventions in the docstring",
    {},
)
FOLLOWED = "your code follows the usual convention, not that of your variant"
IGNORED = [
    Mistake(one.ignored, f"{FOLLOWED}: {one.sentence}", one.sentence, {})
    for one in CONVENTIONS.values()
]


def _mistakes_of(tasks: Iterable[Task]) -> list[Mistake]:
    """Return all mistakes of some tasks: of two with the same numbers, the first is named first."""
    found = [one for task in tasks for one in task.mistakes if isinstance(one, Mistake)]
    return sorted(found, key=lambda one: not one.is_first)


def _bank_of(tasks: Iterable[Task]) -> dict[str, Mistake]:
    """Return all mistakes of some tasks, and those that show in any function."""
    own = _mistakes_of(tasks)
    return {mistake.name: mistake for mistake in [*own, *MISBEHAVIOURS, *IGNORED, IGNORE_ALL]}


def _edits_of(tasks: Sequence[Task]) -> dict[str, dict[str, Edits]]:
    """Return the edits of each mistake by the task whose file it is."""
    found: dict[str, dict[str, Edits]] = {name: {} for name in _bank_of(tasks)}
    for task in tasks:
        for one in task.mistakes:
            found[one.name][task.name] = one.edits
    return found


MISTAKES = _mistakes_of(BUILT_IN.values())
BANK: Mapping[str, Mistake] = InForce(_bank_of(BUILT_IN.values()), lambda own: _bank_of([own]))
EDITS: Mapping[str, Mapping[str, Edits]] = InForce(
    _edits_of(list(BUILT_IN.values())), lambda own: _edits_of([own])
)


def _narrow(function: Function) -> Function:
    """Compute in float32 and return float64, as if nothing were."""

    def narrowed(*arguments: Any, **named: Any) -> Any:
        narrow = _cast([list(arguments), named], np.float32)
        return _cast(_cast(function(*narrow[0], **narrow[1]), np.float32), np.float64)

    return narrowed


def _cast(tree: Any, dtype: Any) -> Any:
    arrays = {name: leaf for name, leaf in leaves(tree).items() if isinstance(leaf, np.ndarray)}
    floats = {name: leaf.astype(dtype) for name, leaf in arrays.items() if leaf.dtype.kind == "f"}
    return replaced(tree, floats)


def _in_place(function: Function) -> Function:
    """Compute rightly, and leave the first float array doubled."""

    def changing(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        given = [*leaves(list(arguments)).values(), *leaves(named).values()]
        for leaf in given:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.flags.writeable:
                leaf *= 2
                break
        return result

    return changing


def _accumulating(function: Function) -> Function:
    """Add to each result those before it, as long as the shapes are the same."""
    kept: dict[str, Any] = {}

    def adding(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        now = {name: np.array(leaf) for name, leaf in leaves(result).items()}
        for name, leaf in now.items():
            before = kept.get(name)
            if before is not None and before.shape == leaf.shape and leaf.dtype.kind == "f":
                now[name] = before + leaf
        kept.update(now)
        return replaced(result, now)

    return adding


WRAPPERS: dict[str, Callable[[Function], Function]] = {
    FLOAT32: _narrow,
    IN_PLACE: _in_place,
    ACCUMULATES: _accumulating,
}
