"""Equations: NumPy expressions over names of earlier steps, constants and axes, read by `ast`.

Because d_k is both the width of a head and the gradient of k, an axis's name means its size in the
brackets of ``reshape``, ``repeat`` and ``np.arange``; anywhere else it is an array or a number.
In a model a name belongs to the step's own place, as "scores" in "blocks.0.attention", or it is the
whole name, "blocks.0.attention.scores". NumPy has no ``erf``, so equations bring their own.
"""

import ast
import copy
import functools
import math
import re
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

FUNCTIONS: dict[str, Any] = {"erf": np.vectorize(math.erf, otypes=[float])}
MOVES = ("reshape", "transpose", "swapaxes")  # methods that compute nothing
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "std", "var")
for reduction in REDUCTIONS:  # at the first call NumPy imports a part of itself; no equation may
    getattr(np.ones(1), reduction)()


@functools.lru_cache(maxsize=1024)
def parse(equation: str) -> ast.expr | None:
    """Return an equation's syntax tree, None if it is not an expression."""
    brackets = re.sub(r"[A-Za-z_]\w*(\.\w+)+", _index_by_brackets, equation)
    try:
        return ast.parse(brackets, mode="eval").body
    except SyntaxError:
        return None


def _index_by_brackets(name: re.Match[str]) -> str:
    """Write blocks.0_2.out so that Python reads it: blocks['0_2'].out."""
    return re.sub(r"\.(\d\w*)", r"['\1']", name[0])


def resolved(
    tree: ast.expr, sizes: Mapping[str, int], place: str = "", known: Container[str] = ()
) -> ast.expr:
    """Return a copy of a tree in which axes are their sizes, and known arrays have whole names.

    `place` is that of the step in the model: "blocks.0.attention", "" outside.
    """
    found: ast.expr = _Resolver(sizes, place, known).visit(copy.deepcopy(tree))
    return found


class _Resolver(ast.NodeTransformer):
    def __init__(self, sizes: Mapping[str, int], place: str, known: Container[str]) -> None:
        self.prefix, self.known = f"{place}." if place else "", known
        self.sizes, self.is_inside = sizes, False

    def visit(self, node: ast.AST) -> Any:
        """Replace an axis by its size, and an array's name by its whole name."""
        name = _dotted(node)
        if self.is_inside and name in self.sizes:
            return ast.copy_location(ast.Constant(self.sizes[name]), node)
        for whole in (self.prefix + name, name) if name else ():
            if whole in self.known:
                return ast.copy_location(ast.Name(whole, ast.Load()), node)
        return super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Visit the function, then its arguments."""
        before, sized = self.is_inside, ("reshape", "repeat")
        is_sized = method_of(node) in sized or function_of(node) == "arange"
        node.func = self.visit(node.func)
        self.is_inside = is_sized
        node.args = [self.visit(arg) for arg in node.args]
        self.is_inside = before
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return node


def _dotted(node: ast.AST) -> str:
    """Return blocks.0.out for ``blocks['0'].out``; "" if it is not a name."""
    match node:
        case ast.Name(id=name):
            return name
        case (
            ast.Attribute(value=value, attr=last)
            | ast.Subscript(value=value, slice=ast.Constant(value=str(last)))
        ):
            first = _dotted(value)
            return f"{first}.{last}" if first else ""
    return ""


def names_in(tree: ast.AST) -> list[str]:
    """Return the names of arrays and numbers that a tree reads, in order, each once."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    in_order = sorted(names, key=lambda node: (node.lineno, node.col_offset))
    found = dict.fromkeys(node.id for node in in_order)
    return [name for name in found if name != "np" and name not in FUNCTIONS]


def evaluate(tree: ast.expr, values: Mapping[str, Any]) -> Any:
    """Compute an expression over names of `values`; NaN and overflow raise no warning."""
    code = compile(ast.Expression(tree), "<equation>", "eval")
    with np.errstate(all="ignore"):
        return eval(code, {"np": np, "__builtins__": {}, **FUNCTIONS}, dict(values))


def moved_name(tree: ast.expr | None) -> str:
    """Return the array that an equation only moves, by reshapes and transposes; "" if it does more.

    A bare name is the array itself.
    """
    while (isinstance(tree, ast.Call) and method_of(tree) in MOVES) or is_transpose(tree):
        tree = tree.value if isinstance(tree, ast.Attribute) else receiver_of(tree)
    return tree.id if isinstance(tree, ast.Name) else ""


def method_of(call: ast.expr) -> str:
    """Return the name of the array method that is called, "" if it is none."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return "" if _is_numpy(call.func.value) else call.func.attr
    return ""


def function_of(call: ast.expr) -> str:
    """Return the name of NumPy's function that is called, or of ours, "" if it is none."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return call.func.id if call.func.id in FUNCTIONS else ""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return call.func.attr if _is_numpy(call.func.value) else ""
    return ""


def receiver_of(call: Any) -> ast.expr:
    """Return the array whose method is called."""
    return call.func.value


def is_transpose(tree: ast.expr | None) -> bool:
    """Return whether an expression is ``something.T``."""
    return isinstance(tree, ast.Attribute) and tree.attr == "T"


def _is_numpy(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "np"
