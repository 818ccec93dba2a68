"""Variants: the numbers and the conventions of one student's functions.

A convention is a different way of writing a function's inputs and results, such as a mask in which
True hides; `turns` says what it does, and `known_conventions` has them all.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.known_conventions import CONVENTIONS as CONVENTIONS
from mha_numpy.teach.own import Example, Own
from mha_numpy.teach.turns import Convention

SEED = 20240229


class Variant(NamedTuple):
    """The numbers and conventions of one student's functions."""

    seed: int = SEED
    conventions: tuple[str, ...] = ()  # keys of CONVENTIONS
    own: Own | Example | None = None  # the exercise itself, where a teacher wrote it

    def of(self, task: str) -> tuple[Convention, ...]:
        """Return the conventions that apply to a task, in the order of the table."""
        return tuple(
            convention
            for name, convention in CONVENTIONS.items()
            if name in self.conventions and task in convention.at
        )


DEFAULT = Variant()
_IN_FORCE: ContextVar[Variant] = ContextVar("variant", default=DEFAULT)


@contextmanager
def using(variant: Variant) -> Iterator[Variant]:
    """Use the probes, right answers, mistakes, laws and slopes of a variant inside a block.

    The seed draws different numbers of the same sizes. Sizes that are themselves random, as in a
    mask, change too. A convention affects only the functions that it applies to.

    Parameters
    ----------
    variant : Variant

    Yields
    ------
    Variant
        The one in force.

    Examples
    --------
    >>> from mha_numpy.teach.diagnosis import diagnose, find_task, make
    >>> usual = make("softmax")
    >>> with using(Variant(seed=1, conventions=("True = blocked",))):
    ...     answers = [usual(**probe) for probe in find_task("softmax").probes()]
    ...     print(diagnose("softmax", answers).mistakes[0].name)
    not followed: True = blocked
    """
    for name in variant.conventions:
        if name not in CONVENTIONS:
            meant = did_you_mean(name, CONVENTIONS) or f"they are {', '.join(CONVENTIONS)}"
            raise ConfigError(
                f"conventions: expected the names of conventions; got {name!r}; {meant}"
            )
    known = [CONVENTIONS[name] for name in variant.conventions]
    both = [(a.name, b.name) for a, b in combinations(known, 2) if a.excludes(b)]
    if both:
        raise ConfigError(f"conventions: {both[0][0]!r} and {both[0][1]!r} exclude each other")
    own = variant.own or _IN_FORCE.get().own  # an exercise stays in force inside of its block
    token = _IN_FORCE.set(variant._replace(own=own))
    try:
        yield variant
    finally:
        _IN_FORCE.reset(token)


def variant_in_force() -> Variant:
    """Return the variant that is being used."""
    return _IN_FORCE.get()


def conventions_of(task: str) -> tuple[Convention, ...]:
    """Return the conventions in force that apply to a task."""
    return _IN_FORCE.get().of(task)


def in_words_of(conventions: Sequence[Convention], text: str) -> str:
    """Return a text about the usual function as it is true under some conventions."""
    for convention in conventions:
        for usual, here in convention.words.items():
            text = re.sub(usual, here, text)
    return text


def told(task: str, text: str) -> str:
    """Return a text about a task in the words of the variant in force."""
    return in_words_of(conventions_of(task), text)


def source_in_force(source: str) -> str:
    """Return the source of a solution as the conventions in force have it."""
    for name in _IN_FORCE.get().conventions:
        for usual, here in CONVENTIONS[name].source.items():
            source = source.replace(usual, here)
    return source
