"""Arguments of which a function looks several things up: each of these is an argument, too."""

import re
from collections.abc import Iterator, Sequence

from mha_numpy.identifying.calling.containers import EACH, OF_LISTS, OF_MAPS, Attribute, Held, Path
from mha_numpy.identifying.calling.evidence import ARRAY, Evidence
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.signatures import REQUIRED, Argument

CACHES = re.compile(r"(\w*_)?(cache|caches|past|present|state|prev|history)(_\w*)?")
CACHED = ("cache_k", "cache_v")
PARTS = ("w", "b", "weight", "bias", "kernel", "W")  # of one map
BIASES = re.compile(r"b|bs|bias(es)?|\w*_(b|bias|biases)")
BY_NUMBER = {2: ("qkv", "o"), 3: ("q", "k", "v"), 4: ("q", "k", "v", "o")}
OPTIONS = ("window", "scale", "mask", "lengths", "query", "key", "value")  # that are whole


def is_opened(argument: Argument, held: Held, known: Evidence) -> bool:
    """Return whether an argument holds others, by its source and its name."""
    if not argument.is_required and argument.default is not None:
        return False
    if argument.star:
        return bool(held.places)
    if any(path[0] is EACH for path in held.places):
        has_keys = any(isinstance(key, str) for path in held.places for key in path[1:])
        return known.kind != ARRAY or has_keys
    is_map = any(isinstance(path[0], str) for path in held.places)
    is_filled = bool(held.methods & {*OF_MAPS, *OF_LISTS})
    is_object = not held.places or any(isinstance(path[0], Attribute) for path in held.places)
    if not argument.is_required and is_object:  # what may be left out
        return False
    if is_map:
        return True
    if is_filled:
        return known.kind != ARRAY
    numbers = {path[0] for path in held.places}
    is_option = bool({*roles_by_name(argument.name)[:1]} & {*OPTIONS})
    if known.kind == ARRAY or (is_option and len(numbers) < 3):
        return False
    return len(numbers) > 1 and numbers == {*range(len(numbers))}


def open_argument(argument: Argument, held: Held) -> Iterator[Argument]:
    """Yield what an argument holds."""
    places = sorted(held.places, key=lambda path: [(isinstance(key, int), key) for key in path])
    is_cache = bool(CACHES.fullmatch(argument.name)) or held.may_be_none
    for path in places:
        meant = meant_by(argument.name, path, held.places[path], places)
        of_cache = [] if not is_cache else [
            role
            for word in (meant, f"cache_{meant}")
            for role in roles_by_name(word)[:1]
            if role in CACHED
        ]  # fmt: skip
        meant = of_cache[0] if of_cache else meant
        is_param = any(role[:2] in ("w_", "b_") for role in roles_by_name(meant))
        is_missing = (
            of_cache or (path in held.optional and not is_param) or not argument.is_required
        )
        name = _name(argument, path, held.places[path])
        default = None if is_missing else REQUIRED
        yield Argument(name, default, holder=argument.name, path=path, meant=meant)


def _name(argument: Argument, path: Path, called: str) -> str:
    """Return how a part is written; what is passed by a name or a place has that alone."""
    if argument.star and len(path) == 1 and (called or argument.star == "**"):
        return str(path[0]) if argument.star == "**" else called
    return argument.name + "".join(f"[{key!r}]" for key in path)


def meant_by(holder: str, path: Path, called: str, places: Sequence[Path]) -> str:
    """Return the word that says most about a part."""
    *before, last = path
    if isinstance(last, str):
        if called and not roles_by_name(last):
            return called
        words = [*re.split("[./]", ".".join(map(str, [holder, *before]))), *re.split("[./]", last)]
        if words[-1] not in PARTS:
            return words[-1]
        roles = roles_by_name(words[-2])  # of one map, which is named before
        own = next((role[2:] for role in roles if role[:2] == "w_"), "")
        return f"{'b' if words[-1][0] == 'b' else 'w'}_{own}" if own else "_".join(words[-2:])
    same = [other for other in places if other[:-1] == path[:-1]]
    by_number = ""
    if before and len(same) == 2 and not CACHES.fullmatch(holder):  # a matrix and a bias of each
        if isinstance(before[-1], str):
            of_map = (role[2:] for role in roles_by_name(before[-1]) if role[:2] == "w_")
            own = next(of_map, "")
        else:
            names = BY_NUMBER.get(len({other[: len(before)] for other in places}), ())
            own = names[before[-1]] if names else ""
        by_number = f"{'wb'[last]}_{own}" if own else ""
        is_param = any(role[:2] in ("w_", "b_") for role in roles_by_name(called))
        if is_param and not (by_number and isinstance(before[-1], str)):
            return called
    elif roles_by_name(called):
        return called
    elif len(same) == 2 and CACHES.fullmatch(holder):
        return CACHED[last]
    elif len(same) in BY_NUMBER:
        is_bias = bool(BIASES.fullmatch(str(before[-1] if before else holder)))
        by_number = "b_" * is_bias + BY_NUMBER[len(same)][last]
    return by_number or called
