"""Small edits of a line, as a person would make them: each is tried, and may be what is right."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

AXES = (-1, -2, -3, 0, 1, 2, 3)
OTHER_OPERATORS: dict[type, tuple[str, ...]] = {
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/",), ast.Div: ("*",),
    ast.Gt: (">=", "<", "<="), ast.GtE: (">", "<", "<="), ast.Lt: ("<=", ">", ">="),
    ast.LtE: ("<", ">", ">="), ast.Eq: ("!=",), ast.NotEq: ("==",),
}  # fmt: skip
OTHER_NAMES = {"tril": "triu", "triu": "tril", "min": "max", "sum": "mean", "mean": "sum"}
MOST_NAMES = 40
REDUCE = ("sum", "max", "amax", "mean", "softmax", "log_softmax", "logsumexp")
MOVES = ("transpose", "permute", "swapaxes", "moveaxis")


class Edit(NamedTuple):
    """A part of a text that is replaced."""

    start: int  # in bytes, of the whole text
    end: int
    text: str
    kind: str = ""  # edits of one kind may be needed together; "" is needed alone


class Text:
    """The source of a file, and where each node of its tree is."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))

    def of(self, node: Any) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends."""
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def put(self, node: Any, text: str, kind: str = "") -> Edit:
        """Return an edit that writes something else for a node."""
        return Edit(*self.span(node), text, kind)

    def edited(self, edits: Sequence[Edit]) -> str:
        """Return the whole text after some edits."""
        return edited(self.bytes, edits)

    def line(self, edit: Edit) -> int:
        """Return the line of an edit."""
        return self.bytes.count(b"\n", 0, edit.start) + 1

    def statement(self, line: int) -> Any:
        """Return the smallest statement that has a line."""
        around = (n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and _has(n, line))
        return max(around, key=lambda node: node.lineno, default=None)

    def function(self, line: int) -> Any:
        """Return the function that has a line."""
        kinds = (ast.FunctionDef, ast.Lambda)
        around = (n for n in ast.walk(self.tree) if isinstance(n, kinds) and _has(n, line))
        return max(around, key=lambda node: node.lineno, default=None)


def edited(text: bytes, edits: Sequence[Edit]) -> str:
    """Return a text after some edits."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text.encode() + text[edit.end :]
    return text.decode()


def _has(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= node.end_lineno)


