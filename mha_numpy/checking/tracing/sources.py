"""Which cells was a cell computed from? Derived from the equation of its step.

The equation is computed once more, with tracked arrays. Besides its numbers, a tracked array has,
for each cell, the indices of the recorded arrays that it was computed from. Operations that move
cells move these indices; a sum or a product joins those of its terms. An operation that is unknown
here gives no answer, rather than a guess.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.tracing.equations import (
    FUNCTIONS,
    evaluate,
    function_of,
    moved_name,
    names_in,
)
from mha_numpy.checking.tracing.step import Step
from mha_numpy.dtypes import Array


class NotKnownError(Exception):
    """The cells cannot be derived."""


# what an equation raises that is free text, names what is not on record, or does not fit
NOT_KNOWN = (NotKnownError, NameError, KeyError, AttributeError, TypeError, ValueError, IndexError)


class Source(NamedTuple):
    """An array that a step was computed from, and which of its cells each cell read."""

    step: Step
    starts: tuple[Array, ...]  # for each of its axes the first index that each cell of ours reads
    lengths: tuple[int, ...]  # and how many from there on

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.step.name

    @property
    def is_constant(self) -> bool:
        """Whether no step computed it: a param."""
        return self.step.is_constant

    def at(self, index: Sequence[int]) -> tuple[range, ...]:
        """Return the indices along each axis that the cell at `index` reads."""
        firsts = (int(start[tuple(index)]) for start in self.starts)
        return tuple(range(i, i + n) for i, n in zip(firsts, self.lengths, strict=True))

    def contains(self, other: "Source") -> bool:
        """Return whether this one reads everything that the other reads."""
        if self.step is not other.step:
            return False
        pairs = zip(self.starts, other.starts, self.lengths, other.lengths, strict=True)
        sizes = self.step.array.shape
        return all(
            length == size or (length == shorter and np.array_equal(start, other_start))
            for (start, other_start, length, shorter), size in zip(pairs, sizes, strict=True)
        )

    def moved(self, move: Callable[[Array], Array]) -> "Source":
        """Return the source of an array whose cells a function has moved."""
        return self._replace(starts=tuple(move(start) for start in self.starts))

    def joined(self, axes: tuple[int, ...]) -> "Source":
        """Return the source of a sum over some axes, which stay with the size 1.

        The cells that one sum reads must form one block, and each of them is read once.
        """
        starts, lengths, place, blocks = [], [], np.zeros((), int), 1
        for start, length in zip(self.starts, self.lengths, strict=True):
            # an axis that was only broadcast has stride 0
            varying = start[tuple(slice(None) if n else slice(1) for n in start.strides)]
            first = varying.min(axis=axes, keepdims=True)
            (n,) = np.unique((varying.max(axis=axes, keepdims=True) - first) // length) + 1
            if n > 1:
                place = place * n + (varying - first) / length
            blocks *= n
            shape = [1 if i in axes else size for i, size in enumerate(start.shape)]
            starts.append(np.broadcast_to(first, shape))
            lengths.append(int(n) * length)
        if blocks > 1:
            last = np.moveaxis(place, axes, range(-len(axes), 0))
            read = np.sort(last.reshape(*last.shape[: -len(axes)], -1))
            if read.shape[-1] != blocks or (read != np.arange(blocks)).any():
                raise NotKnownError
        return Source(self.step, tuple(starts), tuple(lengths))


def source_of(step: Step) -> Source:
    """Return a recorded array as the source of itself: each cell reads its own indices."""
    shape = step.array.shape
    starts = np.meshgrid(*map(np.arange, shape), indexing="ij", copy=False)
    return Source(step, tuple(starts), (1,) * len(shape))


class Origin(NamedTuple):
    """How a step came to be."""

    form: str  # "input", "moved", "product", "rows", "turned", "cellwise" or "unknown"
    sources: tuple[Source, ...] = ()
    names: tuple[str, ...] = ()  # recorded arrays of the equation, where the cells are not known
    condition: Source | None = None  # where it is False, the cell is hidden


def origin_of(step: Step, tree: ast.expr | None, recorded: Mapping[str, Step]) -> Origin:
    """Derive how a step came to be.

    Parameters
    ----------
    step : Step
    tree : syntax tree
        Of its equation, with sizes in place of axes; None if there is none.
    recorded : mapping of names to Steps
        The arrays, params and numbers that its equation may name.

    Returns
    -------
    Origin
        Of form "unknown", without sources, if the equation does not show them.
    """
    if not step.equation:
        return _origin_without_equation(step, recorded)
    if tree is None:
        return Origin("unknown")
    names = tuple(name for name in names_in(tree) if name in recorded)
    try:
        return _origin(tree, step, recorded)
    except NOT_KNOWN:
        return Origin("unknown", names=names)


def _origin_without_equation(step: Step, recorded: Mapping[str, Step]) -> Origin:
    twin = recorded.get(step.memory.removeprefix("is "))
    if not step.memory.startswith("is ") or twin is None:
        return Origin("input" if step.memory == "input" else "unknown")
    return Origin("moved", (source_of(twin),))


def _origin(tree: ast.expr, step: Step, recorded: Mapping[str, Step]) -> Origin:
    shape, condition = step.array.shape, None
    if isinstance(tree, ast.Call) and function_of(tree) == "where":
        hides, tree, instead = tree.args
        if not isinstance(hides, ast.Name) or names_in(instead):
            raise NotKnownError
        condition = source_of(recorded[hides.id]).moved(partial(np.broadcast_to, shape=shape))
    tracked = {name: _tracked(recorded[name]) for name in names_in(tree) if name in recorded}
    found = evaluate(tree, {**tracked, **CELLWISE})
    if not isinstance(found, Tracked) or found.shape != shape:
        raise NotKnownError
    # params behind arrays
    sources = tuple(sorted(_largest(found.sources), key=lambda source: source.is_constant))
    form = _form(tree, sources)
    if form == "moved" and condition is not None:
        form = "cellwise"
    return Origin(form, sources, condition=condition)


def _form(tree: ast.expr, sources: Sequence[Source]) -> str:
    nodes = list(ast.walk(tree))
    if moved_name(tree):
        return "moved"
    if any(isinstance(node, ast.MatMult) for node in nodes):
        return "product"
    if len({source.name for source in sources}) < len(sources):
        return "turned"
    keeps = (k for node in nodes if isinstance(node, ast.Call) for k in node.keywords)
    return "rows" if any(keyword.arg == "keepdims" for keyword in keeps) else "cellwise"


def _largest(sources: Iterable[Source]) -> list[Source]:
    """Leave out what another source of the same array contains, and repetitions."""
    kept: list[Source] = []
    for source in sources:
        if not any(other.contains(source) for other in kept):
            kept = [other for other in kept if not source.contains(other)] + [source]
    return kept


def _tracked(step: Step) -> Any:
    """Return a recorded array for an equation: a constant without axes is a plain number."""
    is_number = step.is_constant and not step.array.shape
    return step.array if is_number else Tracked(step.array, [source_of(step)])


class Tracked(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of an equation, and the sources of its cells."""

    def __init__(self, array: Array, sources: Iterable[Source]) -> None:
        self.array, self.sources = array, tuple(sources)
        self.shape = array.shape

    def _by(self, move: Callable[[Array], Array]) -> "Tracked":
        return Tracked(move(self.array), (source.moved(move) for source in self.sources))

    def _moved(self, name: str, *given: int, **named: int) -> "Tracked":
        return self._by(lambda array: getattr(array, name)(*given, **named))

    reshape = partialmethod(_moved, "reshape")
    transpose = partialmethod(_moved, "transpose")
    swapaxes = partialmethod(_moved, "swapaxes")
    repeat = partialmethod(_moved, "repeat")
    T = property(lambda self: self.transpose())

    def __getitem__(self, index: Any) -> "Tracked":
        """Take new axes, such as ``x[..., None]``, and a list of indices of the last axis."""
        parts = index if isinstance(index, tuple) else (index,)
        parts = tuple(part.array if isinstance(part, Tracked) else part for part in parts)
        for part in parts:
            is_list = np.ndim(part) == 1 and np.asarray(part).dtype.kind in "iu"
            is_whole = isinstance(part, slice) and part == slice(None)
            if not (part is None or part is ... or is_whole or (is_list and part is parts[-1])):
                raise NotKnownError
        return self._by(lambda array: array[parts])

    def _reduced(self, name: str, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """Sum over axes, or take the largest or the mean."""
        n = len(self.shape)
        axes = range(n) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(i % n for i in axes)
        found = getattr(self.array, name)(axis=axis, keepdims=keepdims)
        joined = (source.joined(axes) for source in self.sources)
        return Tracked(found, (source.moved(lambda a: a.reshape(found.shape)) for source in joined))

    sum = partialmethod(_reduced, "sum")
    max = partialmethod(_reduced, "max")
    mean = partialmethod(_reduced, "mean")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        """Compute cell by cell, or a product of matrices."""
        operands = [x if isinstance(x, Tracked) else Tracked(np.asarray(x), ()) for x in given]
        if ufunc is np.matmul:
            return _product(*operands)
        if method != "__call__" or options or ufunc.signature:
            raise NotKnownError
        found = ufunc(*(operand.array for operand in operands))
        spread = partial(np.broadcast_to, shape=found.shape)
        return Tracked(found, (s.moved(spread) for operand in operands for s in operand.sources))

    def __array_function__(self, *_: Any) -> Any:
        """Refuse NumPy's other functions."""
        raise NotKnownError

    def __bool__(self) -> bool:
        raise NotKnownError


CELLWISE = dict.fromkeys(FUNCTIONS, np.positive)  # each result depends on one cell


def _product(a: Tracked, b: Tracked) -> Tracked:
    """Return a product of matrices: a row of `a` and a column of `b` are read together."""
    found = a.array @ b.array
    if min(a.array.ndim, b.array.ndim) < 2:
        raise NotKnownError
    wide = (*found.shape[:-1], a.shape[-1], found.shape[-1])
    rows = [s.moved(lambda start: np.broadcast_to(start[..., None], wide)) for s in a.sources]
    columns = [
        s.moved(lambda start: np.broadcast_to(start[..., None, :, :], wide)) for s in b.sources
    ]
    joined = (source.joined((len(wide) - 2,)) for source in (*rows, *columns))
    return Tracked(found, (source.moved(lambda start: start.squeeze(-2)) for source in joined))
