"""Results that a line computes and drops: ``scores.masked_fill(mask, -inf)`` without a name."""

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from mha_numpy.identifying.calling.arrays import helpers_of
from mha_numpy.identifying.calling.signatures import source_of
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.reporting.rows import Row, make_row

PURE = {  # methods and functions that change nothing and return a new array
    "masked_fill", "masked_scatter", "transpose", "permute", "swapaxes", "moveaxis", "reshape",
    "view", "softmax", "unsqueeze", "squeeze", "repeat_interleave", "expand", "clamp", "clip",
    "astype", "tril", "triu", "where", "dropout",
}  # fmt: skip


def dropped_results(subject: Subject) -> Iterator[Row]:
    """Yield a row for each such line of a function, and of what it calls in its file."""
    for function in _own_functions(subject):
        _, tree = source_of(function)
        first = function.__code__.co_firstlineno - 1
        for node in ast.walk(tree):
            match node:
                case ast.Expr(ast.Call(ast.Attribute(array, name), given)) if name in PURE:
                    text = ast.unparse(node)
                    target: ast.AST | None = array
                    if _is_library(array, function):
                        given = given[name == "where" :]  # after the condition
                        target = given[0] if given else None
                    edit = f"{ast.unparse(target)} = {text}" if target else ""
                    row = make_row("dropped", name)
                    yield row._replace(line=first + node.lineno, code=text, edit=edit)


def _own_functions(subject: Subject) -> Iterator[Callable[..., Any]]:
    """Yield a function, those that it names in its file, and those of the parts of a module."""
    inner, whole = subject.inner, subject.function
    parts = whole.modules() if subject.is_module else ()  # type: ignore[attr-defined]
    methods = (getattr(type(part), "forward", None) for part in parts)
    of_parts = [f for f in methods if f and f.__module__ == inner.__module__]
    yield from dict.fromkeys(filter(inspect.isfunction, [inner, *helpers_of(inner), *of_parts]))


def _is_library(node: ast.AST, function: Callable[..., Any]) -> bool:
    """Return whether a call is one of a library's functions, as ``np.where(...)``."""
    first = ast.unparse(node).split(".")[0]
    return inspect.ismodule(function.__globals__.get(first))
