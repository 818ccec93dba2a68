"""Arguments that hold several things: what a source looks up in dicts, tuples and objects."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.signatures import source_of

Path = tuple[str | int, ...]
Place = tuple[str, Path]  # an argument, and the way to something in it
DEEPEST = 3  # a function that the function calls, and what that calls
OF_MAPS = ("get", "keys", "items", "values", "setdefault", "update", "pop")
OF_LISTS = ("append", "extend", "insert")
OF_FRAMEWORKS = ("at", "mT", "H", "device", "requires_grad", "numpy", "value")


class Attribute(str):
    """The name of an attribute, where that of a key would be a text."""

    __slots__ = ()


class _Each(str):
    """The place of each item of a list, one for each head."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "h"


EACH = _Each("each")


class Held(NamedTuple):
    """What a source looks up in one argument."""

    places: dict[Path, str]  # each with the name that it is given there, "" if none
    optional: set[Path]  # which may be missing
    methods: set[str]  # that are called
    may_be_none: bool


def find_held(
    tree: ast.AST, names: Sequence[str], inner: Any, words: Mapping[str, Any] | None = None
) -> dict[str, Held]:
    """Return what a source looks up in arguments, and in those of the helpers it calls.

    `words` are the texts that names stand for.
    """
    found = {name: Held({}, set(), set(), may_be_none=False) for name in names}
    _Reader(found, inner).read(tree, {name: (name, ()) for name in names}, 0, words)
    return {name: _only_leaves(held) for name, held in found.items()}


def kinds_of(inner: Any) -> dict[str, Any]:
    """Return the classes with named fields that annotations give arguments."""
    known, around = getattr(inner, "__annotations__", {}), getattr(inner, "__globals__", {})
    hints = {n: around.get(a) if isinstance(a, str) else a for n, a in known.items()}
    return {name: kind for name, kind in hints.items() if inspect.isclass(kind) and fields_of(kind)}


def fields_of(kind: Any) -> dict[str, bool]:
    """Return the fields of a named tuple or a dataclass, each with whether it has a default."""
    is_made = is_dataclass(kind) or hasattr(kind, "_fields")
    known = inspect.signature(kind).parameters.values() if is_made else ()
    return {each.name: each.default is not each.empty for each in known}


def of_fields(held: Held, fields: Mapping[str, bool]) -> Held:
    """Return what is looked up of fields, also in methods: those that are needed, or else all."""
    places = {path: word for path, word in held.places.items() if str(path[0]) in fields}
    known = {str(path[0]) for path in places}
    needed = [n for n, has_default in fields.items() if not has_default or _is_count(n)]
    added = (n for n in (needed if known else fields) if n not in known)
    return held._replace(places=places | {(Attribute(n),): "" for n in added})


def _is_count(name: str) -> bool:
    return roles_by_name(name)[:1] in (("H",), ("G",))


def _only_leaves(held: Held) -> Held:
    """Leave out what has parts that are looked up."""
    inner = {path[:length] for path in held.places for length in range(len(path))}
    return held._replace(places={p: word for p, word in held.places.items() if p not in inner})


