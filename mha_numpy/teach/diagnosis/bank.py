"""The bank of known mistakes: those of the tasks, and those in how a function behaves."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.teach.conventions import CONVENTIONS
from mha_numpy.teach.task import Edits, Mistake
from mha_numpy.teach.tasks import TASKS

Function = Callable[..., Any]

FLOAT32, IN_PLACE = "float32 inside", "an input changed in place"
ACCUMULATES = "results accumulate between calls"
MISBEHAVIOURS = [
    Mistake(FLOAT32, "part of the computation is in float32", "keep the dtype of the inputs", {}),
    Mistake(IN_PLACE, "an input is changed in place", "work on a copy: x = x * 2, not x *= 2", {}),
    Mistake(ACCUMULATES, "each call adds its results to those of the call before",
            "start every call with np.zeros; no array as a default argument", {}),
]  # fmt: skip

# where two mistakes give the same numbers, the first of them is named first
MISTAKES = [one for task in TASKS.values() for one in task.mistakes if isinstance(one, Mistake)]
MISTAKES.sort(key=lambda one: not one.is_first)
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
BANK = {mistake.name: mistake for mistake in [*MISTAKES, *MISBEHAVIOURS, *IGNORED, IGNORE_ALL]}
EDITS: dict[str, dict[str, Edits]] = {name: {} for name in BANK}  # by the task whose file it is
for _task in TASKS.values():
    for _one in _task.mistakes:
        EDITS[_one.name][_task.name] = _one.edits


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
