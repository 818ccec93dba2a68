"""The shapes that docstrings, comments and code declare, and the roles that these leave."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from inspect import isclass, isroutine
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.layouts import (
    HEADS_GIVEN,
    HEADS_INSIDE,
    LAYOUTS,
    PACKED,
    PARAM_LAYOUTS,
    RARE_GIVEN,
    RARE_INSIDE,
    ROWS,
    param_layout,
)
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.signatures import source_of
from mha_numpy.identifying.family import AXES

Symbols = tuple[str, ...]  # what somebody calls the axes of an array
Declared = Mapping[str, Sequence[Symbols]]  # by argument, which may have one of several shapes

WORD = r"[A-Za-z_][\w']*|\d+"
SHAPE = re.compile(rf"(?:{WORD})(?: ?[*+/-]? ?(?:{WORD}))*")
BY = re.compile(r"(?<![\w.])\w{1,6}(?: (?:x|\u00d7|by) \w{1,6}){1,3}(?!\w|\.\w)")  # "Tk x dv"
FIELD = re.compile(r"\s*(\w+)\s*(?::\s*[\w.\[\], |\"]+)?(?:=\s*[\w.]+)?\s*,?\s*#(.*)")
LONGEST = 60  # characters between a name and its shape
KINDS = {  # axes of one kind may have one symbol; all others are widths
    "B": "B", "n": "n", "m": "m", "T": "tokens", "S": "tokens", "Z": "tokens",
    "H": "heads", "G": "heads", "r": "heads",
}  # fmt: skip
AXES_NAMED = ("B", "H", "G", "T", "S", "d", "D")  # that names of symbols are like
MAIN = ("query", "key", "value", "x", "memory", "packed")  # in their usual order
TOKENS = MAIN[:5]  # what an argument whose name says little is first
COUNTS = ("1", "2", "3")  # which layouts have, too; a larger number is some length
USUAL = ("mask", "padding", "w_q", "w_k", "w_v", "w_o")  # and then
WEAK = ("x", "memory")  # roles of names that say little
OPTIONS = ("mask", "bias", "lengths", "positions", "segments", "bias_table", "sink")
MOST_STATES = 20_000


def said_of(inner: Any, owner: Any) -> str:
    """Return what docstrings and comments say: of a function, its class, and its arguments'."""
    kinds = [kind for kind in getattr(inner, "__annotations__", {}).values() if isclass(kind)]
    kinds = [kind for kind in kinds if kind.__module__ == getattr(inner, "__module__", "")]
    lines = [line for each in (inner, *kinds) for line in source_of(each)[0].splitlines()]
    comments = [line.strip("# ") for line in lines if line.lstrip().startswith("#")]
    fields = [f"{match[1]} {match[2]}" for match in map(FIELD.match, lines) if match]
    docs = [str(getattr(each, "__doc__", "") or "") for each in (inner, *kinds, type(owner))]
    return "\n".join([*docs[: -1 if isroutine(owner) else None], *comments, *fields])


def declared_shapes(said: str, tree: ast.AST, names: Sequence[str]) -> Declared:
    """Return the shapes that a text gives arguments, or else the code."""
    return {**_of_code(tree, names), **_of_text(said, names)}


def _of_text(text: str, names: Sequence[str]) -> dict[str, list[Symbols]]:
    """Return the shapes that follow names: "q, k (B, T, d)", "V is Tk x dv", "w: [heads]"."""
    every = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "-"
    listed = rf"(?<![\w.'])((?:{every})(?:`*\s*(?:,|/|and)\s*`*(?:{every}))*)\b(?![(\w])"
    found: dict[str, list[Symbols]] = {}
    for match in re.finditer(listed, text):
        rest = text[match.end() :].split("\n")[0]
        gap = re.split(rf"[(\[]|(?<![\w.'])(?:{every})\b", rest)[0]
        is_far = len(gap) > LONGEST or re.search(r"\w$", gap)  # the brackets of a call
        shapes = [] if is_far else [*_in_brackets(rest[len(gap) :])]
        by = BY.search(gap)
        shapes = shapes or ([tuple(by[0].split()[::2])] if by else [])
        is_one = shapes and not _has_others(text[match.end() :], every, shapes)
        for name in re.findall(rf"(?:{every})\b", match[1]) if shapes else ():
            found.setdefault(name, shapes if is_one else [])
    return {name: shapes for name, shapes in found.items() if shapes}


