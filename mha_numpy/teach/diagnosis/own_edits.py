"""Small edits of a teacher's own solution, which may be written in any style.

The rules for edits know one style, that of the solutions here. So a teacher's is read as if it were
written like them, and a few slips are added that need the kinds of its arguments.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from types import CodeType

from mha_numpy.teach.diagnosis.small_edits import EXCHANGED, NUMBER, Edit, Edited

REDUCTIONS = {"sum", "mean", "max", "min", "prod", "var", "std", "argmax", "argmin"}
RENAMED = {"amax": "max", "amin": "min"}
PRODUCTS = {"matmul", "dot"}
PARENTHESIS = "a misplaced parenthesis"
VALUES = {  # what is written instead of an argument
    "int": ("-1", "0", "1", "-2", "2", "None", "{0} + 1", "{0} - 1"),
    "float": ("0.0", "1.0", "1e-3", "1e-5", "1e-6", "1e-8", "1e-12", "100.0", "10000.0"),
    "bool": ("True", "False", "not {0}"),
}
OTHER_AXES = "tuple((i for i in range({1}.ndim) if i != {0} % {1}.ndim))"


class OwnEdited(Edited):
    """A teacher's function in the usual style, and all small edits of it."""

    def __init__(self, source: str):
        super().__init__(ast.unparse(InOneStyle().visit(ast.parse(source))))
        (function,) = self.module.body
        assert isinstance(function, ast.FunctionDef)
        self.edits += [*_of_arguments(function), *_of_lines(function), *_of_parts(function)]
        self._codes: dict[int, CodeType | None] = {}

    def code(self, edit: Edit) -> CodeType | None:
        """Return the code of the function with an edit; each is compiled once."""
        if id(edit) not in self._codes:
            self._codes[id(edit)] = super().code(edit)
        return self._codes[id(edit)]


@lru_cache(maxsize=16)
def read_own_edits(source: str) -> OwnEdited:
    """Read a function once."""
    return OwnEdited(source)


class InOneStyle(ast.NodeTransformer):
    """Rewrites np.mean(x, 1) as x.mean(axis=1), a variance as a mean, np.matmul as @."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite a call of NumPy, or of a method."""
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        name, of_numpy = node.func.attr, ast.unparse(node.func.value) in ("np", "numpy")
        name = RENAMED.get(name, name)
        if of_numpy and name in PRODUCTS and len(node.args) == 2:
            return ast.BinOp(node.args[0], ast.MatMult(), node.args[1])
        if name not in REDUCTIONS or (of_numpy and not node.args):
            return node
        array, *others = node.args if of_numpy else [node.func.value, *node.args]
        named = {one.arg: one.value for one in node.keywords}
        if len(others) > 1 or (others and "axis" in named) or None in named:
            return node
        if others:
            named["axis"] = others[0]
        return _reduced(array, name, named)


def _reduced(array: ast.expr, name: str, named: dict[str | None, ast.expr]) -> ast.expr:
    """Return a reduction; a variance is the mean of squares, and a deviation its root."""
    order = sorted(named, key=lambda one: one not in ("axis", "keepdims"))
    order.sort(key=lambda one: one != "axis")
    keywords = [ast.keyword(one, named[one]) for one in order]
    if name in ("var", "std") and named.keys() <= {"axis", "keepdims"}:
        kept = {"axis": named["axis"]} if "axis" in named else {}
        mean = _reduced(array, "mean", {**kept, "keepdims": ast.Constant(True)})
        centred = ast.BinOp(deepcopy(array), ast.Sub(), mean)
        variance = _reduced(ast.BinOp(centred, ast.Pow(), ast.Constant(2)), "mean", named)
        root = ast.Attribute(ast.Name("np", ast.Load()), "sqrt", ast.Load())
        return variance if name == "var" else ast.Call(root, [variance], [])
    return ast.Call(ast.Attribute(array, name, ast.Load()), [], keywords)


def _of_arguments(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions that set an argument to something else before they begin."""
    kinds = {one.arg: ast.unparse(one.annotation or ast.Name("")) for one in function.args.args}
    arrays = [name for name, kind in kinds.items() if kind == "Array"]
    for name, kind in kinds.items():
        texts = list(VALUES.get(kind, ()))
        if "axis" in name and arrays:
            texts.append(OTHER_AXES)
        for text in texts:
            new = text.format(name, *arrays[:1])
            body = [*ast.parse(f"{name} = {new}").body, *function.body]
            yield Edit(NUMBER, function, "body", body, is_of_input=True)


def _of_lines(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield functions in which two lines, one below the other, have each other's values."""
    for i, (one, other) in enumerate(zip(function.body, function.body[1:], strict=False)):
        if isinstance(one, ast.Assign) and isinstance(other, ast.Assign):
            both = [ast.Assign(one.targets, other.value), ast.Assign(other.targets, one.value)]
            yield Edit(EXCHANGED, function, "body", [*function.body[:i], *both, *function.body[i + 2 :]])


def _of_parts(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield A * B + C as (A + C) * B."""
    for holder in ast.walk(function):
        for field, old in ast.iter_fields(holder):
            is_sum = isinstance(old, ast.BinOp) and isinstance(old.op, ast.Add | ast.Sub)
            if is_sum and isinstance(old.left, ast.BinOp) and isinstance(old.left.op, ast.Mult):
                inner = ast.BinOp(old.left.left, old.op, old.right)
                new = ast.BinOp(inner, ast.Mult(), old.left.right)
                yield Edit(PARENTHESIS, holder, field, new)

