"""Which cells was a cell computed from? Derived from what the steps of a trace say.

Names of axes carry it: an axis that a source shares with the step is read at the cell's own index,
any other is read whole. H*d_k is h * d_k + c, and H is g * G + (head of the group). The form of
the equation says which arrays are read, and which axis is read whole in spite of its name. Where
neither fits, nothing is derived.
"""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.tracing.step import Step

NAME = r"[A-Za-z_]\w*"
OPERAND = rf"(?:{NAME}|\d+(?:\.\d+)?)"
MOVED = re.compile(rf"({NAME})\.(?:reshape|transpose)\([^()]*\)")
PRODUCT = re.compile(rf"(?:scale \* )?({NAME})(\.T)? @ ({NAME})(\.T)?(?: \+ ({NAME}))?")
MASKED = re.compile(rf"({NAME}) where the mask is True, else -inf")
TURNED = re.compile(rf"({NAME}) turned by (?:minus )?its positions")
CELLWISE = re.compile(rf"-?\s*{OPERAND}(?:\s*[-+*/^]\s*{OPERAND})*")  # without its brackets
SUMMED = re.compile(r"(.+?),? summed over .+")
FUNCTIONS = re.compile(r"\b(?:exp|tanh|sum_j)\b")
SCALARS = ("scale", "softcap")
PARAM = re.compile(r"[wb]_\w+")  # not recorded: w_q is (inputs, outputs), b_q (outputs,)


class Read(NamedTuple):
    """Which indices of one axis of a source a cell reads: `length` of them, from a start on.

    The start is a sum of look-ups, one for each axis of the cell that matters: `starts` holds
    (axis, what each index along it adds).
    """

    starts: tuple[tuple[int, tuple[int, ...]], ...]
    length: int
    size: int  # of the source's axis

    def at(self, index: Sequence[int]) -> range:
        """Return the indices that the cell at `index` reads."""
        start = sum(table[index[axis]] for axis, table in self.starts)
        return range(start, start + self.length)


class Source(NamedTuple):
    """An array that a step was computed from, and which of its cells each cell read."""

    name: str
    step: Step | None  # None for a param, which is named but not recorded
    axes: tuple[str, ...]
    reads: tuple[Read, ...]  # one for each axis

    def at(self, index: Sequence[int]) -> tuple[range, ...]:
        """Return the indices along each axis that the cell at `index` reads."""
        return tuple(read.at(index) for read in self.reads)


class Origin(NamedTuple):
    """How a step came to be."""

    form: str  # "input", "moved", "product", "cellwise", "rows", "masked", "turned", "unknown"
    sources: tuple[Source, ...] = ()
    others: tuple[str, ...] = ()  # named in the equation; which cells were read is not known


def origin_of(steps: Sequence[Step], step: Step) -> Origin:
    """Derive how a step came to be, from itself and the steps before it.

    Parameters
    ----------
    steps : sequence of Step
        All of a trace.
    step : Step
        One of them.

    Returns
    -------
    Origin
        Of form "unknown", without sources, where the equation or the axes do not tell.
    """
    if not step.equation:
        if step.memory.startswith("is "):
            twin = _find(steps, step.memory.removeprefix("is "), step)
            same = None if twin is None else _same_cells(step, [twin])
            return Origin("unknown") if same is None else Origin("moved", same)
        return Origin("input" if step.memory == "input" else "unknown")

    summed = SUMMED.fullmatch(step.equation)
    equation = summed[1] if summed else step.equation
    words = dict.fromkeys(re.findall(NAME, FUNCTIONS.sub("", equation)))
    found = {name: _find(steps, name, step) for name in words}
    recorded = [operand for operand in found.values() if operand is not None]
    unknown = Origin("unknown", others=tuple(operand.name for operand in recorded))
    if not all(len(s.axes.split()) == s.array.ndim for s in (step, *recorded)):
        return unknown
    if any(_is_ambiguous(steps, operand, step) for operand in recorded):
        return unknown

    sources: tuple[Source, ...] | None = None
    others: tuple[str, ...] = ()
    if match := PRODUCT.fullmatch(equation):
        form = "product"
        sources = _product(step, match, found, is_summed=summed is not None)
    elif match := MOVED.fullmatch(equation):
        form, sources = "moved", _moved(step, found[match[1]])
    elif match := MASKED.fullmatch(equation):
        form, sources = "masked", _cellwise(step, [found[match[1]]], is_summed=False)
    elif match := TURNED.fullmatch(equation):
        form, sources = "turned", _turned(step, found[match[1]])
    elif CELLWISE.fullmatch(re.sub(r"[()]", " ", FUNCTIONS.sub("", equation)).strip()):
        others = tuple(n for n, operand in found.items() if operand is None and n not in SCALARS)
        if "sum_j" in equation:
            form, sources = "rows", _rows(step, recorded)
        else:
            form, sources = "cellwise", _cellwise(step, recorded, is_summed=summed is not None)
    return Origin(form, sources, others) if sources else unknown


