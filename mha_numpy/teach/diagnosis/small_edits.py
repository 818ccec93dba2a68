"""Small edits: every slip that a student might make in one place of a right function.

The rules rewrite an expression wherever it occurs. The edits here need to know more: which other
names there are, the arguments of a call, or the order of statements.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import combinations
from types import CodeType
from typing import Any, NamedTuple

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.teach.diagnosis.rewrite import Rule, rewritten, rule_groups, rules
from mha_numpy.teach.diagnosis.solutions import code_of, read_solutions
from mha_numpy.teach.saved import Saved

NUMBERS = (-3, -2, -1, 0, 1, 2, 3)  # axes, and other small ones
LEFT_ALONE = {"keepdims", "dtype", "strict", "invert"}  # keywords
HOLDERS = (ast.Assign, ast.AugAssign, ast.Return, ast.BinOp, ast.Call, ast.keyword, ast.List)
OWN_GROUPS = (
    "a different variable", "a different number", "two things swapped", "a missing line",
    "a line moved into a loop", "a line moved out of a loop", "a loop that ends after one round",
)  # fmt: skip
NAME, NUMBER, EXCHANGED, LEFT_OUT, INSIDE, OUTSIDE, ONCE = OWN_GROUPS
PART = "a missing part"
GROUPS = list(dict.fromkeys([PART, *OWN_GROUPS, *rule_groups()]))
RANKS = {group: rank for rank, group in enumerate(GROUPS)}
ATTRIBUTES = {"params": MultiHeadParams._fields, "saved": Saved._fields}
PLACES = {"iter": "LOOP", "test": "TEST"}  # of rules, by the field of a part


class Scope(NamedTuple):
    """The names and sizes that a function knows."""

    parts: list[ast.expr]  # its parameters, what it computes, and the calls in it
    arrays: list[str]  # parameters
    known: dict[str, list[ast.expr]]  # what names of rules can mean
    rules: Sequence[Rule]


class Edit(NamedTuple):
    """A field of a syntax tree, and its new content."""

    group: str  # the kind of slip
    holder: ast.AST
    field: str
    new: Any
    is_of_input: bool = False  # which is rewritten before the first line

    @property
    def rank(self) -> int:
        """The rank among edits with the same results; the lowest is shown."""
        return RANKS[self.group] + len(GROUPS) * self.is_of_input


class Edited:
    """A right function, or one with mistakes in it, and all small edits of it."""

    def __init__(self, source: str):
        self.module = ast.parse(source)
        (function,) = self.module.body
        assert isinstance(function, ast.FunctionDef)
        self.edits = list(edits_of_function(function, rules()))

    def code(self, edit: Edit) -> CodeType | None:
        """Return the code of the function with an edit; None where Python does not allow it."""
        try:
            return code_of(self._made(edit, lambda: compile(self._placed(), "edited", "exec")))
        except (SyntaxError, TypeError, ValueError):
            return None

    def lines(self, edit: Edit) -> tuple[str, str]:
        """Return the lines that an edit writes, and the right ones."""
        right = ast.unparse(self.module).splitlines()
        wrong = self._made(edit, lambda: ast.unparse(self._placed())).splitlines()
        return _only_in(wrong, right), _only_in(right, wrong)

    def _placed(self) -> ast.Module:
        """Return the tree with line numbers for its new parts."""
        return ast.fix_missing_locations(self.module)

    @staticmethod
    def _made(edit: Edit, use: Callable[[], Any]) -> Any:
        """Use the tree with an edit made in it, then undo the edit."""
        old = getattr(edit.holder, edit.field)
        setattr(edit.holder, edit.field, edit.new)
        try:
            return use()
        finally:
            setattr(edit.holder, edit.field, old)


@lru_cache(maxsize=64)
def read_edits(source: str) -> Edited:
    """Read a function once. The tree is changed while it is used, so by one thread at a time."""
    return Edited(source)


def _only_in(lines: list[str], others: list[str]) -> str:
    """Return the lines from the first to the last that differs."""
    first = next(
        (i for i, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b), len(lines)
    )
    most = min(len(lines), len(others)) - first
    pairs = zip(reversed(lines), reversed(others), strict=False)
    last = next((i for i, (a, b) in enumerate(pairs) if a != b or i >= most), 0)
    return "\n".join(line.strip() for line in lines[first : len(lines) - last])


def edits_of_function(function: ast.FunctionDef, rules: Sequence[Rule]) -> Iterator[Edit]:
    """Yield the edits of a function: of its inputs, and of each part of its body."""
    scope = _scope_of(function, rules)
    yield from _edits_of_inputs(function, scope)
    for holder in (part for statement in function.body for part in ast.walk(statement)):
        for field, old in ast.iter_fields(holder):
            if field in ("annotation", "targets", "target", "ops", "op", "ctx"):
                continue
            if isinstance(old, ast.expr):
                for group, new in _parts(old, holder, field, scope):
                    yield Edit(group, holder, field, new)
            elif isinstance(old, list) and old and isinstance(old[0], ast.expr):
                for i, part in enumerate(old):
                    for group, new in _parts(part, holder, field, scope):
                        yield Edit(group, holder, field, [*old[:i], new, *old[i + 1 :]])
    loops = [part for part in ast.walk(function) if isinstance(part, ast.For)]
    blocks: list[ast.FunctionDef | ast.For] = [function, *loops]
    for holder in blocks:
        for group, body in _statements(holder.body):
            yield Edit(group, holder, "body", body)


def _scope_of(function: ast.FunctionDef, rules: Sequence[Rule]) -> Scope:
    kinds = {one.arg: ast.unparse(one.annotation or ast.Name("")) for one in function.args.args}
    parts = [part for statement in function.body for part in ast.walk(statement)]
    computed = [p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)]
    growing = {  # an array made of a list that holds itself would have no end
        name.id
        for part in parts
        if isinstance(part, ast.Assign) and ast.unparse(part.value) == "[]"
        for name in part.targets
        if isinstance(name, ast.Name)
    }
    arrays = [name for name, kind in kinds.items() if kind.startswith("Array")]
    sizes = [name for name, kind in kinds.items() if kind in ("int", "float")]
    for part in parts:
        if isinstance(part, ast.Assign) and ast.unparse(part.value).endswith(".shape"):
            sizes += [p.id for p in ast.walk(part.targets[0]) if isinstance(p, ast.Name)]
    lengths = [f"{name}.shape[-1]" for name in arrays[:2]]
    lengths += [f"{name}.shape[-2]" for name in arrays[:1]] + [f"len({n})" for n in arrays[:1]]
    texts = list(dict.fromkeys([*sizes, *lengths]))
    names = [name for name in dict.fromkeys([*kinds, *computed]) if name not in growing]
    calls = [ast.unparse(part) for part in parts if isinstance(part, ast.Call)]
    known = {"SIZE": texts, "ARRAY": arrays, "NAME": names, "AXIS": ["-1", "-2", "0", "1"]}
    return Scope(
        [_parsed(text) for text in dict.fromkeys([*names, *calls])],
        arrays,
        {name: [_parsed(text) for text in texts] for name, texts in known.items()},
        rules,
    )


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _edits_of_inputs(function: ast.FunctionDef, scope: Scope) -> Iterator[Edit]:
    """Yield edits of an array wherever it is used: it is rewritten before the first line."""

    def before(name: str, new: ast.expr) -> list[ast.stmt]:
        return [ast.Assign([ast.Name(name, ast.Store())], new), *function.body]

    for name in scope.arrays:
        for group, new in rewritten(_name(name), "VALUE", scope.known, scope.rules):
            yield Edit(group, function, "body", before(name, new), is_of_input=True)
        for other in scope.arrays:
            if other != name:
                yield Edit(NAME, function, "body", before(name, _name(other)), is_of_input=True)
    for one, other in combinations(scope.arrays, 2):
        text = f"{one}, {other} = {other}, {one}"
        body = [*ast.parse(text).body, *function.body]
        yield Edit(EXCHANGED, function, "body", body, is_of_input=True)


def _parts(
    part: ast.expr, holder: ast.AST, field: str, scope: Scope
) -> Iterator[tuple[str, ast.expr]]:
    """Yield each replacement for a part of a statement, with the kind of slip."""
    if isinstance(holder, ast.keyword) and holder.arg in LEFT_ALONE:
        return
    is_constant = isinstance(part, ast.Constant) or _is_negative(part)
    is_called = field == "func"
    is_value = isinstance(holder, HOLDERS) and not is_constant and not is_called
    place = PLACES.get(field, "VALUE" if is_value else "")
    if is_constant:
        yield from _numbers(part)
        return
    is_loop = place == "LOOP"  # through a list that grows meanwhile it would have no end
    if (is_value or isinstance(part, ast.Name)) and not is_called and not is_loop:
        mine = ast.dump(part)
        yield from ((NAME, other) for other in scope.parts if ast.dump(other) != mine)
    yield from _attributes(part)
    yield from _functions(part)
    yield from _exchanged(part)
    yield from rewritten(part, place, scope.known, scope.rules)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_negative(part: ast.AST) -> bool:
    """Return whether a part is a negative number, which is no constant in a tree."""
    return isinstance(part, ast.UnaryOp) and isinstance(part.operand, ast.Constant)


def _numbers(part: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    number = ast.literal_eval(part)
    if type(number) not in (int, float):
        return
    near = [number + 1, number - 1, 2 * number, number / 2, -number, 10 * number, number / 10]
    small = [*NUMBERS, None] if isinstance(number, int) else [0.0, 1.0, round(number, 2)]
    for other in dict.fromkeys([*small, *near]):
        if other != number:
            yield NUMBER, ast.Constant(other)


def _attributes(part: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
        for other in ATTRIBUTES.get(part.value.id, ()):
            if other != part.attr:
                yield NAME, ast.Attribute(part.value, other, ast.Load())


def _functions(part: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the other right functions with the same parameters."""
    cuts = read_solutions().cuts
    if isinstance(part, ast.Name) and part.id in cuts:
        mine = parameters(part.id)
        for other in cuts:
            if other != part.id and parameters(other) == mine:
                yield NAME, _name(other)


