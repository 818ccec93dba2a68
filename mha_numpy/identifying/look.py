"""identify: look at a function that computes attention, from outside."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.identifying.calling import call_way
from mha_numpy.identifying.gradients import GradientRow, look_at_gradients
from mha_numpy.identifying.instances import callable_of
from mha_numpy.identifying.options import Option, look_at_options
from mha_numpy.identifying.probes import Fact, find_facts
from mha_numpy.identifying.search import Found, Seen, explain, search
from mha_numpy.identifying.subject import Subject
from mha_numpy.identifying.ways import Way, find_ways

CAUSAL = {"causal": "past and itself"}
MOST_SEEN = 24


class Looked(NamedTuple):
    """Everything that was found out."""

    subject: Subject
    found: Found | None
    options: list[Option]
    facts: list[Fact]
    gradients: list[GradientRow]
    trouble: str  # of the last call that failed
    seen: Sequence[Seen] = ()  # calls that worked


def find_base(
    subject: Subject, given: Mapping[str, str], seconds: float
) -> tuple[Found | None, list[Seen], str]:
    """Find a way to call a function, and the settings that give its numbers."""
    start = time.monotonic()
    numbers = subject.constants()
    seen: list[Seen] = []
    trouble = ""
    for framework, dtype in product(subject.frameworks, ("float64", "float32")):
        subject.framework = framework
        subject.narrow(dtype)
        ways = find_ways(subject, dict(given))
        while (way := next(ways, None)) is not None:
            one, trouble = call_way(subject, way, trouble)
            if subject.learn():
                ways, seen = find_ways(subject, dict(given)), []
                continue
            if one:
                seen.append(one)
                found = search([[one]], numbers, until=np.inf, costs=(0,), bases=({}, CAUSAL))
                if found:
                    return settle(subject, found, numbers, start + seconds), seen, trouble
            if len(seen) >= MOST_SEEN or time.monotonic() > start + seconds / 3:
                break
        if seen:
            break
    until = start + seconds
    seen.sort(key=lambda one: one.called.arrays[0][1].ndim != _rank(one.way))
    groups = [[one] for one in seen]
    found = search(groups, numbers, until=until, costs=(1, 2), bases=({}, CAUSAL))
    found = found or search(groups[:8], numbers, until=until, costs=(3, 4), bases=({}, CAUSAL))
    found = found or search(groups[:4], numbers, until=until, costs=(5,), bases=({}, CAUSAL))
    return found and settle(subject, found, numbers, until + 2), seen, trouble


def _rank(way: Way) -> int:
    """Return the rank of the first input that has tokens."""
    roles = way.roles()
    return next((len(roles[r].split()) for r in ("query", "x", "x_q", "wide_q") if r in roles), 0)


def other_lengths(subject: Subject, way: Way) -> Iterator[Seen]:
    """Yield calls with more keys than queries, as many, and fewer; and with grouped heads."""
    if not way.is_inside and way.sizes.G == way.sizes.H > 1:
        one, _ = call_way(subject, way._replace(sizes=way.sizes._replace(G=2)))
        if one:
            yield one
    if not {"x", "packed"} & way.roles().keys() or "memory" in way.roles():
        for S in (7, way.sizes.T, 3):
            if S != way.sizes.S:
                one, _ = call_way(subject, way._replace(sizes=way.sizes._replace(S=S)))
                if one:
                    yield one


def settle(subject: Subject, found: Found, numbers: Sequence[float], until: float) -> Found:
    """Return settings that explain other lengths, too; the same if there are none."""
    others = [*other_lengths(subject, found.seen.way)]
    if all(explain(one, found.settings) for one in others):
        return found
    group = sorted([found.seen, *others], key=lambda one: bool(explain(one, found.settings)))
    again = search([group], numbers, until=until, costs=range(1, 4), bases=(found.settings,))
    return again or found


def look(
    function: Callable[..., Any],
    given: Mapping[str, str] | None = None,
    seconds: float = 20.0,
    backward: Callable[..., Any] | None = None,
) -> Looked:
    """Find out what a function computes."""
    subject = Subject(callable_of(function))
    found, seen, trouble = find_base(subject, given or {}, seconds / 2)
    if found is None:
        return Looked(subject, None, [], [], [], trouble, seen)
    options = look_at_options(subject, found, dict(given or {}), time.monotonic() + seconds / 2)
    facts = find_facts(subject, found, options)
    if backward is None:
        holder = getattr(subject.function, "__self__", subject.function)
        backward = getattr(holder, "backward", None)
    gradients = look_at_gradients(subject, found, backward, time.monotonic() + seconds / 4)
    return Looked(subject, found, options, facts, gradients, trouble, seen)