def _find(steps: Sequence[Step], name: str, step: Step) -> Step | None:
    """Return the last step of that name before `step`."""
    earlier = (other for other in reversed(steps) if other.number < step.number)
    return next((other for other in earlier if other.name == name), None)


def _is_ambiguous(steps: Sequence[Step], operand: Step, step: Step) -> bool:
    """Return whether backward may mean another array of that name than the last one."""
    if not step.is_backward or operand.is_backward:
        return False
    return sum(s.name == operand.name and s.number < step.number for s in steps) > 1


def _product(
    step: Step, match: re.Match[str], found: dict[str, Step | None], *, is_summed: bool
) -> tuple[Source, ...] | None:
    """Tell the sources of ``a @ b + c``: the contracted axis is read whole.

    Rows are those of `a` and columns those of `b`, whatever they are called; ``.T`` swaps the last
    two axes. Leading axes go by their names.
    """
    a, b, c = found[match[1]], found[match[3]], found.get(match[5] or "")
    row, contracted_a = (-1, -2) if match[2] else (-2, -1)
    contracted_b, column = (-1, -2) if match[4] else (-2, -1)
    if step.array.ndim < 2 or a is None or a.array.ndim < 2:
        return None
    inner, outer = (a.axes.split()[contracted_a], a.array.shape[contracted_a]), _last_axis(step)
    if b is not None:
        read_b = _source(step, b.name, b, {column: -1, contracted_b: None}, is_summed=is_summed)
    elif PARAM.fullmatch(match[3]):  # two axes, known from what it stands between
        both = [outer, inner] if match[4] else [inner, outer]
        read_b = _param(step, match[3], both, whole=both.index(inner))
    else:
        return None
    read_a = _source(step, a.name, a, {row: -2, contracted_a: None}, is_summed=is_summed)
    sources: list[Source | None] = [read_a, read_b]
    if c is not None:
        sources.append(_source(step, c.name, c, {-1: -1}))
    elif match[5] and PARAM.fullmatch(match[5]):
        sources.append(_param(step, match[5], [outer]))
    elif match[5]:
        return None
    return _all_or_none(sources)


def _last_axis(step: Step) -> tuple[str, int]:
    """Return the name and the size of the last axis."""
    return step.axes.split()[-1], step.array.shape[-1]


def _param(
    step: Step, name: str, axes: list[tuple[str, int]], *, whole: int | None = None
) -> Source:
    """Tell which cells of a param are read: along one axis all, along the other the cell's own."""
    last = step.array.ndim - 1
    reads = [
        Read((), size, size) if i == whole else Read(((last, tuple(range(size))),), 1, size)
        for i, (_, size) in enumerate(axes)
    ]
    return Source(name, None, tuple(axis for axis, _ in axes), tuple(reads))


def _moved(step: Step, operand: Step | None) -> tuple[Source, ...] | None:
    """Tell where each cell lay before: the axes have to hold the same digits."""
    if operand is None or operand.array.size != step.array.size:
        return None
    source = _source(step, operand.name, operand)
    return None if source is None else (source,)


def _cellwise(
    step: Step, operands: Sequence[Step | None], *, is_summed: bool
) -> tuple[Source, ...] | None:
    """Tell the sources of an operation cell by cell; what was summed over is read whole."""
    sources: list[Source | None] = []
    for operand in operands:
        if operand is None:
            return None
        if operand.array.shape == step.array.shape:
            sources.append(_at_same_place(step, operand))
        else:
            sources.append(_source(step, operand.name, operand, is_summed=is_summed))
    return _all_or_none(sources)


def _rows(step: Step, operands: Sequence[Step]) -> tuple[Source, ...] | None:
    """Tell the sources of a softmax, or of its backward: every cell depends on its whole row."""
    same = _same_cells(step, operands)
    return same and tuple(
        source._replace(reads=(*source.reads[:-1], _whole(source.reads[-1].size)))
        for source in same
    )


def _turned(step: Step, operand: Step | None) -> tuple[Source, ...] | None:
    """Tell the sources of a rotation by position: a feature and the one it forms a pair with."""
    same = None if operand is None else _same_cells(step, [operand])
    if operand is None or same is None:
        return None
    partners = _partners(operand.array, step.array)
    if partners is None:
        return None
    (own,) = same
    other = Read(((step.array.ndim - 1, partners),), 1, len(partners))
    return own, own._replace(reads=(*own.reads[:-1], other))


def _partners(x: Array, turned: Array) -> tuple[int, ...] | None:
    """Measure which features were turned in pairs: a rotation keeps each pair's length.

    The leading features were turned, and of these either neighbours are a pair or feature i and
    feature i + half. A feature that was not turned is its own partner.
    """
    features = np.arange(x.shape[-1])
    changed = (x != turned).any(axis=tuple(range(x.ndim - 1)))
    rotary_dim = int(features[changed].max(initial=-1)) + 1
    half = rotary_dim // 2
    if rotary_dim % 2:
        return None
    for pairs in (features.reshape(1, -1)[:, :rotary_dim].reshape(half, 2),
                  features[:rotary_dim].reshape(2, half).T):  # fmt: skip
        before, after = (np.hypot(y[..., pairs[:, 0]], y[..., pairs[:, 1]]) for y in (x, turned))
        if np.allclose(before, after, rtol=1e-2, equal_nan=True):
            partners = features.copy()
            partners[pairs] = pairs[:, ::-1]
            return tuple(partners.tolist())
    return None