class _Reader:
    """Reads functions, and notes what they look up."""

    def __init__(self, found: dict[str, Held], inner: Any) -> None:
        self.found, self.inner = found, inner

    def read(
        self,
        tree: ast.AST,
        known: Mapping[str, Place],
        depth: int,
        words: Mapping[str, Any] | None = None,
    ) -> None:
        """Read a function; names stand for places, or for constants that are passed."""
        of = dict(known)
        choices = dict(_choices(tree)) | {name: [word] for name, word in (words or {}).items()}
        for _ in range(DEEPEST):  # names of names
            for node in ast.walk(tree):
                for name, place in self._named(node, of, choices):
                    of.setdefault(name, place)
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            for place in _places(node, of, choices):
                if id(node) not in called or isinstance(node, ast.Subscript):
                    self._note(place)
            self._note_optional(node, of, choices)
            if isinstance(node, ast.Call):
                self._note_method(node, of)
                self._follow(node, of, choices, depth)

    def _note(self, place: Place, word: str = "") -> None:
        places = self.found[place[0]].places
        if place[1] and place[1][-1] is not EACH:  # an array has items, too
            places[place[1]] = places.get(place[1]) or word

    def _named(
        self, node: ast.AST, of: Mapping[str, Place], choices: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, Place]]:
        """Yield the names that a statement gives to places."""
        match node:
            case ast.Assign([ast.Tuple(elts)], ast.Tuple(values)):
                for each, part in zip(elts, values, strict=False):
                    if isinstance(part, ast.Subscript) and isinstance(each, ast.Name):
                        yield from ((each.id, place) for place in _places(part, of, choices))
                    yield from self._named(ast.Assign([each], part), of, choices)
            case ast.Assign([ast.Tuple(elts)], value):
                for argument, path in _places(value, of, choices):
                    for i, each in enumerate(elts):
                        part = _Known((argument, (*path, i)))
                        yield from self._named(ast.Assign([each], part), of, choices)
            case ast.Assign([ast.Attribute(ast.Name(id="self"), name)], value):
                for place in _places(value, of, choices):
                    self._note(place, name)
                    yield f"self.{name}", place
            case ast.Assign([ast.Name(id=name)], value):
                for argument, path in _places(value, of, choices):
                    if path:
                        self._note((argument, path), name)
                        yield name, (argument, path)
            case ast.For(target, over) | ast.comprehension(target, over):
                match target, over:
                    case ast.Tuple([_, item]), ast.Call(ast.Name(id="enumerate"), [items]):
                        target, over = item, items
                for argument, path in _places(over, of, choices):
                    place = (argument, (*path, EACH))
                    if isinstance(target, ast.Name):
                        yield target.id, place
                    else:
                        yield from self._named(ast.Assign([target], _Known(place)), of, choices)

    def _note_optional(
        self, node: ast.AST, of: Mapping[str, Place], choices: Mapping[str, list[Any]]
    ) -> None:
        """Note what may be missing, what is stored, and whether there may be nothing at all."""
        key: Path = ()
        match node:
            case ast.Compare(ast.Constant(value=str(asked)), [ast.In() | ast.NotIn()], [base]):
                key = (asked,)
            case ast.Call(
                ast.Attribute(base, "get" | "setdefault"), [ast.Constant(value=str(asked)), *_]
            ):
                key = (asked,)
            case ast.Subscript(ctx=ast.Store()):
                base = node
            case ast.Compare(base, [ast.Is() | ast.IsNot()], [ast.Constant(value=None)]):
                pass
            case _:
                return
        for argument, path in _places(base, of, choices):
            whole: Path = (*path, *key)
            if whole:
                self._note((argument, whole))
                self.found[argument].optional.add(whole)
            else:
                self.found[argument] = self.found[argument]._replace(may_be_none=True)

    def _note_method(self, node: ast.Call, of: Mapping[str, Place]) -> None:
        """Note a method of an argument that is called, if it is none of arrays."""
        match node.func:
            case ast.Attribute(ast.Name(id=name), method) if name in of:
                if not of[name][1] and not is_of_arrays(method):
                    self.found[of[name][0]].methods.add(method)

    def _follow(
        self, node: ast.Call, of: Mapping[str, Place], choices: Mapping[str, list[Any]], depth: int
    ) -> None:
        """Read a helper of the same file that is called with a place."""
        called = getattr(node.func, "id", "")
        helper: Any = getattr(self.inner, "__globals__", {}).get(called)
        if depth >= DEEPEST or not inspect.isfunction(helper):
            return
        names = [*inspect.signature(helper).parameters]
        passed = [*zip(names, node.args, strict=False)]
        passed += [(each.arg, each.value) for each in node.keywords if each.arg]
        every = {name: _places(value, of, choices) for name, value in passed}
        every = {name: places for name, places in every.items() if places}
        for at, value in enumerate(node.args):
            if isinstance(value, ast.Starred):
                for argument, path in _places(value.value, of, choices):
                    for number, name in enumerate(names[at:]):
                        self._note((argument, (*path, number)), name)
        for each in node.keywords if len(node.args) < len(names) else ():
            rest = [name for name in names if name not in dict(passed)]
            for argument, path in _places(each.value, of, choices) if each.arg is None else ():
                for name in rest:
                    self._note((argument, (*path, name)))
        words = {n: value.value for n, value in passed if isinstance(value, ast.Constant)}
        for at in range(max(map(len, every.values()), default=0)):  # as in a loop
            known = {name: places[min(at, len(places) - 1)] for name, places in every.items()}
            self.read(source_of(helper)[1], known, depth + 1, words)


