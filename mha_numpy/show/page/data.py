"""What the page knows of a trace: every array, and the equations to compute it by."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checking.tracing.equations import names_in
from mha_numpy.show.page.equation import equation_tree, numbers_of
from mha_numpy.show.page.says import says
from mha_numpy.show.page.switches import switches_of
from mha_numpy.show.scenes.story import TOTALS

STARTS = ("scores", "weights", "out")  # the page opens at the first of these that is on record


def describe_trace(trace: Trace) -> dict[str, Any]:
    """Return what the page computes with, ready for JSON.

    An array has an equation's tree, or else its numbers: inputs, params, and what the page cannot
    compute.
    """
    items, ids = items_of(trace)
    last = {step.name: step for step in items}
    return {
        "arrays": [_describe(step, trace, ids) for step in items],
        "gradients": _gradients(last),
        "options": _options(last),
        "switches": switches_of(trace, last, ids),
        "start": next((name for name in STARTS if name in last), items[0].name),
    }


def items_of(trace: Trace) -> tuple[list[Step], dict[int, int]]:
    """Return what the page shows, in order, and the place of each by its ``id``.

    A constant that is noted again, as by backward, is the one from before; one that no equation
    names is left out.
    """
    trees = [trace.tree_of(step) for step in trace]
    named = {name for tree in trees if tree is not None for name in names_in(tree)}
    constants = [step for step in trace.constants if step.name in named]
    items: list[Step] = []
    ids = {}
    for step in sorted([*constants, *trace.steps], key=lambda s: (s.number, not s.is_constant)):
        twins = (place for place, item in enumerate(items) if _is_again(step, item))
        place = next(twins, len(items))
        if place == len(items):
            items.append(step)
        ids[id(step)] = place
    return items, ids


def _is_again(step: Step, item: Step) -> bool:
    is_twin = step.is_constant and item.is_constant and step.name == item.name
    return is_twin and np.array_equal(step.array, item.array, equal_nan=True)


def _describe(step: Step, trace: Trace, ids: Mapping[int, int]) -> dict[str, Any]:
    tree = None
    if not step.is_constant:
        tree = equation_tree(trace.tree_of(step), trace.known_before(step), ids)
    kind = "backward" if step.is_backward else "forward"
    return {
        "name": step.name,
        "axes": step.axes.split(),
        "shape": list(step.array.shape),
        "pass": "param" if step.is_constant else kind,
        "isBool": step.array.dtype.kind == "b",
        "isInteger": step.array.dtype.kind in "iu",
        "equation": step.equation,
        "says": says(step.name),
        **({"numbers": numbers_of(step.array)} if tree is None else {"tree": tree}),
    }


def _gradients(last: Mapping[str, Step]) -> dict[str, str]:
    found = {
        name: f"d_{name}" for name, step in last.items()
        if f"d_{name}" in last and last[f"d_{name}"].array.shape == step.array.shape
    }  # fmt: skip
    return found | {name: total for name, total in TOTALS.items() if {name, total} <= last.keys()}


def _options(last: Mapping[str, Step]) -> dict[str, Any]:
    of_cells = [name for name, step in last.items() if step.axes.split()[-2:] == ["T_q", "T_k"]]
    masks = [name for name in ("mask", "visible") if name in of_cells]
    names = {"scale": "scale", "heads": "head_gate"}
    found: dict[str, Any] = {"causal": {"mask": masks[0]}} if masks else {}
    return found | {option: name for option, name in names.items() if name in last}
