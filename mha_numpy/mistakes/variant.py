"""A variant: a function of `right` with some mistakes in it, or in those that it calls.

All of them see one another in a namespace of their own: those without an edit keep their code, and
only the edited ones are compiled.
"""

from collections.abc import Callable, Iterable
from functools import cache
from types import CodeType, FunctionType
from typing import Any, cast

from mha_numpy.errors import ConfigError
from mha_numpy.mistakes.edits import Place, find_places, overlap, replace_places
from mha_numpy.mistakes.families import BANK
from mha_numpy.mistakes.sources import called_by, read_sources

Function = Callable[..., Any]
PlacesByFunction = dict[str, tuple[Place, ...]]


@cache
def places_of(mistake: str) -> PlacesByFunction:
    """Return where a mistake's edits apply, in each function that they change."""
    sources, places = read_sources(), PlacesByFunction()
    for place in find_places(sources.text, BANK[mistake].edits):
        for name, cut in sources.cuts.items():
            start, end = place.start - cut.start, place.end - cut.start
            if start >= 0 and end <= len(cut.source):
                places[name] = (*places.get(name, ()), Place(start, end, place.new))
                break
        else:
            raise ConfigError(f"{mistake}: expected edits in functions; one is outside")
    return places


def may_show(piece: str, mistake: str) -> bool:
    """Return whether a mistake changes the piece, or a function that it calls."""
    return not called_by(piece).isdisjoint(places_of(mistake))


def variant(piece: str, mistakes: Iterable[str]) -> Function | None:
    """Return a function of `right` with some mistakes in it; None where they are alternatives."""
    places: PlacesByFunction = {}
    for mistake in mistakes:
        for name, added in places_of(mistake).items():
            places[name] = places.get(name, ()) + added
    sources = read_sources()
    namespace = sources.namespace.copy()
    for name in called_by(piece):
        function = sources.cuts[name].function
        code = _compiled(name, places[name]) if name in places else function.__code__
        if code is None:
            return None
        namespace[name] = FunctionType(code, namespace, name, function.__defaults__)
    return cast(Function, namespace[piece])


@cache
def _compiled(function: str, places: tuple[Place, ...]) -> CodeType | None:
    """Return the code of an edited function; None where the edits overlap."""
    if overlap(places):
        return None
    cut = read_sources().cuts[function]
    file = f"{cut.function.__code__.co_filename}, with mistakes"
    module = compile(replace_places(cut.source, places), file, "exec", dont_inherit=True)
    return next(code for code in module.co_consts if isinstance(code, CodeType))
