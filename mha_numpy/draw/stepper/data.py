"""What the page knows of a trace: each buffer once, and each step as a view of one.

A step is (buffer, offset, strides), as in NumPy, so that the page reads a cell through its strides.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.draw.blocks import cut_step
from mha_numpy.draw.stepper.packing import pack
from mha_numpy.dtypes import Array
from mha_numpy.tracing import Step, Trace
from mha_numpy.tracing.sources import Origin, Source


class View(NamedTuple):
    """Where the cells of an array lie in a buffer, counted in numbers."""

    buffer: int
    offset: int
    strides: list[int]


def buffers_of(arrays: Sequence[Array]) -> tuple[list[Array], list[View]]:
    """Return flat buffers, and each array as a view of one of them.

    Arrays whose memory overlaps share a buffer, unless most of it would belong to none of them or
    they disagree about its numbers.
    """
    arrays = [np.asarray(array) for array in arrays]  # a NumPy scalar has no address of its own
    spans = [_span(array) for array in arrays]
    groups: list[list[int]] = []
    end = -1
    for i in sorted(range(len(arrays)), key=lambda i: spans[i]):
        if spans[i][0] >= end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, spans[i][1])

    buffers: list[Array] = []
    views: dict[int, View] = {}
    for group in groups:
        first = min(spans[i][0] for i in group)
        shared = _shared_buffer([arrays[i] for i in group], first, max(spans[i][1] for i in group))
        if shared is not None:
            for i in group:
                itemsize = arrays[i].itemsize
                offset = (_address(arrays[i]) - first) // itemsize
                strides = [n // itemsize for n in arrays[i].strides]
                views[i] = View(len(buffers), offset, strides)
            buffers.append(shared)
            continue
        for i in group:  # each for itself, in C order
            own = np.ascontiguousarray(arrays[i]).reshape(arrays[i].shape)
            views[i] = View(len(buffers), 0, [n // own.itemsize for n in own.strides])
            buffers.append(own.ravel())
    return buffers, [views[i] for i in range(len(arrays))]


def _address(array: Array) -> int:
    """Return where the first cell lies."""
    return int(array.__array_interface__["data"][0])


def _span(array: Array) -> tuple[int, int]:
    """Return the addresses of the first byte and past the last, wherever strides lead."""
    if array.size == 0:
        return _address(array), _address(array)
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    first = _address(array)
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return first + low, first + high + array.itemsize


def _shared_buffer(arrays: Sequence[Array], first: int, end: int) -> Array | None:
    """Return the numbers from one address to another, None where they are not worth sharing."""
    itemsize = arrays[0].itemsize
    in_step = all(
        array.dtype == arrays[0].dtype
        and all(n % itemsize == 0 for n in (*array.strides, _address(array) - first))
        for array in arrays
    )
    size = (end - first) // itemsize
    if not in_step or size > 2 * max(array.size for array in arrays):
        return None
    buffer = np.zeros(size, arrays[0].dtype)
    for array in arrays:
        strides = [n // itemsize for n in array.strides]
        places = np.full(array.shape, (_address(array) - first) // itemsize)
        for axis, stride in enumerate(strides):
            along = [-1 if i == axis else 1 for i in range(array.ndim)]
            places += stride * np.arange(array.shape[axis]).reshape(along)
        buffer[places] = array
    return buffer


class Pool:
    """Values that occur often, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, value: Any) -> int:
        """Return the number of a value, which is new or known."""
        key = json.dumps(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class Pools(NamedTuple):
    """What steps share."""

    tables: Pool  # a number for each index along an axis
    layouts: Pool
    reads: Pool
    params: Pool


def describe_steps(trace: Trace, sequence: int) -> dict[str, Any]:
    """Return what the page shows, ready for JSON."""
    steps = trace.steps
    buffers, views = buffers_of([_one_sequence(step, sequence) for step in steps])
    pools = Pools(Pool(), Pool(), Pool(), Pool())
    described = []
    for step, view in zip(steps, views, strict=True):
        described.append(
            {
                "number": step.number,
                "name": step.name,
                "pass": "backward" if step.is_backward else "forward",
                "axes": step.axes.split(),
                "shape": list(step.array.shape),
                "bytes": list(step.array.strides),
                "dtype": str(step.array.dtype),
                "memory": step.memory,
                "equation": step.equation,
                "buffer": view.buffer,
                "offset": view.offset,
                "strides": _with_batch(view.strides, step),
                "layout": _layout(step, sequence, steps, pools),
                "origin": _origin(trace.origin_of(step), steps, pools),
            }
        )
    return {
        "sequence": sequence,
        "buffers": [pack(buffer)._asdict() for buffer in buffers],
        "steps": described,
        **{name: pool.values for name, pool in pools._asdict().items()},
    }


def _batch_axis(step: Step) -> int | None:
    """Return which axis is B."""
    axes = step.axes.split()
    return axes.index("B") if "B" in axes else None


def _one_sequence(step: Step, sequence: int) -> Array:
    """Return a view of one sequence of the batch."""
    at = _batch_axis(step)
    if at is None:
        return step.array
    chosen: Any = (*[slice(None)] * at, sequence)
    return step.array[chosen]


def _with_batch(strides: list[int], step: Step) -> list[int]:
    """Insert a stride of 0 for the axis B, of which the page holds one sequence."""
    at = _batch_axis(step)
    return strides if at is None else [*strides[:at], 0, *strides[at:]]


def _origin(origin: Origin, steps: Sequence[Step], pools: Pools) -> dict[str, Any]:
    """Describe how a step came to be."""
    condition = origin.condition
    return {
        "form": origin.form,
        "sources": [_source(source, steps, pools) for source in origin.sources],
        "names": origin.names,
        "condition": None if condition is None else _source(condition, steps, pools),
    }


def _source(source: Source, steps: Sequence[Step], pools: Pools) -> dict[str, Any]:
    """Describe an array and which of its cells are read."""
    return {"array": _number_of(source, steps, pools), "reads": _reads(source, pools)}


def _reads(source: Source, pools: Pools) -> list[int]:
    """Describe which indices along each axis are read."""
    return [
        pools.reads.add(
            {
                "starts": [[axis, pools.tables.add(table)] for axis, table in read.starts],
                "length": read.length,
            }
        )
        for read in source.reads
    ]


def _number_of(source: Source, steps: Sequence[Step], pools: Pools) -> int:
    """Return the number of a source: the steps from 0 on, behind them the params."""
    if not source.is_constant:
        return source.step.number - 1
    param = {
        "name": source.name,
        "axes": source.axes,
        "shape": source.step.array.shape,
        "layout": _layout(source.step, 0, steps, pools),
    }
    return len(steps) + pools.params.add(param)


def _layout(step: Step, sequence: int, steps: Sequence[Step], pools: Pools) -> int:
    """Describe the blocks of a step, cut as in the shape film.

    An array of its own indices is cut; a cell's block, row and column are then a sum of look-ups,
    one for each axis.
    """
    numbered = np.arange(step.array.size, dtype=np.float64).reshape(step.array.shape)
    blocks = cut_step(replace(step, array=numbered), sequence, list(steps))
    places = []
    one = _one_sequence(replace(step, array=numbered), sequence)
    order = np.argsort(blocks.values, axis=None).reshape(one.shape)  # where each cell went
    for axis, size in enumerate(one.shape):
        along = tuple(slice(None) if i == axis else 0 for i in range(one.ndim))
        went = (
            np.unravel_index(order[along], blocks.values.shape) if one.size else ([0] * size,) * 3
        )
        places.append([pools.tables.add([int(n) for n in table]) for table in went])
    at = _batch_axis(step)
    if at is not None:
        zeros = pools.tables.add([0] * step.array.shape[at])
        places.insert(at, [zeros] * 3)
    layout = {
        "places": places,
        "shape": list(blocks.values.shape),
        "across": blocks.across,
        "spread": blocks.spread,
        "rowAxis": blocks.row_axis,
        "columnAxis": blocks.column_axis,
        "colors": list(blocks.colors),
        "labels": list(blocks.labels),
    }
    return pools.layouts.add(layout)
