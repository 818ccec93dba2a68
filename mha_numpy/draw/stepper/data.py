"""What the page knows of a trace: every array, and the equations to compute it by."""

import base64
from typing import Any

import numpy as np

from mha_numpy.draw.stepper.equation import equation_tree
from mha_numpy.dtypes import Array
from mha_numpy.tracing import Step, Trace


def describe_trace(trace: Trace) -> dict[str, Any]:
    """Return what the page computes with, ready for JSON.

    An array has an equation's tree, or else its numbers: inputs, params, and what the page cannot
    compute.
    """
    items = sorted([*trace.constants, *trace.steps], key=lambda s: (s.number, not s.is_constant))
    ids = {id(step): place for place, step in enumerate(items)}
    arrays = []
    for step in items:
        tree = None
        if not step.is_constant:
            recorded, sizes = trace.known_before(step), trace.sizes_before(step)
            tree = equation_tree(step, recorded, sizes, ids)
        arrays.append(
            {
                "name": step.name,
                "axes": step.axes.split(),
                "shape": list(step.array.shape),
                "pass": "param"
                if step.is_constant
                else "backward"
                if step.is_backward
                else "forward",
                "isBool": step.array.dtype.kind == "b",
                "equation": step.equation,
                "memory": step.memory,
                **({"numbers": _numbers(step.array)} if tree is None else {"tree": tree}),
            }
        )
    return {"arrays": arrays, "gradients": _gradients(items)}


def _gradients(items: list[Step]) -> dict[str, str]:
    """Return the name of each array's gradient, where one is on record."""
    names = {step.name: step.array.shape for step in items}
    found = {name: f"d_{name}" for name in names if names.get(f"d_{name}") == names[name]}
    if "d_x" in names:  # an input that three projections read
        found["x_q"] = "d_x"
    return found


def _numbers(array: Array) -> str:
    """Return the numbers in C order as float64, 8 bytes each, in base64."""
    return base64.b64encode(np.ascontiguousarray(array, np.float64).tobytes()).decode()
