"""Functions that are called in turn, and attend together: each is given some of the tokens."""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.arrays import inner_function
from mha_numpy.identifying.calling.containers import OF_LISTS
from mha_numpy.identifying.calling.signatures import Argument, arguments_of, source_of

STORED = {1: ("memory", "queries"), 2: ("keys", "values", "queries")}  # and then read


class Turn(NamedTuple):
    """One of several calls."""

    function: Callable[[Any], Callable[..., Any]]  # of what the call before returned
    arguments: Sequence[Argument]
    names: Sequence[str] = ()  # of the arguments, where two calls have the same ones

    def named(self) -> Iterator[tuple[str, Argument]]:
        """Yield the arguments with their names."""
        return zip(self.names or [a.name for a in self.arguments], self.arguments, strict=True)


def in_turn(name: str, inner: Any, turns: Sequence[Turn]) -> Callable[..., Any]:
    """Return one function that makes several calls."""

    def attend(*args: Any, **kwargs: Any) -> Any:
        passed = signature.bind(*args, **kwargs).arguments
        made: Any = None
        for turn in turns:
            own = {a.name: passed[name] for name, a in turn.named() if name in passed}
            made = turn.function(made)(**own)
        return made

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    every = [a._replace(name=name) for turn in turns for name, a in turn.named()]
    every.sort(key=lambda argument: not argument.is_required)
    given = [inspect.Parameter(a.name, kind, default=a.default) for a in every]
    attend.__signature__ = signature = inspect.Signature(given)  # type: ignore[attr-defined]
    attend.__wrapped__ = inner  # type: ignore[attr-defined]
    attend.__qualname__ = name
    return attend


def stored_and_read(thing: Any) -> Callable[..., Any] | None:
    """Return one function of two methods, the first of which stores what the other reads.

    As ``fit`` and ``predict``. What is stored later is not there, or empty, in the beginning.
    """
    body = getattr(source_of(type(thing))[1], "body", ())
    methods = [n for each in body for n in each.body if isinstance(n, ast.FunctionDef)]
    public = [n for n in methods if n.name[0] != "_" or n.name == "__call__"]
    for first, later in permutations(public, 2):
        empty = {name for name in _attributes(first, ast.Store) if _is_empty(thing, name)}
        read = [name for n in methods if n is not first for name in _attributes(n, ast.Load)]
        if empty.isdisjoint(read) or _gives(first) or not _gives(later):
            continue
        pair = [getattr(thing, n.name) for n in (first, later)]
        own, asked = (arguments_of(method, method) for method in pair)
        if own and asked and not any(a.star for a in (*own, *asked)):
            names = [a.name for a in (*own, *asked)]
            words = STORED.get(len(own), ()) if len({*names}) < len(names) else ()
            names[: len(words)] = [f"{n}_{word}" for n, word in zip(names, words, strict=False)]
            turns = [
                Turn(_whatever(pair[0]), own, names[: len(own)]),
                Turn(_whatever(pair[1]), asked, names[len(own) :]),
            ]
            name = f"{type(thing).__name__}.{first.name}, then {later.name}"
            attend = in_turn(name, inner_function(pair[1]), turns)
            attend.__self__ = thing  # type: ignore[attr-defined]
            return attend
    return None


def _whatever(method: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """Return what gives a method, whatever the call before returned."""
    return lambda _: method


def _attributes(method: ast.AST, kind: type[ast.expr_context]) -> Iterator[str]:
    """Yield the attributes of self that a method reads, or stores or adds to."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(ast.Name("self"), name, context) if isinstance(context, kind):
                yield name
            case ast.Call(ast.Attribute(ast.Attribute(ast.Name("self"), name), called)):
                yield from (name,) if called in OF_LISTS else ()


def _is_empty(thing: Any, name: str) -> bool:
    value = getattr(thing, name, None)
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def _gives(method: ast.AST) -> bool:
    """Return whether a method returns something else than its object."""
    returned = (n.value for n in ast.walk(method) if isinstance(n, ast.Return) and n.value)
    return any(ast.unparse(value) not in ("self", "None") for value in returned)