def _same_cells(step: Step, operands: Sequence[Step]) -> tuple[Source, ...] | None:
    """Tell that each cell was read at its own place, if the shapes allow it."""
    if not operands or any(operand.array.shape != step.array.shape for operand in operands):
        return None
    return tuple(_at_same_place(step, operand) for operand in operands)


def _at_same_place(step: Step, operand: Step) -> Source:
    """Tell that each cell was read at its own place, whatever the axes are called."""
    shape = operand.array.shape
    reads = [Read(((i, tuple(range(n))),), 1, n) for i, n in enumerate(shape)]
    return Source(operand.name, operand, tuple(operand.axes.split()), tuple(reads))


def _whole(size: int) -> Read:
    """Read all of an axis."""
    return Read((), size, size)


def _all_or_none(sources: Sequence[Source | None]) -> tuple[Source, ...] | None:
    """Return all sources, or None where one of them is not known."""
    known = tuple(source for source in sources if source is not None)
    return known if len(known) == len(sources) else None


def _source(
    step: Step,
    name: str,
    operand: Step,
    places: dict[int, int | None] | None = None,
    *,
    is_summed: bool = False,
) -> Source | None:
    """Tell which cells of `operand` a cell of `step` read, by the names of their axes.

    `places` says where an axis of `operand` is found in `step`, by position and not by name:
    -1 is the last axis, None is nowhere, so that it is read whole. Any other axis that is not
    found has to have been summed over.
    """
    axes, shape = operand.axes.split(), operand.array.shape
    own_axes, own_shape = step.axes.split(), step.array.shape
    if len(set(own_axes)) < len(own_axes):  # a name for two axes says nothing
        return None
    sizes = {**dict(zip(axes, shape, strict=True)), **dict(zip(own_axes, own_shape, strict=True))}
    known = _places_of_digits(own_axes, own_shape, sizes)
    placed = {i % len(axes): place for i, place in (places or {}).items()}
    reads = []
    for i, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        place = placed.get(i, i)
        if place is None:
            read: Read | None = _whole(size)
        elif i in placed:
            at = place % step.array.ndim
            same = own_shape[at] == size
            read = Read(((at, tuple(range(size))),), 1, size) if same else None
        else:
            read = _read(_digits(axis, size, sizes), size, known, own_shape)
            if read is not None and read.length > 1 and not is_summed:
                return None
        if read is None:
            return None
        reads.append(read)
    return Source(name, operand, tuple(axes), tuple(reads))


class _Place(NamedTuple):
    """Where a digit stands in the index of a cell: ``index[axis] // divisor % size``."""

    axis: int
    divisor: int
    size: int


def _places_of_digits(
    axes: Sequence[str], shape: Sequence[int], sizes: dict[str, int]
) -> dict[str, _Place]:
    """Say where each digit of a cell's index stands."""
    places = {}
    for i, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        divisor = size
        for digit, n in _digits(axis, size, sizes):
            divisor //= max(n, 1)
            places[digit] = _Place(i, divisor, n)
    return places


def _digits(axis: str, size: int, sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Take an index apart: H*d_k into H and d_k, and H into H_kv and the head of a group G."""
    digits = []
    for factor in axis.split("*"):
        H, H_kv = sizes.get("H", 0), sizes.get("H_kv", 0)
        if factor == "H" and H and H_kv and H % H_kv == 0:
            digits += [("H_kv", H_kv), ("G", H // H_kv)]
        elif factor != "1":
            digits.append((factor, sizes.get(factor, -1)))
    if math.prod(n for _, n in digits) != size:
        return [(axis, size)]  # a size that is not known here
    return digits


def _read(
    digits: list[tuple[str, int]], size: int, known: dict[str, _Place], shape: Sequence[int]
) -> Read | None:
    """Read an axis at the digits that are known; None if they leave no range in one piece."""
    free = [digit not in known for digit, _ in digits]
    if any(before and not after for before, after in pairwise(free)):
        return None
    tables: dict[int, Array] = {}
    weight = size
    length = 1
    for (digit, n), is_free in zip(digits, free, strict=True):
        weight //= max(n, 1)
        if is_free:
            length *= n
        else:
            axis, divisor, own_size = known[digit]
            if own_size != n:
                return None
            adds = np.arange(shape[axis]) // divisor % max(n, 1) * weight
            tables[axis] = tables.get(axis, 0) + adds
    starts = tuple((axis, tuple(table.tolist())) for axis, table in tables.items())
    return Read(starts, length, size)
