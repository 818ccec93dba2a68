"""A cache that a function returns and takes: the first tokens, then the rest with their cache."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mha_numpy.identifying.calling.arrays import parts_of
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.subject import Called, Subject
from mha_numpy.identifying.facts.probes import Fact
from mha_numpy.identifying.searching.search import Found

NAMES = re.compile(r"(\w*_)?(kv_?)?(cache|past|present)(_?(kvs?|key_?values?|state))?|use_cache")
CLOSE = (1e-3, 1e-5)  # in float32, too


def feed(subject: Subject, found: Found) -> list[Fact]:
    """Compare one call that has all tokens with two, the second of which has a cache."""
    way, layout, path = found.seen.way, found.fits[0].layout.split(), found.fits[0].path
    roles = {
        a.name: (way.slots[a.name].role,) if a.name in way.slots else roles_by_name(a.name)
        for a in subject.arguments
    }
    caches = [
        a for a in subject.arguments
        if {*roles[a.name]} & {"cache_k", "cache_v"}
        or (NAMES.fullmatch(a.name) and a.name not in way.slots and a.default in (None, False))
    ]  # fmt: skip
    fed = [a.name for a in caches if not isinstance(a.default, bool)]
    T = way.sizes.T
    if not fed or "T" not in layout or T < 3:
        return []
    way = way._replace(sizes=way.sizes._replace(S=T))
    given = way.given(way.problem(subject)) | {a.name: True for a in caches if a.name not in fed}
    is_causal = found.settings.get("causal") == "past and itself"
    first = T - 2 if is_causal else T - 1  # else the last query alone may see all keys

    def tokens(start: int, stop: int) -> dict[str, Any]:
        own: dict[str, Any] = {
            name: start for name in roles if "offset" in roles[name] and name not in fed
        }
        for name, value in given.items():
            axes = way.slots[name].layout.split() if name in way.slots else []
            at = next((i for i, axis in enumerate(axes) if axis in ("T", "S")), None)
            own.setdefault(name, value if at is None else value.take(range(start, stop), at))
        return own

    def output(called: Called) -> Any:
        arrays = dict(called.arrays)
        return arrays.get(path, arrays.get("[0]", np.empty(0)))

    rest = tokens(first, T)
    alone = np.empty(0) if fed[0] in way.slots else output(subject.call(rest))
    right = output(subject.call(tokens(0, T)))
    right = right.take(range(first, T), layout.index("T")) if right.size else right
    value = "not tried"
    for cache in _caches(subject.call(tokens(0, first)).result, path, fed):
        out = output(subject.call(rest | cache))
        if out.shape != right.shape or not out.size:
            continue
        if np.allclose(out, right, *CLOSE):
            value = "as all at once"
            break
        is_unused = alone.shape == out.shape and np.allclose(out, alone, *CLOSE)
        value = "not used" if is_unused else "differs"
    return [Fact("cache", value, fed[0])]


def _caches(result: Any, path: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what of a result may be the cache; for two arguments, a pair of its arrays."""
    parts = parts_of(result, path or "[0]")
    if {*names} <= parts.keys():
        yield {name: parts[name] for name in names}
        return
    whole = [part for part in parts.values() if not hasattr(part, "shape")]
    if len(names) == 1:
        arrays = [tuple(parts.values())] if len(parts) > 1 else [*parts.values()]
        yield from ({names[0]: part} for part in whole or arrays)
        return
    for part in (*whole, parts):
        for pair in combinations(parts_of(part, "").values(), len(names)):
            yield dict(zip(names, pair, strict=True))
