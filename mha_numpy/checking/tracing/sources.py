"""Which cells was a cell computed from? Derived from the equation of its step.

The walk goes from the step down its syntax tree. At every node it knows, for each axis of the
node's value, which indices the step's cell reads: a product reads one axis whole, a transpose puts
axes in another order, a reshape takes an index apart. What is known at a name is the answer. An
operation that is not known here gives no answer, rather than a guess.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.tracing.equations import (
    FUNCTIONS,
    evaluate,
    function_of,
    is_transpose,
    method_of,
    moved_name,
    names_in,
    receiver_of,
)
from mha_numpy.checking.tracing.reads import (
    NotKnownError,
    Reads,
    broadcast,
    mapped,
    same,
    unreduced,
    unreshaped,
    whole,
)
from mha_numpy.checking.tracing.step import Step


class Source(NamedTuple):
    """An array that a step was computed from, and which of its cells each cell read."""

    name: str
    step: Step
    reads: Reads

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the source's axes."""
        return tuple(self.step.axes.split())

    @property
    def is_constant(self) -> bool:
        """Whether no step computed it: a param."""
        return self.step.is_constant

    def at(self, index: Sequence[int]) -> tuple[range, ...]:
        """Return the indices along each axis that the cell at `index` reads."""
        return tuple(read.at(index) for read in self.reads)

    def contains(self, other: "Source") -> bool:
        """Return whether this one reads all that the other does."""
        pairs = zip(self.reads, other.reads, strict=True)
        return self.step is other.step and all(a == b or a.is_whole for a, b in pairs)


class Origin(NamedTuple):
    """How a step came to be."""

    form: str  # "input", "moved", "product", "rows", "turned", "cellwise" or "unknown"
    sources: tuple[Source, ...] = ()
    names: tuple[str, ...] = ()  # recorded arrays of the equation, where the cells are not known
    condition: Source | None = None  # where it is False, the cell is hidden


# what an equation raises that is free text, names what is not on record, or does not fit
NOT_KNOWN = (NotKnownError, NameError, KeyError, AttributeError, TypeError, ValueError, IndexError)


