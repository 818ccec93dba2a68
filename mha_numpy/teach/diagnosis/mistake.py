"""Mistake: its name, what a student reads about it, and the edits that make it."""

from collections.abc import Sequence
from typing import NamedTuple

from mha_numpy.teach.diagnosis.edits import Edits


class Mistake(NamedTuple):
    """A mistake that people make in attention, as edits of the sources in `right`.

    Each text that is replaced stands there exactly once. Two mistakes are the edits of both; where
    their texts overlap they are alternatives, and nobody makes both.
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
