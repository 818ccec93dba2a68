"""identify: look at a function that computes attention, from outside."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.identifying.instances import callable_of
from mha_numpy.identifying.options import Option, look_at_options
from mha_numpy.identifying.search import CLOSE, Found, Seen, search
from mha_numpy.identifying.subject import Subject
from mha_numpy.identifying.ways import find_ways

CAUSAL = {"causal": "past and itself"}
MOST_SEEN = 24


class Looked(NamedTuple):
    """Everything that was found out."""

    subject: Subject
    found: Found | None
    options: list[Option]
    trouble: str  # of the last call that failed
    ways: int = 0


def find_base(subject: Subject, given: Mapping[str, str], seconds: float) -> tuple[Found | None, list[Seen], str]:
    """Find a way to call a function, and the settings that give its numbers."""
    start = time.monotonic()
    numbers = subject.constants()
    seen: list[Seen] = []
    trouble = ""
    for framework in subject.frameworks:
        subject.framework = framework
        for way in find_ways(subject, dict(given)):
            problem = way.problem(subject)
            called = subject.call(way.given(problem), way.argument("result"))
            trouble = called.trouble or trouble
            if called.arrays and np.isfinite(called.arrays[0][1]).all():
                seen.append(Seen(way, problem, called))
                found = search(seen[-1:], numbers, until=np.inf, costs=(0,), bases=({}, CAUSAL))
                if found:
                    return found, seen, trouble
            if len(seen) >= MOST_SEEN or time.monotonic() > start + seconds / 3:
                break
        if seen:
            break
    until = start + seconds
    found = search(seen, numbers, until=until, costs=(1, 2), bases=({}, CAUSAL))
    found = found or search(seen[:8], numbers, until=until, costs=(3, 4), bases=({}, CAUSAL))
    return found, seen, trouble


def look(
    function: Callable[..., Any], given: Mapping[str, str] | None = None, seconds: float = 20.0
) -> Looked:
    """Find out what a function computes."""
    subject = Subject(callable_of(function))
    found, seen, trouble = find_base(subject, given or {}, seconds / 2)
    if found is None:
        return Looked(subject, None, [], trouble, len(seen))
    options = look_at_options(subject, found, dict(given or {}), time.monotonic() + seconds / 2)
    return Looked(subject, found, options, trouble, len(seen))
