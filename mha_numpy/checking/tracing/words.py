"""The cells that a cell was computed from, in words."""

from collections.abc import Callable, Sequence
from typing import Any

from mha_numpy.checking.tracing.sources import Origin, Source
from mha_numpy.checking.tracing.step import Step
from mha_numpy.checks import check_integer
from mha_numpy.errors import ConfigError, describe

HOW_MOVED = {"view": "moved without copying", "copy": "copied", "is": "under another name"}


def explain(origin_of: Callable[[Step], Origin], step: Step, index: Sequence[int]) -> str:
    """Say which cells of earlier arrays a cell was computed from; `Trace.explain` says more."""
    at = _check_index(step, index)
    first, came, moved = step, at, "moved without copying"
    origin = origin_of(step)
    while origin.form == "moved":  # to where its number was computed
        moved = _how_moved(first, moved)
        (source,) = origin.sources
        came = tuple(span.start for span in source.at(came))
        first = source.step
        origin = origin_of(first)
    words = f"{_cell(step, at)} {_words(origin, first, came)}"
    if first is step:
        return words
    return f"{words}; it is the same number as {_cell(first, came)}, {moved}"


def _words(origin: Origin, step: Step, index: tuple[int, ...]) -> str:
    if origin.form == "input":
        return "is an input"
    if origin.form == "unknown":
        return _unknown(origin, step)
    if origin.condition is not None and not _value(origin.condition, index):
        return f"is hidden: the mask puts {step.array[index]:g} in its place"
    spans = list(dict.fromkeys(_span(source, index) for source in origin.sources))
    words = f"came from {' and '.join(spans)}"
    if origin.form == "rows":
        words += ", the whole row" if len(spans) == 1 else ", whole rows"
    turned = {_span(source, index) for source in origin.sources if not source.is_constant}
    if origin.form == "turned" and len(turned) == 2:
        words += ", two features that turn together"
    return words


def _value(source: Source, index: tuple[int, ...]) -> Any:
    return source.step.array[tuple(span.start for span in source.at(index))]


def _unknown(origin: Origin, step: Step) -> str:
    if not step.equation:
        return f"is of a {step.memory}; how it lies there is not on record"
    computed = f"from {' and '.join(origin.names)}, " if origin.names else ""
    return f"was computed {computed}by `{step.equation}`; from which cells is not on record"


def _how_moved(step: Step, so_far: str) -> str:
    """Say how a number moved from one array to another; one copy on the way makes it a copy."""
    kind = step.memory.split()[0]
    if so_far == HOW_MOVED["copy"] or kind not in ("view", "is"):
        return HOW_MOVED["copy"]
    return HOW_MOVED[kind] if kind == "is" else so_far


def _cell(step: Step, index: Sequence[int]) -> str:
    """Write one cell: q[0,1,2,1]."""
    return f"{step.name}[{','.join(map(str, index))}]"


def _span(source: Source, index: tuple[int, ...]) -> str:
    """Write the cells that are read: x_q[0,2,:], d_scores[0,2:4,:,3], column 5 of w_q."""
    sizes = source.step.array.shape
    texts = [
        ":" if len(span) == size > 1 else str(span.start) if len(span) == 1
        else f"{span.start}:{span.stop}"
        for span, size in zip(source.at(index), sizes, strict=True)
    ]  # fmt: skip
    if not texts:
        return source.name
    if source.is_constant and len(texts) == 1:
        return f"entry {texts[0]} of {source.name}"
    if source.is_constant and len(texts) == 2 and ":" in texts:
        row, column = texts
        return f"column {column} of {source.name}" if row == ":" else f"row {row} of {source.name}"
    return f"{source.name}[{','.join(texts)}]"


def _check_index(step: Step, index: Any) -> tuple[int, ...]:
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
