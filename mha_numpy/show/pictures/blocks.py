"""One recorded step, cut into one block of cells for each head."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mha_numpy.checking.tracing import Step
from mha_numpy.dtypes import Array


class Blocks(NamedTuple):
    """One step, cut into equal blocks that lie on a grid."""

    values: Array  # (blocks, rows, columns)
    colors: Sequence[str]  # of each block: a token such as head-0
    labels: Sequence[str]  # of each block: its query heads; none without heads
    is_shared: bool  # whether a block serves several query heads
    across: int  # blocks in a row of the grid
    spread: str  # "touching", "in row" (a row is cut into pieces), or "apart"
    row_axis: str
    column_axis: str


def cut_step(step: Step, sequence: int, recorded: list[Step]) -> Blocks:
    """Cut one sequence's array into one block per head, by the names of its axes."""
    names = step.axes.split()
    array = step.array.astype(np.result_type(step.array, np.float64), copy=False)
    if "B" in names:
        array = np.take(array, sequence, axis=names.index("B"))
        names.remove("B")
    stretched = tuple(i for i, axis in enumerate(names) if axis == "1" and array.shape[i] == 1)
    array = array.squeeze(stretched)
    names = [axis for i, axis in enumerate(names) if i not in stretched]
    if array.size == 0:
        return Blocks(np.empty((1, 0, 0)), ["plain"], [], False, 1, "touching", "", "")
    if not names:
        array, names = array.reshape(1), [""]
    heads = [
        (i, axis, *_heads_of(step, array.shape[i], axis, recorded)) for i, axis in enumerate(names)
    ]
    at, axis, H, group = max(heads, key=lambda head: (head[2] > 0, "*" not in head[1], head[0]))
    if H == 0:  # no head axis: one grey block
        rest = " ".join(names[:-1])
        values = array.reshape(1, math.prod(array.shape[:-1]), array.shape[-1])
        return Blocks(values, ["plain"], [], False, 1, "touching", rest, names[-1])

    others = names[:at] + names[at + 1 :]
    rest, last = " ".join(others[:-1]), others[-1] if others else ""
    inner = array.shape[at] // H
    if at == len(names) - 1:  # the columns belong to heads
        values = np.moveaxis(array.reshape(math.prod(array.shape[:-1]), H, inner), 1, 0)
        across, spread, row_axis, column_axis = H, "touching", " ".join(others), axis
    else:
        moved = np.moveaxis(array, at, 0)
        values = moved.reshape(H, inner * math.prod(moved.shape[1:-1]), moved.shape[-1])
        if "*" in axis or len(names) == 2:  # the rows belong to heads
            across, spread, row_axis, column_axis = 1, "touching", f"{axis} {rest}".strip(), last
        elif at == len(names) - 2:  # every row is cut into pieces, one for each head
            across, spread, row_axis, column_axis = H, "in row", rest, f"{axis}, {last}"
        else:
            across, spread, row_axis, column_axis = _blocks_across(values), "apart", rest, last
    colors = [f"head-{g * group % 8}" for g in range(H)]
    labels = [f"{g * group}-{(g + 1) * group - 1}" if group > 1 else str(g) for g in range(H)]
    return Blocks(values, colors, labels, group > 1, across, spread, row_axis, column_axis)


def _heads_of(step: Step, size: int, axis: str, recorded: list[Step]) -> tuple[int, int]:
    """Return how many heads an axis holds, 0 if none, and how many query heads each serves."""
    first, *factors = axis.split("*")
    if first not in ("H", "H_kv"):
        return 0, 1
    H = _size_near(step, first, recorded) if factors else size
    if H == 0 or size % H:
        return 0, 1
    queries = _size_near(step, "H", recorded) if first == "H_kv" else H
    return H, queries // H if queries and queries % H == 0 else 1


def _size_near(step: Step, axis: str, recorded: list[Step]) -> int:
    """Return the size of an axis in the nearest step that has it, or 0."""
    near = sorted(recorded, key=lambda other: abs(other.number - step.number))
    sizes = (dict(zip(s.axes.split(), s.array.shape, strict=False)) for s in near)
    return next((found[axis] for found in sizes if axis in found), 0)


def _blocks_across(values: Array) -> int:
    """Choose how many blocks stand side by side: about a square, without holes if possible."""
    H, rows, columns = values.shape
    divisors = [n for n in range(1, H + 1) if H % n == 0]
    if H > 3 and len(divisors) == 2:
        return math.ceil(math.sqrt(H))
    sides = {n: max(n * (columns + 1), H // n * (rows + 1)) for n in divisors}
    return min(divisors, default=1, key=lambda n: (sides[n], n == H, -n))


def is_hidden(values: Array) -> Array:
    """Return where the values are -inf."""
    return np.isneginf(values.real)


def is_broken(values: Array) -> Array:
    """Return where the values are NaN or +inf."""
    return ~np.isfinite(values) & ~is_hidden(values)
