"""A variant: a function of `right` with some mistakes in it, or in those that it calls.

All of them see one another in a namespace of their own: those without an edit keep their code, and
only the edited ones are compiled.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any, cast

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis.conventions import IGNORE_ALL, follow
from mha_numpy.teach.diagnosis.edits import Edits, Place, find_places, overlap, replace_places
from mha_numpy.teach.diagnosis.families import BANK
from mha_numpy.teach.diagnosis.sources import called_by, code_of, read_sources
from mha_numpy.teach.diagnosis.using import conventions_of

Function = Callable[..., Any]
Places = dict[str, tuple[Place, ...]]  # in the source of each function


def variant(piece: str, mistakes: Iterable[str]) -> Function | None:
    """Return a function of `right` with some mistakes in it; None where they are alternatives.

    It follows the conventions in force, but for those that are not followed by mistake.
    """
    places: Places = {}
    followed = conventions_of(piece)
    for mistake in mistakes:
        followed = tuple(c for c in followed if mistake not in (c.ignored.name, IGNORE_ALL.name))
        for name, added in places_of(mistake).items():
            places[name] = places.get(name, ()) + added
    function = edited(piece, places)
    return function and follow(piece, followed, function)


def may_show(piece: str, mistake: str) -> bool:
    """Return whether a mistake changes the piece, or a function that it calls.

    One whose words would be false under a convention in force does not show.
    """
    if any(mistake in convention.false_here for convention in conventions_of(piece)):
        return False
    return not called_by(piece).isdisjoint(places_of(mistake))


@cache
def places_of(mistake: str) -> Places:
    """Return where the edits of a mistake apply."""
    return places_in_functions(BANK[mistake].edits)


def places_in_functions(edits: Edits) -> Places:
    """Return where edits apply in each function that they change."""
    sources, places = read_sources(), Places()
    for place in find_places(sources.text, edits):
        name = sources.function_at(place)
        if name is None:
            raise ConfigError(f"edits: expected a text in a function; got one outside: {place}")
        start = sources.cuts[name].start
        inside = Place(place.start - start, place.end - start, place.new)
        places[name] = (*places.get(name, ()), inside)
    return places


def edited(piece: str, places: Places) -> Function | None:
    """Return a function of `right` with some edits made; None where they overlap."""
    codes = {name: _compiled(name, places[name]) for name in called_by(piece) & places.keys()}
    found = {name: code for name, code in codes.items() if code is not None}
    return assembled(piece, found) if len(found) == len(codes) else None


def assembled(piece: str, codes: Mapping[str, CodeType]) -> Function:
    """Return a function of `right`, some of which have other code."""
    sources = read_sources()
    namespace = sources.namespace.copy()
    for name in called_by(piece):
        function = sources.cuts[name].function
        code = codes.get(name, function.__code__)
        namespace[name] = FunctionType(code, namespace, name, function.__defaults__)
    return cast(Function, namespace[piece])


@cache
def _compiled(function: str, places: tuple[Place, ...]) -> CodeType | None:
    """Return the code of an edited function; None where the edits overlap."""
    if overlap(places):
        return None
    cut = read_sources().cuts[function]
    file = f"{cut.function.__code__.co_filename}, with mistakes"
    return code_of(compile(edited_source(function, places), file, "exec", dont_inherit=True))


def edited_source(function: str, places: Iterable[Place]) -> str:
    """Return the source of a function with edits that do not overlap."""
    return replace_places(read_sources().cuts[function].source, places)