def origin_of(step: Step, tree: ast.expr | None, recorded: Mapping[str, Step]) -> Origin:
    """Derive how a step came to be.

    Parameters
    ----------
    step : Step
    tree : syntax tree
        Of its equation, with sizes in the place of axes; None where there is none.
    recorded : mapping of names to Steps
        The arrays, params and numbers that its equation may name.

    Returns
    -------
    Origin
        Of form "unknown", without sources, where the equation does not tell.
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
    own = tuple(same(axis, size) for axis, size in enumerate(step.array.shape))
    return Origin("moved", (Source(twin.name, twin, own),))


def _origin(tree: ast.expr, step: Step, recorded: Mapping[str, Step]) -> Origin:
    own = tuple(same(axis, size) for axis, size in enumerate(step.array.shape))
    condition = None
    if isinstance(tree, ast.Call) and function_of(tree) == "where":
        hides, tree, instead = tree.args
        if not isinstance(hides, ast.Name) or names_in(instead):
            raise NotKnownError
        known = recorded[hides.id]
        condition = Source(hides.id, known, broadcast(own, known.array.shape))
    walk = _Walk(recorded)
    if walk.shape_of(tree) != step.array.shape:
        raise NotKnownError
    walk.visit(tree, own)
    # params behind arrays
    sources = tuple(sorted(_largest(walk.sources), key=lambda source: source.is_constant))
    if not sources:
        raise NotKnownError
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


def _largest(sources: Sequence[Source]) -> list[Source]:
    """Leave out what another source of the same array contains, and repetitions."""
    kept: list[Source] = []
    for source in sources:
        if not any(other.contains(source) for other in kept):
            kept = [other for other in kept if not source.contains(other)] + [source]
    return kept


class _Walk:
    """Goes down a syntax tree and notes which cells of each array are read."""

    def __init__(self, recorded: Mapping[str, Step]) -> None:
        self.recorded = recorded
        self.values = {name: step.array for name, step in recorded.items()}
        self.sources: list[Source] = []

    def shape_of(self, node: ast.expr) -> tuple[int, ...]:
        """Return the shape of what an expression gives."""
        return np.shape(evaluate(node, self.values))

    def visit(self, node: ast.expr, reads: Reads) -> None:
        """Note what is read of the arrays below a node whose own cells `reads` says."""
        match node:
            case ast.Constant():
                return
            case ast.Name(id=name):
                if reads or not self.recorded[name].is_constant:
                    self.sources.append(Source(name, self.recorded[name], reads))
            case ast.UnaryOp(operand=operand):
                self.visit(operand, reads)
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                self._product(a, b, reads)
            case ast.BinOp(left=a, right=b):
                self._cellwise([a, b], reads)
            case ast.Compare(left=a, comparators=others):
                self._cellwise([a, *others], reads)
            case ast.Subscript(value=value, slice=index):
                self._indexed(value, index, reads)
            case _ if is_transpose(node):
                self.visit(node.value, reads[::-1])  # type: ignore[attr-defined]
            case ast.Call(args=args, keywords=keywords):
                options = {k.arg: evaluate(k.value, self.values) for k in keywords}
                self._call(node, args, options, reads)
            case _:
                raise NotKnownError

    def _cellwise(self, operands: Sequence[ast.expr], reads: Reads) -> None:
        """Read each operand at the cell's own place, where it has no axis of size 1."""
        for operand in operands:
            self.visit(operand, broadcast(reads, self.shape_of(operand)))

    def _product(self, a: ast.expr, b: ast.expr, reads: Reads) -> None:
        """Read a row of `a` and a column of `b`."""
        shape_a, shape_b = self.shape_of(a), self.shape_of(b)
        if len(shape_a) < 2 or len(shape_b) < 2:
            raise NotKnownError
        *leading, row, column = reads
        contracted = whole(shape_a[-1])
        self.visit(a, (*broadcast(tuple(leading), shape_a[:-2]), row, contracted))
        self.visit(b, (*broadcast(tuple(leading), shape_b[:-2]), contracted, column))

    def _call(
        self, node: ast.Call, args: list[ast.expr], options: dict[Any, Any], reads: Reads
    ) -> None:
        name = function_of(node)
        if name in FUNCTIONS:
            return self._cellwise(args, reads)
        if name:
            function = getattr(np, name)
            if not isinstance(function, np.ufunc) or function.signature is not None or options:
                raise NotKnownError
            return self._cellwise(args, reads)
        array, numbers = receiver_of(node), [evaluate(arg, self.values) for arg in args]
        shape, method = self.shape_of(array), method_of(node)
        if method == "swapaxes":
            order = list(range(len(shape)))
            first, second = (axis % len(shape) for axis in numbers)
            order[first], order[second] = second, first
            return self.visit(array, tuple(reads[i] for i in order))
        if method == "transpose":
            return self.visit(array, tuple(reads[numbers.index(i)] for i in range(len(shape))))
        if method == "reshape":
            return self.visit(array, unreshaped(reads, shape))
        if method == "repeat":
            axis = options["axis"] % len(shape)
            once = mapped(reads[axis], np.arange(reads[axis].size) // numbers[0], shape[axis])
            return self.visit(array, (*reads[:axis], once, *reads[axis + 1 :]))
        if method in ("sum", "max", "mean") and options.keys() <= {"axis", "keepdims"}:
            return self.visit(array, unreduced(reads, shape, options))
        raise NotKnownError

    def _indexed(self, array: ast.expr, index: ast.expr, reads: Reads) -> None:
        """Read through new axes, such as ``x[..., None]``, and through a list of indices."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        kept, at = list(reads), 0  # at: the axis of what the index gives
        for i, part in enumerate(parts):
            if isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step):
                at += 1
                continue
            if isinstance(part, ast.Slice):
                raise NotKnownError
            value: Any = evaluate(part, self.values)
            if value is Ellipsis:
                at = len(kept) - (len(parts) - i - 1)
            elif isinstance(part, ast.Constant) and value is None:
                del kept[at]
            elif np.ndim(value) == 1 and np.asarray(value).dtype.kind in "iu" and part is parts[-1]:
                size = self.shape_of(array)[at]
                kept[at] = mapped(kept[at], np.asarray(value) % size, size)
            else:
                raise NotKnownError
        self.visit(array, tuple(kept))