def _has_others(text: str, every: str, shapes: Sequence[Symbols]) -> bool:
    """Return whether a paragraph in reST has shapes of other ranks: for one sequence, say."""
    own = re.split(rf"\n\s*\n|\n\s*(?:{every})\b", text)[0]
    ranks = {
        len(each) for at in re.finditer(r"[(\[]", own) for each in _in_brackets(own[at.start() :])
    }
    return not ranks <= {*map(len, shapes)} and "`" in own


def _in_brackets(text: str) -> Iterator[Symbols]:
    """Yield the shapes that a text begins with: "(n,) or (n, r)", "[T][H][d]"."""
    while match := re.match(r"(?:\(([^()]*)\)|((?:\[[^\[\]]*\])+))(?:\s*or\s*(?=[(\[]))?", text):
        inside = match[2][1:-1].replace("][", ", ") if match[2] else match[1] or ""
        items = [item.strip() for item in inside.strip(", ").split(",")]
        is_one = len(items) == 1 and "," not in inside and len(inside) > 2  # "(optional)"
        if all(map(SHAPE.fullmatch, items)) and not is_one:
            yield tuple(item.replace(" ", "") for item in items)
        text = text[match.end() :]


def _of_code(tree: ast.AST, names: Iterable[str]) -> dict[str, list[Symbols]]:
    """Return the shapes that code unpacks, and those that einsum gives its operands."""
    unpacked: dict[str, list[Symbols]] = {}
    multiplied: dict[str, list[Symbols]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Tuple(elts)], ast.Attribute(ast.Name(id=name), "shape")):
                if name in names and all(isinstance(each, ast.Name) for each in elts):
                    words = [getattr(each, "id", "") for each in elts]
                    own = (f"{name}_{at}" if w == "_" else w for at, w in enumerate(words))
                    unpacked.setdefault(name, [tuple(own)])
            case ast.Call(ast.Attribute(attr="einsum"), [ast.Constant(value=text), *operands]):
                terms = str(text).split("->")[0].replace(" ", "").split(",")
                for term, each in zip(terms, operands, strict=False):
                    if isinstance(each, ast.Name) and each.id in names and term.isalpha():
                        multiplied.setdefault(each.id, [tuple(term)])
    return {**multiplied, **unpacked}


@cache
def _layouts_of(tokens: str) -> dict[int, list[tuple[str, str]]]:
    """Return the roles with their layouts, by the number of axes; `tokens` says those of tokens."""
    of_queries, _, of_keys = tokens.partition("|")
    of_keys = of_keys or of_queries.translate(str.maketrans("HT", "GS"))
    found: dict[str, Sequence[str]] = {
        "query": [of_queries], "key": [of_keys], "value": [of_keys.replace("d", "e")],
    }  # fmt: skip
    if "D" in tokens:  # a function that splits heads may have params
        found |= {"x": [of_queries], "memory": [of_keys.replace("D", "C")], "packed": PACKED}
        params = [role for role in AXES if role.startswith(("w_", "b_"))]
        found |= {role: [param_layout(role, of) for of in PARAM_LAYOUTS] for role in params}
    found |= {role: LAYOUTS[role] for role in OPTIONS} | {"padding": ROWS}
    by_rank: dict[int, list[tuple[str, str]]] = {}
    for role, layouts in found.items():
        for layout in dict.fromkeys(layouts):
            by_rank.setdefault(len(layout.split()), []).append((role, layout))
    return by_rank


class Axes(NamedTuple):
    """Which axes each symbol stands for, in the arrays so far."""

    places: frozenset[tuple[str, str]] = frozenset()  # symbols with axes
    kinds: tuple[tuple[str, str], ...] = ()  # symbols with kinds of axes

    def and_of(self, symbols: Symbols, layout: str) -> "Axes | None":
        """Return the axes with those of one more array, None if it cannot have this layout."""
        axes = layout.split()
        kinds = dict(self.kinds)
        for symbol, axis in zip(symbols, axes, strict=True):
            if symbol in COUNTS or axis in COUNTS:
                if symbol != axis:
                    return None
                continue
            is_other = re.match(r"3\D", symbol) and axis != "P"  # 3*D: q, k and v in one
            if is_other or kinds.setdefault(symbol, _kind(axis)) != _kind(axis):
                return None
        named = ((s, axis) for s, axis in zip(symbols, axes, strict=True) if not axis.isdigit())
        return Axes(self.places | {*named}, (*kinds.items(),))

    @property
    def cost(self) -> int:
        """The number of symbols that axes have in addition to their first, or that are odd."""
        odd = sum(_meant(symbol) not in ("", kind) for symbol, kind in self.kinds)
        return len(self.places) - len({axis for _, axis in self.places}) + odd