@cache
def parameters(function: str) -> tuple[str, ...]:
    """Return the parameters of a solution's function."""
    code = read_solutions().cuts[function].function.__code__
    return code.co_varnames[: code.co_argcount]


def _exchanged(part: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield a call or a tuple with two parts exchanged, or a tuple without one of them."""
    field = {ast.Call: "args", ast.Tuple: "elts", ast.List: "elts"}.get(type(part))
    if field is None:
        return
    items = getattr(part, field)
    for others in _with_two_exchanged(items):
        yield EXCHANGED, _with(part, field, others)
    if isinstance(part, ast.Call):
        for values in _with_two_exchanged([keyword.value for keyword in part.keywords]):
            pairs = zip(part.keywords, values, strict=True)
            others = [ast.keyword(keyword.arg, value) for keyword, value in pairs]
            yield EXCHANGED, _with(part, "keywords", others)
    elif len(items) > 1:
        for i in range(len(items)):
            yield PART, _with(part, field, items[:i] + items[i + 1 :])


def _with_two_exchanged(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the items with two of them exchanged."""
    for i, j in combinations(range(len(items)), 2):
        others = list(items)
        others[i], others[j] = items[j], items[i]
        yield others


def _with(part: ast.expr, field: str, value: Any) -> ast.expr:
    other = copy(part)
    setattr(other, field, value)
    return other


def _statements(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    for i, one in enumerate(body):
        before, after = body[:i], body[i + 1 :]
        if before or after:
            yield LEFT_OUT, before + after
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple):
            for names in _with_two_exchanged(one.targets[0].elts):
                turned = ast.Assign([ast.Tuple(names, ast.Store())], one.value)
                yield EXCHANGED, [*before, turned, *after]
        if isinstance(one, ast.For):
            yield ONCE, [*before, _loop(one, [*one.body, ast.Break()]), *after]
            if before and isinstance(before[-1], ast.Assign):  # started again each time
                yield INSIDE, [*before[:-1], _loop(one, [before[-1], *one.body]), *after]
            for j, inner in enumerate(one.body[:-1]):
                without = _loop(one, one.body[:j] + one.body[j + 1 :])
                yield OUTSIDE, [*before, inner, without, *after]
            without = _loop(one, one.body[:-1] or [ast.Pass()])
            yield OUTSIDE, [*before, without, one.body[-1], *after]


def _loop(loop: ast.For, body: list[ast.stmt]) -> ast.For:
    return ast.For(loop.target, loop.iter, body, [])
