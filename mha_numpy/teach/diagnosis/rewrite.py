"""rewritten: a part of a syntax tree, rewritten by the rules.

The rules are in `rules.txt`, in Python's own syntax, one group of slips after another:

    what is there -> what is written instead; what else is written instead; ...

A to F are any parts, and ARGS any arguments. Some names stand for a part in one place: VALUE for
a value that is computed, returned or passed on, LOOP for the iterable of a loop, TEST for a
condition. On the right, AXIS is any axis, ARRAY any array among the function's arguments, SIZE any
number that it knows: a parameter, or the length of an axis; and NAME anything that has a name.

`mends.txt` has more rules, for a function that is to become right, not wrong.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("rules.txt")
MENDS = Path(__file__).with_name("mends.txt")
PARTS = frozenset("ABCDEF")  # names that mean any part
ARGS = "ARGS"
PLACES = frozenset({"VALUE", "LOOP", "TEST"})  # names that mean the part in such a place
Bound = dict[str, Any]


class Rule(NamedTuple):
    """A part of the source, and the parts to write instead."""

    group: str
    old: ast.expr
    new: list[ast.expr]


def rule_groups() -> list[str]:
    """Return the kinds of slips, from the one named first to the one named last."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(" ")]


@cache
def rules(file: Path = FILE) -> list[Rule]:
    """Read the rules of a file."""
    found, group = [], ""
    for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
        if not line.startswith(" "):
            group = line
            continue
        old, _, new = line.partition(" -> ")
        found.append(Rule(group, _parsed(old), [_parsed(text) for text in new.split(";")]))
    return found


def _parsed(text: str) -> ast.expr:
    """Return the tree of an expression, or of `*ARGS`."""
    call = ast.parse(f"_({text.strip()})", mode="eval").body
    return call.args[0]  # type: ignore[attr-defined]


def rewritten(
    node: ast.expr, place: str, known: Mapping[str, Sequence[ast.expr]], rules: Sequence[Rule]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield each rewritten form of a part in a place, with the group of the rule.

    `known` says what a name of rules, such as SIZE, may stand for.
    """
    for rule in rules:
        bound: Bound = {}
        if not _matches(rule.old, node, place, bound):
            continue
        for new in rule.new:
            if _is_args(new):
                yield from ((rule.group, argument) for argument in bound[ARGS][0])
                continue
            names = {part.id for part in ast.walk(new) if isinstance(part, ast.Name)}
            name = next(iter(names & known.keys()), None)
            for one in known[name] if name else [None]:
                yield rule.group, _filled(new, bound | {name: one} if name else bound)


def _matches(old: Any, node: Any, place: str, bound: Bound) -> bool:
    """Return whether a part matches a rule, and note what the rule's names stand for."""
    if isinstance(old, ast.Name) and old.id in PLACES:
        bound[old.id] = node
        return old.id == place
    if isinstance(old, ast.Name) and old.id in PARTS:  # no rule has one twice
        bound[old.id] = node
        return True
    if isinstance(old, list):
        return len(old) == len(node) and all(
            _matches(one, other, "", bound) for one, other in zip(old, node, strict=True)
        )
    if type(old) is not type(node):
        return False
    if isinstance(old, ast.Call) and old.args and _is_args(old.args[-1]):
        given = old.args[:-1]
        bound[ARGS] = node.args[len(given) :], node.keywords
        return _matches(old.func, node.func, "", bound) and (
            _matches(given, node.args[: len(given)], "", bound)
        )
    if isinstance(old, ast.AST):
        return all(
            _matches(getattr(old, field), getattr(node, field), "", bound)
            for field in old._fields
            if field != "ctx"
        )
    return bool(old == node)


def _filled(new: Any, bound: Bound) -> Any:
    """Return a new tree in which the names of a rule are replaced by what they stand for."""
    if isinstance(new, list):
        return [_filled(one, bound) for one in new]
    if isinstance(new, ast.Name):
        return bound.get(new.id, new)
    if not isinstance(new, ast.AST):
        return new
    fields = {name: _filled(value, bound) for name, value in ast.iter_fields(new)}
    if isinstance(new, ast.Call) and new.args and _is_args(new.args[-1]):
        args, keywords = bound[ARGS]
        fields["args"] = [*fields["args"][:-1], *args]
        fields["keywords"] = [*keywords, *fields["keywords"]]
    return type(new)(**fields)


def _is_args(part: ast.expr) -> bool:
    is_starred = isinstance(part, ast.Starred) and isinstance(part.value, ast.Name)
    return is_starred and part.value.id == ARGS  # type: ignore[attr-defined]
