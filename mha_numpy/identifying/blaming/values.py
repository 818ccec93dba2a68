"""Every array that a function's expressions have while it runs, each with its line."""

import ast
import contextlib
import copy
import gc
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.arrays import flatten
from mha_numpy.identifying.calling.subject import Subject

NAME = "__see__"  # what each expression is handed to
WATCHED = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Subscript, ast.Attribute,
    ast.IfExp,
)  # fmt: skip
LARGEST = 100_000  # numbers in an array
MOST = 64  # arrays in a list
TRACED = re.compile(r"\b(scan|fori_loop|while_loop|cond|remat)\b")  # by jax, once


class Value(NamedTuple):
    """An array that an expression had."""

    line: int
    array: Array


class Enough(KeyboardInterrupt):
    """Time is up; no call takes this for an error of the function."""


def values_of(subject: Subject, given: Mapping[str, Any]) -> list[Value]:
    """Call a function; return the arrays that expressions of its file had, in their order.

    All functions of the file take part, so that the arrays of helpers and of a module's parts
    are among them.
    """
    found: list[Value] = []

    def see(line: int, value: Any) -> Any:
        if subject.left < 0:
            raise Enough
        for part in value[:MOST] if isinstance(value, (tuple, list)) else [value]:
            while hasattr(part, "batch_dim"):  # in jax.vmap
                part = part.val
            if isinstance(part, (tuple, list, float)) or hasattr(part, "shape"):
                with contextlib.suppress(Exception):  # an array without numbers, as in jax.jit
                    found.extend(Value(line, _copy(array)) for _, array in flatten(part))
        return value

    with contextlib.suppress(Enough), _watched(subject, see):
        subject.call(given)
    return [value for value in found if value.array.size > 0]


def _copy(array: Array) -> Array:
    """Return a copy, of floats or of bool; an empty one if the array is large."""
    kind = bool if array.dtype == bool else float
    return np.array(array if array.size < LARGEST else [], kind)


@contextlib.contextmanager
def _watched(subject: Subject, see: Any) -> Iterator[None]:
    """Let all functions of a file run code that hands each value to `see`."""
    file = subject.inner.__code__.co_filename
    source = source_around(subject)
    watched = ast.fix_missing_locations(Watch().visit(ast.parse(source)))
    with replaced(subject, functions_of(file), compile(watched, file, "exec", dont_inherit=True)):
        subject.inner.__globals__[NAME] = see
        try:
            yield
        finally:
            subject.inner.__globals__.pop(NAME, None)


def source_around(subject: Subject) -> str:
    """Return the source of the file that a function is in."""
    file = subject.inner.__code__.co_filename
    return "".join(linecache.getlines(file, subject.inner.__globals__))


def functions_of(file: str) -> list[FunctionType]:
    """Return all functions that are defined in a file."""
    found = (f for f in gc.get_objects() if type(f) is FunctionType)
    return [f for f in found if f.__code__.co_filename == file]


@contextlib.contextmanager
def replaced(subject: Subject, functions: Sequence[FunctionType], code: CodeType) -> Iterator[None]:
    """Let functions run the code that another text of their file has for them."""
    given: Any = subject.function
    codes = dict(_codes(code))
    before = [(f, f.__code__) for f in functions]
    jax: Any = sys.modules.get("jax")
    is_traced = jax and TRACED.search(source_around(subject))
    try:
        for function, old in before:
            new = codes.get((old.co_name, old.co_firstlineno))
            if new and new.co_freevars == old.co_freevars:
                function.__code__ = new
        plain = given
        while type(plain).__name__ == "PjitFunction":  # its values are no numbers
            plain = plain.__wrapped__
        subject.function, subject.is_watched = plain, True
        with jax.disable_jit() if is_traced else contextlib.nullcontext():
            yield
    finally:
        subject.function, subject.is_watched = given, False
        for function, old in before:
            function.__code__ = old


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield (inner.co_name, inner.co_firstlineno), inner
            yield from _codes(inner)


class Watch(ast.NodeTransformer):
    """Hand the value of each expression, and each array after a change in place, to `see`."""

    def visit(self, node: ast.AST) -> Any:
        """Watch an expression."""
        new = super().visit(node)
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        return _see(node, new) if isinstance(node, WATCHED) and is_read else new

    def visit_Return(self, node: ast.Return) -> Any:
        """Watch what is returned, names as well."""
        self.generic_visit(node)
        if node.value:
            node.value = _see(node, node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Watch an array of which a part is assigned."""
        self.generic_visit(node)
        parts = [target for target in node.targets if isinstance(target, ast.Subscript)]
        return [node, *(_after(node, part) for part in parts)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Watch an array that is changed in place."""
        self.generic_visit(node)
        return [node, _after(node, node.target)]

    def visit_match_case(self, node: ast.match_case) -> Any:
        """Leave patterns as they are."""
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _see(node: Any, value: Any) -> ast.Call:
    """Return the call that hands a value to `see`, with the line of its last operator."""
    at: Any = node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        line = node.func.end_lineno
    else:
        line = node.right.lineno if isinstance(node, ast.BinOp) else at.lineno
    call = ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(line), value], [])
    return ast.copy_location(call, node)


def _after(node: Any, target: Any) -> ast.Expr:
    """Return a statement that hands the array of a target to `see`."""
    while isinstance(target, ast.Subscript):
        target = target.value
    read = copy.deepcopy(target)
    read.ctx = ast.Load()
    return ast.copy_location(ast.Expr(_see(node, read)), node)