class _Known(ast.expr):
    """An expression whose place is known."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


def _choices(tree: ast.AST) -> Iterator[tuple[str, list[Any]]]:
    """Yield names of loops, each with the constants that it stands for."""
    for node in ast.walk(tree):
        match node:
            case ast.comprehension(ast.Name(id=name), over) | ast.For(ast.Name(id=name), over):
                match over:
                    case ast.Tuple(elts) | ast.List(elts):
                        values = [each.value for each in elts if isinstance(each, ast.Constant)]
                    case ast.Call(ast.Name(id="range"), [ast.Constant(value=int(n))]):
                        values = [*range(n)]
                    case ast.Constant(value=str(text)):
                        values = [*text]
                    case _:
                        values = []
                if values:
                    yield name, values


def _places(
    node: ast.AST, of: Mapping[str, Place], choices: Mapping[str, list[Any]]
) -> list[Place]:
    """Return the places that an expression stands for, several in a loop."""
    match node:
        case _Known():
            return [node.place]
        case ast.Name(id=name) if name in of:
            return [of[name]]
        case ast.Attribute(ast.Name(id="self"), name) if f"self.{name}" in of:
            return [of[f"self.{name}"]]
        case ast.Attribute(ast.Attribute(base, "value"), name) if not is_of_arrays(name):
            inside = (Attribute("value"), Attribute(name))  # of a layer, and not of an array
            return [(a, (*path, *inside)) for a, path in _places(base, of, choices)]
        case ast.Attribute(base, name) if not is_of_arrays(name) and name[0] != "_":
            return [(a, (*path, Attribute(name))) for a, path in _places(base, of, choices)]
        case ast.Subscript(base, ast.Slice()):
            return _places(base, of, choices)
        case ast.Subscript(base, at):
            keys = _keys(at, choices)
            return [(a, (*path, k)) for a, path in _places(base, of, choices) for k in keys]
    return []


def _keys(node: ast.expr, choices: Mapping[str, list[Any]]) -> list[Any]:
    """Return the constants that an expression in brackets stands for."""
    match node:
        case ast.Constant(value=str(key)):
            return [key]
        case ast.Constant(value=int(key)) if not isinstance(key, bool):
            return [key]
        case ast.UnaryOp(ast.USub(), ast.Constant(value=1)):
            return [-1]
        case ast.Name(id=name):
            return choices.get(name, [])
        case ast.BinOp(left, ast.Add(), right):
            return [f"{a}{b}" for a in _keys(left, choices) for b in _keys(right, choices)]
        case ast.JoinedStr(values):
            texts = [""]
            for part in values:
                own = [part.value] if isinstance(part, ast.Constant) else _keys(part.value, choices)  # type: ignore[attr-defined]
                texts = [text + str(each) for text in texts for each in own]
            return texts
    return []


def is_of_arrays(name: str) -> bool:
    """Return whether an attribute is one of arrays, of any framework."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    is_known = name in OF_FRAMEWORKS or hasattr(np.ndarray, name) or hasattr(tensor, name)
    return is_known and name not in OF_MAPS
