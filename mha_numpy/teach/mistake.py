"""Mistake: its name, what a student reads about it, and the edits that make it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Edits = Mapping[str, str]  # what stands there: what is written instead


class Mistake(NamedTuple):
    """A mistake that people make in attention, as edits of the solution of a task.

    Each text that is replaced stands just once in the solution's file. Two mistakes are the edits
    of both; where their texts overlap they are alternatives, and nobody makes both.
    """

    name: str
    verdict: str  # what was done
    fix: str  # what to do instead, in one line
    edits: Edits


def for_each(
    words: Sequence[str], name: str, verdict: str, fix: str, edits: Edits
) -> list[Mistake]:
    """Return one mistake for each of several params, branches or results: ? stands for its name."""
    return [
        Mistake(
            name.replace("?", word),
            verdict.replace("?", word),
            fix.replace("?", word),
            {old.replace("?", word): new.replace("?", word) for old, new in edits.items()},
        )
        for word in words
    ]
