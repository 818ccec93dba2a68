"""A cache that a function returns and takes: the first tokens, then the rest with their cache."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import combinations
from typing import Any

import numpy as np

from mha_numpy.identifying.calling.arrays import owner_of, parts_of
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.subject import Called, Subject
from mha_numpy.identifying.calling.ways import Slot, Way
from mha_numpy.identifying.facts.options import UNCLEAR, Option
from mha_numpy.identifying.facts.probes import INPUTS, Fact
from mha_numpy.identifying.family import AXES, Problem, evaluate
from mha_numpy.identifying.searching.search import Found, Seen, explain

NAMES = re.compile(r"(\w*_)?(kv_?)?(cache|past|present)(_?(kvs?|key_?values?|state))?|use_cache")
OF_INPUTS = (  # settings of how queries, keys and values are made
    "exchanged", "params", "left_out", "packing", "split", "qk_norm", "rotation", "rotated",
    "direction", "first_position", "q_position", "base", "frequencies", "rotation_axis",
    "turned", "before",
)  # fmt: skip
OF_CELLS = ("weights", "dropped", "mean weights", "lse", "scores", "masked", "visible")
CLOSE = (1e-3, 1e-5)  # in float32, too


class Filled(dict[str, Any]):
    """A cache that is empty at first; the function writes into it."""


def feed(subject: Subject, found: Found, options: Sequence[Option] = ()) -> list[Fact]:
    """Compare one call that has all tokens with two, the second of which has a cache.

    Where no name says which argument takes it, those are tried whose role was not found.
    """
    way = found.seen.way
    roles = {
        a.name: (way.slots[a.name].role,) if a.name in way.slots else roles_by_name(a.word)
        for a in subject.arguments
    }
    caches = [
        a for a in subject.arguments
        if {*roles[a.name]} & {"cache_k", "cache_v"}
        or (NAMES.fullmatch(holder_of(a.name)) and a.name not in way.slots
            and a.default in (None, False))
    ]  # fmt: skip
    fed = [a.name for a in caches if not isinstance(a.default, bool)]
    flags = [a.name for a in caches if a.name not in fed]
    fact = _feed(subject, found, fed, flags)
    if fact is None or fact.value == "not tried":
        guesses = (_guess(subject, found, name, flags) for name in _unclear(subject, options))
        fact = next(filter(None, guesses), fact)
    return [fact] if fact else []


def _unclear(subject: Subject, options: Sequence[Option]) -> Iterator[str]:
    """Yield the arguments that may be left out and whose role was not found, as in a signature."""
    told = {holder_of(o.argument) for o in options if not o.note.startswith(UNCLEAR)}
    unclear = {holder_of(o.argument) for o in options} - told
    yield from (a.name for a in subject.whole if a.name in unclear and a.default is None)


def _guess(subject: Subject, found: Found, name: str, flags: Sequence[str]) -> Fact | None:
    """Return what an argument does as a cache, None if nothing shows that it is one."""
    if not parts_of(found.seen.called.result, found.fits[0].path or "[0]"):
        return None
    fact = _feed(subject, found, [name], flags, is_guess=True)
    return fact if fact and fact.value not in ("not tried", "not used") else None


def _feed(
    subject: Subject, found: Found, fed: Sequence[str], flags: Sequence[str], *,
    is_guess: bool = False,
) -> Fact | None:  # fmt: skip
    """Pass a cache on, or call an object again; a guess has to show that it is a cache."""
    way, layout, path = found.seen.way, found.fits[0].layout.split(), found.fits[0].path
    T = way.sizes.T
    is_object = subject.state is not None and owner_of(subject.function) is not subject.inner
    if not (fed or is_object) or "T" not in layout or T < 3:
        return None
    way = way._replace(sizes=way.sizes._replace(S=T))
    problem = way.problem(subject)
    given = way.given(problem) | dict.fromkeys(flags, True)
    is_causal = found.settings.get("causal") == "past and itself"
    first = T - 2 if is_causal else T - 1  # else the last query alone may see all keys
    offsets = [name for name in _offsets(subject, way) if name not in fed]

    def tokens(start: int, stop: int) -> dict[str, Any]:
        own: dict[str, Any] = dict.fromkeys(offsets, start)
        for name, value in given.items():
            axes = way.slots[name].layout.split() if name in way.slots else []
            shape = np.shape(value)
            at = next(
                (i for i, (axis, n) in enumerate(zip(axes, shape, strict=False))
                 if axis in ("T", "S") and n == T), None,
            )  # fmt: skip
            own.setdefault(name, value if at is None else value.take(range(start, stop), at))
        return own

    def output(called: Called) -> Any:
        arrays = dict(called.arrays)
        return arrays.get(path, arrays.get("[0]", np.empty(0)))

    fact = Fact("cache", "not tried", holder_of(fed[0]) if fed else "")
    filled = Filled()
    if fed:
        subject.call(tokens(0, first) | {fact.argument: filled})
    empty: dict[str, Any] = {fact.argument: Filled()} if filled else {}
    given = {n: x for n, x in given.items() if holder_of(n) not in empty}
    rest = tokens(first, T)
    by_itself = Called([]) if {*fed} & way.slots.keys() else subject.call(rest)
    whole = subject.call(tokens(0, T) | empty)
    alone, right = output(by_itself), output(whole)
    right = right.take(range(first, T), layout.index("T")) if right.size else right
    if is_guess and alone.shape == right.shape and np.allclose(alone, right, *CLOSE):
        return None  # no query needs what came before
    start = subject.call(tokens(0, first))
    known = {fit.path for fit in found.fits if fit.what in OF_CELLS}
    tries = _caches(start.result, path, fed, known) if fed else ({},)
    for cache in ({fact.argument: filled},) if filled else tries:
        with subject.keeping(not fed):
            called = subject.call(rest | cache)
        out = output(called)
        if not fed and alone.shape == out.shape and np.allclose(out, alone, *CLOSE):
            return None  # it keeps nothing, or nothing that another call reads
        if out.shape != right.shape or not out.size:
            continue
        if np.allclose(out, right, *CLOSE):
            if offsets and not fed:
                return fact._replace(value="kept by place", argument=offsets[0])
            return fact._replace(value="as all at once" if fed else "kept")
        if alone.shape == out.shape and np.allclose(out, alone, *CLOSE):
            fact = fact._replace(value="not used")
            continue
        slots = {name: Slot("other", value=value) for name, value in {**rest, **cache}.items()}
        seen = Seen(way._replace(slots=slots), problem, called)
        before = {} if fed else tokens(0, first)
        wrong = fact._replace(value="differs", seen=seen, first=before)
        causes = [*_causes(problem, found.settings, T - first)]
        for value, own in causes:
            if explain(seen._replace(problem=own), of_heads(found.settings, value)):
                return wrong._replace(value=value, seen=seen._replace(problem=causes[0][1]))
        if not is_guess or _grows(called, whole, by_itself, {path, *known}):
            fact = wrong
    return fact


def _offsets(subject: Subject, way: Way) -> Iterator[str]:
    """Yield the arguments that may say at which position the first token is."""
    for argument in subject.arguments:
        slot = way.slots.get(argument.name)
        if "offset" in ((slot.role,) if slot else roles_by_name(argument.word)):
            yield argument.name


def _grows(called: Called, whole: Called, alone: Called, known: Set[str]) -> bool:
    """Return whether something comes back with a place for each token, earlier ones too."""
    shapes = [{n: x.shape for n, x in each.arrays} for each in (called, whole, alone)]
    return any(
        shape == shapes[1].get(name) != shapes[2].get(name)
        for name, shape in shapes[0].items()
        if name not in known
    )


def holder_of(name: str) -> str:
    """Return the argument of a signature for what is in it, as ``past[0]``."""
    return name.partition("[")[0]


def of_heads(settings: Mapping[str, Any], cause: str = "") -> dict[str, Any]:
    """Return the settings of a call with a cache, after its keys were made and rotated."""
    kept = {name: x for name, x in settings.items() if name not in OF_INPUTS}
    if cause == "no mask":
        return kept | {"causal": ""}
    return kept | {"alignment": "top left" if cause == "top left" else "bottom right"}


def _causes(
    problem: Problem, settings: Mapping[str, Any], count: int
) -> Iterator[tuple[str, Problem]]:
    """Yield what may be wrong with the last `count` tokens, and the heads that it leads to."""
    whole, last = evaluate(problem, settings), _last(problem, count)
    starts = [{**settings, "first_position": start} for start in (0, problem.sizes.H)]
    turns = [late for each in starts if (late := evaluate(last, each))]
    if whole is None or not turns:
        return
    q, k, v = (whole[f"turned_{name}"] for name in "qkv")
    heads = {"query": q[:, :, -count:], "key": k, "value": v}
    moved = [
        {"query": late["turned_q"], "key": np.concatenate([k[:, :, :-count], late["turned_k"]], 2)}
        for late in turns
    ]
    turned = {"key": np.roll(k, count, 2), "value": np.roll(v, count, 2)}
    output = {role: x for role, x in problem.given.items() if role in ("w_o", "b_o")}
    sizes = problem.sizes._replace(T=count)
    of_positions = [("positions", each) for each in moved]
    for cause, changes in (("top left", {}), ("no mask", {}), *of_positions, ("order", turned)):
        some = ({role: changes[role]} for role in changes)
        for own in (changes, *some) if changes else ({},):
            yield cause, Problem(sizes, {**output, **heads, **own})


def _last(problem: Problem, count: int) -> Problem:
    """Return the problem of the last tokens alone."""
    T, given = problem.sizes.T, dict(problem.given)
    for role in {*INPUTS} & given.keys():
        axes = AXES[role].split()
        at = axes.index("T" if "T" in axes else "S")
        given[role] = given[role].take(range(T - count, T), at)
    return Problem(problem.sizes._replace(T=count, S=count), given)


def _caches(
    result: Any, path: str, names: Sequence[str], known: Set[str]
) -> Iterator[dict[str, Any]]:
    """Yield what of a result may be the cache; for two arguments, a pair of its arrays.

    What is known to be something else, as weights, is none.
    """
    parts = {
        name: part
        for name, part in parts_of(result, path or "[0]").items()
        if not known & {f"[{name}]", f"[{name!r}]", f".{name}"}
    }
    if {*names} <= parts.keys():
        yield {name: parts[name] for name in names}
        return
    whole = [part for part in parts.values() if not hasattr(part, "shape")]
    if len(names) == 1:
        arrays = [tuple(parts.values())] if len(parts) > 1 else [*parts.values()]
        yield from ({names[0]: part} for part in whole or arrays)
        return
    keys = [name.partition("[")[2].strip("'[]") for name in names]
    for part in (*whole, parts):
        inside = parts_of(part, "")
        if {*keys} <= inside.keys():  # as it is looked up, in whatever order it came back
            yield {name: inside[key] for name, key in zip(names, keys, strict=True)}
            continue
        for pair in combinations(inside.values(), len(names)):
            yield dict(zip(names, pair, strict=True))
