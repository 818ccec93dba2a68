"""An equation as a tree in JSON, which the page computes: ``["@", ["array", 3], ["array", 5]]``."""

import ast
import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_numpy.checking.tracing.equations import function_of, method_of, receiver_of
from mha_numpy.checking.tracing.step import Step
from mha_numpy.dtypes import Array

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@",
    ast.BitAnd: "&", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.USub: "negative",
    ast.Invert: "~",
}  # fmt: skip
FUNCTIONS = ("exp", "tanh", "sqrt", "log", "where", "isneginf")
METHODS = {  # names of the arguments, in order
    "reshape": (), "transpose": (), "swapaxes": (), "repeat": ("repeats", "axis"),
    "sum": ("axis", "dtype", "out", "keepdims"), "mean": ("axis", "dtype", "out", "keepdims"),
    "max": ("axis", "out", "keepdims"),
}  # fmt: skip


def equation_tree(
    tree: ast.expr | None, recorded: Mapping[str, Step], ids: Mapping[int, int]
) -> list[Any] | None:
    """Return an equation as a tree for the page, None where there is none or it cannot compute it.

    The syntax tree has sizes in the place of axes, and names what was recorded; `ids` has the
    number of each step in the page, by its ``id``. Powers that are divided by their own sum are a
    softmax, which the page computes without overflow and explains as such.
    """
    try:
        return None if tree is None else _Translator(recorded, ids).tree(tree)
    except NotImplementedError:
        return None


class _Translator:
    """Translates one equation."""

    def __init__(self, recorded: Mapping[str, Step], ids: Mapping[int, int]) -> None:
        self.recorded, self.ids = recorded, ids

    def tree(self, node: Any) -> list[Any]:
        """Return the tree of an expression."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return ["number", number]
            case ast.Name(id=name) if name in self.recorded:
                return ["array", self.ids[id(self.recorded[name])]]
            case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
                if isinstance(op, ast.Div) and (scores := _softmax_of(left, right)):
                    return ["softmax", self.tree(scores)]
                return [OPERATORS[type(op)], self.tree(left), self.tree(right)]
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in OPERATORS:
                return [OPERATORS[type(op)], self.tree(left), self.tree(right)]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return [OPERATORS[type(op)], self.tree(operand)]
            case ast.Attribute(value=value, attr="T"):
                return ["swapaxes", self.tree(value), -1, -2]
            case ast.Attribute() if ast.unparse(node) == "np.inf":
                return ["number", "Infinity"]
            case ast.Subscript():
                return self._subscript(node)
        if function_of(node) == "arange":
            return ["arange", self._number(node.args[0])]
        if function_of(node) in FUNCTIONS:
            return [function_of(node), *map(self.tree, node.args)]
        if method_of(node) in METHODS:
            return self._method(node)
        raise NotImplementedError(ast.unparse(node))

    def _subscript(self, node: ast.Subscript) -> list[Any]:
        """x[..., None], x[:, None], x[..., pairs]."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        written = [ast.unparse(part) for part in parts]
        if {*written} <= {"...", ":", "None"}:
            axes = [None if part == "None" else part for part in written]
            return ["newaxes", self.tree(node.value), axes]
        if len(parts) == 2 and written[0] == "...":
            return ["take", self.tree(node.value), self.tree(parts[1])]
        raise NotImplementedError(ast.unparse(node))

    def _method(self, node: Any) -> list[Any]:
        receiver, name = self.tree(receiver_of(node)), method_of(node)
        given = dict(zip(METHODS[name], node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords}
        if name in ("sum", "mean", "max"):
            axes = np.ravel(self._number(given["axis"])).tolist() if "axis" in given else None
            return [name, receiver, axes, "keepdims" in given]
        if name == "repeat":
            return ["repeat", receiver, *(self._number(given[n]) for n in METHODS[name])]
        numbers = [self._number(arg) for arg in node.args]
        return [name, receiver, *numbers] if name == "swapaxes" else [name, receiver, numbers]

    def _number(self, node: ast.expr) -> Any:
        """Compute what stands in the brackets of a method: integers, and names of such."""
        names = {name: step.array for name, step in self.recorded.items() if step.array.ndim == 0}
        code = compile(ast.Expression(node), "<equation>", "eval")
        value = eval(code, {"__builtins__": {}}, names)
        return [int(n) for n in value] if isinstance(value, tuple) else int(value)


def _softmax_of(powers: Any, total: ast.expr) -> ast.expr | None:
    """Return x where an equation divides np.exp(x) by its own sum over each row, else None."""
    if function_of(powers) != "exp":
        return None
    scores: ast.expr = powers.args[0]
    own = f"{ast.unparse(powers)}.sum(axis=-1, keepdims=True)"
    return scores if ast.unparse(total) == own else None


def numbers_of(array: Array) -> dict[str, str]:
    """Return numbers in C order, in base64, in the narrowest type that holds each of them.

    Where none does, a number is the leading six bytes of its float64: eleven digits.
    """
    with np.errstate(all="ignore"):
        wide = np.asarray(array, np.float64).ravel()
        for kind in ("uint8", "float32"):
            narrow = wide.astype(kind)
            if np.array_equal(narrow, wide, equal_nan=True):
                return {"type": kind, "base64": _base64(narrow)}
    rounded = wide.astype("<f8").view("<u8") + 0x8000
    return {"type": "float48", "base64": _base64(rounded.view(np.uint8).reshape(-1, 8)[:, 2:])}


def _base64(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode()
