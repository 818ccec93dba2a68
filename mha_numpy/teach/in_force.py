"""What is known about tasks: of those in this package, or of a teacher's own while it is in force.

A teacher's exercise comes into force with a variant (`using`). Then its functions and mistakes are
the only ones, so it may use any name that a solution here uses.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from mha_numpy.teach.conventions import variant_in_force
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.task import Task

V = TypeVar("V")
P = ParamSpec("P")


class InForce(Mapping[str, V]):
    """A table of what is known by name; of the task in force alone, if a teacher wrote it."""

    def __init__(self, usual: Mapping[str, V], of: Callable[[Task], Mapping[str, V]]):
        self._usual, self._of = usual, lru_cache(maxsize=16)(of)

    @property
    def _now(self) -> Mapping[str, V]:
        own = variant_in_force().own
        return self._usual if own is None else self._of(load_own(own))

    def __getitem__(self, name: str) -> V:
        return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)


def cached(most: int | None = None) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Keep what a function returned for its arguments, separately for each exercise in force."""

    def keeping(function: Callable[P, V]) -> Callable[P, V]:
        @lru_cache(maxsize=most)
        def kept(_: object, *arguments: P.args, **named: P.kwargs) -> V:
            return function(*arguments, **named)

        @wraps(function)
        def looked_up(*arguments: P.args, **named: P.kwargs) -> V:
            own: Any = variant_in_force().own
            return kept(own, *arguments, **named)  # type: ignore[arg-type]

        looked_up.cache_info = kept.cache_info  # type: ignore[attr-defined]
        return looked_up

    return keeping
