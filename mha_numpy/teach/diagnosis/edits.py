"""A mistake is an edit: what stands in a source, and what is written instead."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.teach.task import Edits


class Place(NamedTuple):
    """Where a text is replaced, and by what."""

    start: int
    end: int
    new: str


def find_places(text: str, edits: Edits) -> list[Place]:
    """Return where each edit applies; raise a ConfigError if its text does not stand just once."""
    places = []
    for old, new in edits.items():
        count = text.count(old)
        if count != 1:
            raise ConfigError(f"edits: expected a text that stands once; {old!r} stands {count}x")
        places.append(Place(text.index(old), text.index(old) + len(old), new))
    return places


def overlap(places: Iterable[Place]) -> bool:
    """Return whether two of the places share a character."""
    return any(after.start < before.end for before, after in pairwise(sorted(places)))


def replace_places(text: str, places: Iterable[Place]) -> str:
    """Write the new texts in their places, which must not overlap."""
    for place in sorted(places, reverse=True):
        text = text[: place.start] + place.new + text[place.end :]
    return text


def apply_edits(text: str, edits: Edits) -> str:
    """Return a text with some edits made.

    Parameters
    ----------
    text : str
    edits : mapping
        What stands there: what is written instead.

    Returns
    -------
    str

    Raises
    ------
    ConfigError
        What is to be replaced does not stand in the text exactly once, or two edits overlap.

    Examples
    --------
    >>> apply_edits("d_scores = weights * d_weights", {"= weights": "= -weights"})
    'd_scores = -weights * d_weights'
    """
    places = find_places(text, edits)
    if overlap(places):
        raise ConfigError(f"edits: expected texts that do not overlap; got {list(edits)}")
    return replace_places(text, places)