def edits_of(text: Text, line: int) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits of the statement in a line; then those that several places need alike."""
    statement, function = text.statement(line), text.function(line)
    if statement is None or function is None or hasattr(statement, "body"):
        return
    own = [*_all_edits(text, statement, function)]
    yield from ((edit,) for edit in own)
    alike: dict[str, list[Edit]] = {edit.kind: [] for edit in own if edit.kind}
    for other in ast.walk(function):
        if isinstance(other, ast.stmt) and not hasattr(other, "body"):
            for edit in _all_edits(text, other, function):
                if edit.kind in alike:
                    alike[edit.kind].append(edit)
    yield from (tuple(each) for each in alike.values() if _are_apart(each))


def _are_apart(edits: Sequence[Edit]) -> bool:
    """Return whether several edits change different places."""
    places = sorted(edits)
    return len(edits) > 1 and all(a.end <= b.start for a, b in pairwise(places))


def _all_edits(text: Text, statement: Any, function: Any) -> Iterator[Edit]:
    """Yield the edits of a statement, those of single numbers and signs first."""
    nodes = [*ast.walk(statement)]
    signed = [n.operand for n in nodes if isinstance(n, ast.UnaryOp) and _is_minus(n)]
    nodes = [node for node in nodes if node not in signed]
    for make in MAKERS:
        for node in nodes:
            yield from make(text, node)
    yield from _names(text, nodes, function)
    yield from _exchanges(text, statement, nodes)
    yield from _shifts(text, statement, nodes)


def _is_minus(node: ast.UnaryOp) -> bool:
    return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def _axes(text: Text, node: Any) -> Iterator[Edit]:
    """Yield edits of the axis along which something is reduced."""
    if _called(node) in ("sum", "max") and not (node.args or node.keywords):
        yield text.put(node, f"{text.of(node)[:-2]}(axis=-1, keepdims=True)", "axis -1")
    if _called(node) in REDUCE:
        for part in (*node.args, *(word.value for word in node.keywords)):
            if re.fullmatch(r"-?\d", text.of(part)):
                yield from (text.put(part, str(n), f"axis {n}") for n in AXES)


def _numbers(text: Text, node: Any) -> Iterator[Edit]:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int(number))) if number < 5:
            yield from (text.put(node, str(n)) for n in AXES if n != -number)
        case ast.Constant(value=bool()):
            yield text.put(node, str(not node.value))
        case ast.Constant(value=int(number)) if number < 5:
            yield from (text.put(node, str(n)) for n in (*AXES, number + 1) if n != number)
            yield text.put(node, _hidden(text))
        case ast.Constant(value=float(number)):
            yield from (text.put(node, s) for s in (f"-{number}", "0.5", "1.0", _hidden(text)))
        case ast.UnaryOp(ast.USub(), ast.Constant(value=float() | int() as number)):
            yield text.put(node, str(number))
            yield text.put(node, _hidden(text))


def _hidden(text: Text) -> str:
    """Return what hides a cell."""
    return "-np.inf" if b"import numpy as np" in text.bytes else 'float("-inf")'


def _signs(text: Text, node: Any) -> Iterator[Edit]:
    match node:
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            for other in OTHER_OPERATORS.get(type(operator), ()):
                yield text.put(node, f"{text.of(left)} {other} {text.of(right)}")
        case ast.UnaryOp(ast.Invert() | ast.Not() | ast.USub(), inside):
            yield text.put(node, text.of(inside))


def _choices(text: Text, node: Any) -> Iterator[Edit]:
    """Yield edits that turn a mask round."""
    match node:
        case ast.Call(args=[one, other, third]) if _called(node) == "where":
            first, second = text.of(other), text.of(third)
            start, end = text.span(other)[0], text.span(third)[1]
            yield Edit(start, end, f"{second}, {first}")
            yield text.put(one, f"~{_closed(text, one)}")
        case ast.Call(args=[one, *_]) if _called(node) in ("masked_fill", "masked_fill_"):
            yield text.put(one, f"~{_closed(text, one)}")
        case ast.Subscript(slice=ast.Name() as one, ctx=ast.Store()):
            yield text.put(one, f"~{one.id}")


def _calls(text: Text, node: Any) -> Iterator[Edit]:
    """Yield edits of what is called, and of the order of its axes."""
    name = _called(node)
    if name in OTHER_NAMES:
        end = text.span(node.func)[1]
        yield Edit(end - len(name), end, OTHER_NAMES[name])
    if name == "arange" and len(node.args) > 1:
        yield text.put(node, f"2 * {text.of(node)}")
    match node:
        case ast.Call(args=[*_, ast.Tuple(axes)]) | ast.Call(args=axes) if name in MOVES:
            for one, other in combinations([a for a in axes if not isinstance(a, ast.Name)], 2):
                yield _exchanged(text, one, other)
        case ast.Subscript(slice=ast.Tuple(axes)) | ast.List(axes) | ast.Tuple(axes):
            for one, other in combinations(axes, 2):
                if text.of(one) != text.of(other):
                    yield _exchanged(text, one, other)
        case ast.Call(_, [ast.Call(_, [ast.Tuple([rows, columns]), *_]), *_]) | ast.Call(
            _, [ast.Call(_, [rows, columns]), *_]
        ) if name in ("tril", "triu"):
            word = "diagonal" if text.of(node).startswith("torch") else "k"
            more = "" if name == "tril" else " + 1"
            own = f"{text.of(node.func)}({text.of(node.args[0])}"
            yield text.put(node, f"{own}, {word}={text.of(columns)} - {text.of(rows)}{more})")


def _exchanged(text: Text, one: Any, other: Any) -> Edit:
    """Return the edit that exchanges two nodes, the first of which comes first."""
    (start, until), (after, end) = text.span(one), text.span(other)
    between = text.bytes[until:after].decode()
    return Edit(start, end, text.of(other) + between + text.of(one))


def _repeats(text: Text, node: Any) -> Iterator[Edit]:
    """Yield the repeat of each head that takes the place of a tile."""
    match node:
        case ast.Call(ast.Attribute(module), [array, ast.Tuple(times)]) if _called(node) == "tile":
            start, axis = f"{text.of(module)}.repeat({text.of(array)}", "axis"
        case ast.Call(ast.Attribute(array), [_, _, *_] as times) if _called(node) == "repeat":
            start, axis = f"{_closed(text, array)}.repeat_interleave(", "dim"
        case _:
            return
    for at, count in enumerate(times):
        if not isinstance(count, ast.Constant):
            new = f"{start}, {text.of(count)}, {axis}={at})".replace("(, ", "(")
            yield text.put(node, new, f"repeat {at}")


def _reshapes(text: Text, node: Any) -> Iterator[Edit]:
    """Yield a transpose with a reshape, before or after it, or instead of it."""
    match node:
        case ast.Call(ast.Attribute(array), [*lengths]) if _called(node) in ("reshape", "view"):
            own = _closed(text, array)
            for at in range(len(lengths) - 1):
                turned = [text.of(length) for length in lengths]
                turned[at : at + 2] = turned[at : at + 2][::-1]
                back = f"swapaxes({at}, {at + 1})"
                new = f"{own}.{_called(node)}({', '.join(turned)}).{back}"
                yield text.put(node, new, f"{len(lengths)} {back}")
            for one, other in ((-1, -2), (1, 2)):
                yield text.put(node, f"{own}.swapaxes({one}, {other})")
                yield text.put(array, f"{own}.swapaxes({one}, {other})")


def _factors(text: Text, node: Any) -> Iterator[Edit]:
    """Yield edits that leave out a part of a product or a sum, or scale only a part of it."""
    match node:
        case ast.BinOp(
            ast.BinOp(one, ast.Add() | ast.Sub() as adds, other), ast.Mult() | ast.Div(), factor
        ):
            by = f" {'*' if isinstance(node.op, ast.Mult) else '/'} {text.of(factor)}"
            sign = "+" if isinstance(adds, ast.Add) else "-"
            yield text.put(node, f"{text.of(one)}{by} {sign} {text.of(other)}")
            yield text.put(node, f"{text.of(one)} {sign} {text.of(other)}{by}")
    match node:
        case ast.BinOp(left, ast.Mult() | ast.Div() | ast.Add() | ast.Sub(), right):
            yield text.put(node, text.of(left))
            if isinstance(node.op, ast.Mult | ast.Add):
                yield text.put(node, text.of(right))
        case ast.Call(ast.Attribute(array), _) if _called(node) not in MOVES:
            yield text.put(node, text.of(array))


def _scales(text: Text, node: Any) -> Iterator[Edit]:
    """Yield edits that divide scores by the root of the width of one of their arrays."""
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
    if is_product or _called(node) in ("einsum", "matmul", "dot"):
        for name in dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            yield text.put(node, f"{text.of(node)} / {name}.shape[-1] ** 0.5")


def _names(text: Text, nodes: list[Any], function: Any) -> Iterator[Edit]:
    """Yield edits that write another name of the same function, or the width of an array."""
    kinds = (ast.Name, ast.Attribute)
    read = [n for n in nodes if isinstance(n, kinds) and isinstance(n.ctx, ast.Load)]
    arrays = dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name))
    known = [n for n in ast.walk(function) if isinstance(n, kinds)]
    names = [text.of(n) for n in known if isinstance(n, ast.Name) or text.of(n)[:5] == "self."]
    names += [argument.arg for argument in function.args.args]
    pool = [*(f"{name}.shape[-1]" for name in arrays), *dict.fromkeys(names)]
    for node in read:
        yield from (text.put(node, name) for name in pool[:MOST_NAMES] if name != text.of(node))


def _exchanges(text: Text, statement: Any, nodes: list[Any]) -> Iterator[Edit]:
    """Yield edits that exchange two names in a statement."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        for pair in combinations(statement.targets[0].elts, 2):
            yield _exchanged(text, *pair)
    names = dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name))
    for one, other in combinations(names, 2):
        parts = re.split(rf"\b({one}|{other})\b", text.of(statement))
        turned = {one: other, other: one}
        yield text.put(statement, "".join(turned.get(part, part) for part in parts))


def _shifts(text: Text, statement: Any, nodes: list[Any]) -> Iterator[Edit]:
    """Yield edits that subtract the maximum before exp; what has no name gets one."""
    for node in nodes:
        if _called(node) == "exp" and len(node.args) == 1:
            inside = text.of(node.args[0])
            name = inside if isinstance(node.args[0], ast.Name) else "scores"
            is_torch = text.of(node).startswith("torch")
            last = "amax(dim=-1, keepdim=True)" if is_torch else "max(axis=-1, keepdims=True)"
            new = text.of(statement).replace(inside, f"{name} - {name}.{last}")
            yield text.put(statement, new if name == inside else f"{name} = {inside}; {new}")


def _called(node: Any) -> str:
    """Return the last name of what a node calls."""
    function = getattr(node, "func", None)
    return str(getattr(function, "attr", None) or getattr(function, "id", None) or "")


def _closed(text: Text, node: Any) -> str:
    """Return the text of a node, in brackets where something after it would bind closer."""
    is_open = isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp))
    return f"({text.of(node)})" if is_open else text.of(node)


MAKERS = (
    _axes, _numbers, _signs, _choices, _calls, _repeats, _reshapes, _scales, _factors,
)  # fmt: skip
