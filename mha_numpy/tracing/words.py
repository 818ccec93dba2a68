"""What a cell was computed from, in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mha_numpy.checks import check_integer
from mha_numpy.errors import ConfigError, describe
from mha_numpy.tracing.sources import Origin, Source, origin_of
from mha_numpy.tracing.step import Step

HOW_MOVED = {"view": "moved without copying", "copy": "copied", "is": "under another name"}


def explain(steps: Sequence[Step], step: Step, index: Sequence[int]) -> str:
    """Say which cells of earlier arrays a cell was computed from; `Trace.explain` tells more."""
    at = _check_index(step, index)
    first, came, moved = step, at, "moved without copying"
    origin = origin_of(steps, step)
    while origin.form == "moved":  # to where its number was computed
        moved = _how_moved(first, moved)
        (source,) = origin.sources
        came = tuple(span.start for span in source.at(came))
        first = source.step or first
        origin = origin_of(steps, first)
    told = f"{_cell(step, at)} {_told(origin, first, came)}"
    if first is step:
        return told
    return f"{told}; it is the same number as {_cell(first, came)}, {moved}"


def _told(origin: Origin, step: Step, index: tuple[int, ...]) -> str:
    """Say what a cell was computed from."""
    if origin.form == "input":
        return "is an input"
    if origin.form == "unknown":
        return _unknown(origin, step)
    spans = [_span(source, index) for source in origin.sources]
    if origin.form == "masked" and _is_hidden_here(origin, step, index):
        return f"is hidden: the mask puts -inf in the place of {spans[0]}"
    told = f"came from {' and '.join(dict.fromkeys((*spans, *origin.others)))}"
    if origin.form == "rows":
        told += ", the whole row" if len(spans) == 1 else ", whole rows"
    if origin.form == "turned" and len(set(spans)) == 2:
        told += ", two features that turn together"
    return told


def _unknown(origin: Origin, step: Step) -> str:
    """Say what is known where the cells are not."""
    if not step.equation:
        return f"is of a {step.memory}; how it lies there is not on record"
    computed = f"from {' and '.join(origin.others)}, " if origin.others else ""
    return f"was computed {computed}by `{step.equation}`; from which cells is not on record"


def _is_hidden_here(origin: Origin, step: Step, index: tuple[int, ...]) -> bool:
    """Return whether a cell is -inf though its source is not."""
    (source,) = origin.sources
    before = -np.inf if source.step is None else source.step.array[index]
    return bool(np.isneginf(step.array[index].real) and not np.isneginf(before.real))


def _how_moved(step: Step, so_far: str) -> str:
    """Say how a number came from one array to another: one copy on the way is enough."""
    kind = step.memory.split()[0]
    if so_far == HOW_MOVED["copy"] or kind not in ("view", "is"):
        return HOW_MOVED["copy"]
    return HOW_MOVED[kind] if kind == "is" else so_far


def _cell(step: Step, index: Sequence[int]) -> str:
    """Write one cell: q[0,1,2,1]."""
    return f"{step.name}[{','.join(map(str, index))}]"


def _span(source: Source, index: tuple[int, ...]) -> str:
    """Write the cells that are read: x_q[0,2,:], d_scores[0,2:4,:,3], column 5 of w_q."""
    texts = [
        ":" if read.length == read.size > 1
        else str(span.start) if read.length == 1
        else f"{span.start}:{span.stop}"
        for read, span in zip(source.reads, source.at(index), strict=True)
    ]  # fmt: skip
    if source.step is not None:
        return f"{source.name}[{','.join(texts)}]"
    if len(texts) == 1:
        return f"entry {texts[0]} of {source.name}"
    row, column = texts
    return f"column {column} of {source.name}" if row == ":" else f"row {row} of {source.name}"


def _check_index(step: Step, index: Any) -> tuple[int, ...]:
    """Return the index of one cell, or raise a ConfigError that names the axes."""
    try:
        numbers = tuple(check_integer("index", i) for i in index)
    except TypeError:
        raise ConfigError(f"index: expected integers; got {describe(index)}") from None
    sizes = list(zip(step.axes.split(), step.array.shape, strict=False))
    if len(numbers) != step.array.ndim or not all(
        0 <= i < n for i, n in zip(numbers, step.array.shape, strict=True)
    ):
        ranges = ", ".join(f"0 <= {axis} < {n}" for axis, n in sizes)
        raise ConfigError(f"index: expected a cell of {step.name}, {ranges}; got {numbers}")
    return numbers
