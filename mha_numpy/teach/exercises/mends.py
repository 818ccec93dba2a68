"""Mends: a change in one place of a student's own text, and whether it works.

What a message only suggests, a changed copy proves: if the function runs with `keepdims=True` in
one of its lines, that is what was missing there.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from textwrap import dedent
from typing import Any, NamedTuple

from mha_numpy.teach.diagnosis.search import SmallEdit

MOST = 8  # changes that are tried
SECONDS = 3.0  # after which no further one is
LINE = 80  # characters of a line that is quoted
Works = Callable[[str], int]  # how well a changed text works: 0 not, 1 it runs, 2 shapes are right


class Mend(NamedTuple):
    """An expression of a text, and what to write instead."""

    node: ast.expr
    new: str


def changed(text: str, mends: Iterable[Mend]) -> str:
    r"""Return a text with some of its expressions replaced; none may be inside of another.

    Examples
    --------
    >>> text = "é = f(x / 2)"
    >>> node = ast.parse(text).body[0].value.args[0]
    >>> changed(text, [Mend(node, "x // 2")])
    'é = f(x // 2)'
    """
    data = text.encode()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    spots = [
        (
            starts[one.node.lineno - 1] + one.node.col_offset,
            starts[(one.node.end_lineno or 0) - 1] + (one.node.end_col_offset or 0),
            one.new.encode(),
        )
        for one in mends
    ]
    for begin, end, new in sorted(spots, reverse=True):
        data = data[:begin] + new + data[end:]
    return data.decode()


def first_that_works(text: str, mends: Iterable[Mend], works: Works, least: int = 1) -> list[Mend]:
    """Return the one mend that works, or all of them if they work together; else none."""
    tried, ends = list(islice(mends, MOST)), time.monotonic() + SECONDS
    for one in tried:
        if time.monotonic() > ends:
            return []
        if works(changed(text, [one])) >= least:
            return [one]
    is_nested = any(a is not b and a.node in ast.walk(b.node) for a in tried for b in tried)
    if len(tried) > 1 and not is_nested and works(changed(text, tried)) >= least:
        return tried
    return []


def line_of(text: str, number: int) -> str:
    """Return a line of a text, to be quoted."""
    lines = text.split("\n")
    return lines[number - 1].strip()[:LINE] if 0 < number <= len(lines) else ""


def source_of(function: Callable[..., Any]) -> str:
    """Return the text of a function, on the lines where it is in its file; "" if it has none."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return ""
    return "\n" * (first - 1) + dedent("".join(lines))


def remade(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return a function made from a changed text, with the names that it knew."""
    (definition,) = ast.parse(text).body
    if not isinstance(definition, ast.FunctionDef):  # a lambda in a line that does more
        raise TypeError(text)
    names = dict(function.__globals__)
    exec(compile(text, function.__code__.co_filename, "exec"), names)
    return names[definition.name]


def find_place(edit: SmallEdit | None, text: str, works: Works) -> str:
    """Return the line of a student's text in which an edit was made, in words; "" if unknown.

    It is told only if undoing the edit in that line, and in no other, makes the function right.
    """
    if edit is None:
        return ""
    try:
        pair = _first_difference(ast.parse(edit.wrong), ast.parse(edit.right))
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    if pair is None:
        return ""
    mends = [Mend(node, new) for node in _expressions(tree) if (new := _undone(node, *pair))]
    if len(mends) > MOST:
        return ""
    lines, ends = list[int](), time.monotonic() + SECONDS
    for mend in mends:
        if time.monotonic() > ends:
            return ""
        if works(changed(text, [mend])):
            lines.append(mend.node.lineno)
    if len(lines) != 1:
        return ""
    return f". In your code it is in line {lines[0]}: `{line_of(text, lines[0])}`"


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.expr))


def _first_difference(wrong: ast.AST, right: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    """Return the smallest parts of two trees that differ, if it is one pair."""
    if type(wrong) is not type(right):
        return wrong, right
    pairs = list(zip_longest(ast.iter_child_nodes(wrong), ast.iter_child_nodes(right)))
    differing = [(a, b) for a, b in pairs if a is None or b is None or ast.dump(a) != ast.dump(b)]
    own = [
        field
        for field in wrong._fields
        if not isinstance(getattr(wrong, field), (ast.AST, list))
        and getattr(wrong, field) != getattr(right, field)
    ]
    if own or len(differing) != 1 or None in differing[0]:
        return (wrong, right) if own or differing else None
    ((one, other),) = differing
    if isinstance(one, (ast.operator, ast.cmpop, ast.unaryop)):
        return wrong, right
    return _first_difference(one, other)


def _undone(node: ast.expr, wrong: ast.AST, right: ast.AST) -> str:
    """Return what to write for an expression that has the same slip; "" if it has not."""
    match node, wrong, right:
        case ast.Attribute(), ast.Attribute(), ast.Attribute() if node.attr == wrong.attr:
            return ast.unparse(ast.Attribute(node.value, right.attr, ast.Load()))
        case ast.BinOp(), ast.BinOp(), ast.BinOp() if type(node.op) is type(wrong.op):
            if type(wrong.op) is not type(right.op):
                return f"({ast.unparse(ast.BinOp(node.left, right.op, node.right))})"
            if ast.dump(wrong.left) == ast.dump(right.right):
                return f"({ast.unparse(ast.BinOp(node.right, node.op, node.left))})"
        case ast.Compare(), ast.Compare(), ast.Compare():
            if [type(op) for op in node.ops] == [type(op) for op in wrong.ops]:
                return ast.unparse(ast.Compare(node.left, right.ops, node.comparators))
    is_same = _is_number(wrong) and ast.dump(node) == ast.dump(wrong)
    return ast.unparse(right) if is_same and _is_number(right) else ""


def _is_number(node: ast.AST) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, (int, float))