def _kind(axis: str) -> str:
    return KINDS.get(axis, "width")


@cache
def _meant(symbol: str) -> str:
    """Return the kind of axis that a symbol usually names, "" if it may be any."""
    names = roles_by_name(symbol.replace("_", "").lower())
    role = next((role for role in names if role in AXES_NAMED), "")
    return _kind(role) if role else ""


def fit_shapes(shapes: Declared, layouts: Mapping[str, str]) -> int | None:
    """Return how badly layouts of arguments fit their shapes, None if they do not at all."""
    axes: Axes | None = Axes()
    for name, layout in layouts.items():
        known = [symbols for symbols in shapes.get(name, ()) if layout]
        fits = [axes.and_of(s, layout) for s in known if axes and len(s) == len(layout.split())]
        axes = next(filter(None, fits), None) if known else axes
    return axes.cost if axes else None


class State(NamedTuple):
    """Roles of the first arguments; the fewest costs come first, and then the most roles."""

    cost: int
    left: int  # arguments without a role
    number: int  # in the order in which states are found
    roles: dict[str, str]
    axes: Axes
    tokens: str  # the layout


def roles_by_shape(
    shapes: Declared, named: Mapping[str, Sequence[str]]
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield roles of arguments that fit their shapes, with a layout of tokens, the likeliest first.

    `named` has the roles that names suggest, the likeliest first; others cost more.
    """
    names = [*shapes]
    count = itertools.count()
    usual = ((0, tokens) for tokens in (*HEADS_GIVEN, *HEADS_INSIDE))
    rare = ((1, tokens) for tokens in (*RARE_GIVEN, *RARE_INSIDE))
    every = itertools.chain(usual, rare)
    heap = [State(cost, len(names), next(count), {}, Axes(), tokens) for cost, tokens in every]
    heapify(heap)
    while heap and next(count) < MOST_STATES:
        state = heappop(heap)
        if not state.left:
            yield state.roles, state.tokens
            continue
        name = names[-state.left]
        for symbols in shapes[name]:
            for role, layout in _layouts_of(state.tokens).get(len(symbols), ()):
                taken = role in state.roles.values()
                axes = None if taken else state.axes.and_of(symbols, layout)
                if axes:
                    cost = state.cost + axes.cost - state.axes.cost
                    cost += _cost(role, name, named.get(name, ()), state.roles)
                    roles = {**state.roles, name: role}
                    own = State(cost, state.left - 1, next(count), roles, axes, state.tokens)
                    heappush(heap, own)


def _cost(role: str, name: str, named: Sequence[str], known: Mapping[str, str]) -> int:
    """Return how unlikely a role is: by the name, and after the roles that are known."""
    main = [MAIN.index(other) for other in known.values() if other in MAIN]
    cost = int(role in MAIN and max(main, default=0) > MAIN.index(role))
    if role[:2] == "b_":  # site_b belongs to site_W
        other = next((r for each, r in known.items() if _stem(each) == _stem(name)), role)
        cost += other[2:] != role[2:]
    if role in named:
        return min(named.index(role), 2) + cost
    if name.endswith("]") and not named:  # what holds it holds params
        return cost + 2 * (role[:2] not in ("w_", "b_"))
    if role[:2] in ("w_", "b_") and role[0] == name[0].lower():  # weights, bias
        return cost + 1
    is_weak = not named or named[0] in WEAK or len(name) < 3
    return cost + (1 if is_weak and role in TOKENS else 2 if is_weak and role in USUAL else 3)


def _stem(name: str) -> str:
    """Return a name without its last word."""
    return re.sub(r"[^_.'\[]+('\])?$", "", name)
