"""A mistake is an edit: a text in a source, and the text to write instead."""

from itertools import pairwise

from mha_numpy.errors import ConfigError
from mha_numpy.teach.task import Edits


def apply_edits(text: str, edits: Edits) -> str:
    """Return a text with some edits made.

    Parameters
    ----------
    text : str
    edits : mapping
        The text that is there: the text to write instead.

    Returns
    -------
    str

    Raises
    ------
    ConfigError
        A text to replace does not occur exactly once, or two edits overlap.

    Examples
    --------
    >>> apply_edits("d_scores = weights * d_weights", {"= weights": "= -weights"})
    'd_scores = -weights * d_weights'
    """
    places = []
    for old, new in edits.items():
        count = text.count(old)
        if count != 1:
            raise ConfigError(
                f"edits: expected a text that occurs once; {old!r} occurs {count} times"
            )
        places.append((text.index(old), text.index(old) + len(old), new))
    places.sort()
    if any(after[0] < before[1] for before, after in pairwise(places)):
        raise ConfigError(f"edits: expected texts that do not overlap; got {list(edits)}")
    for start, end, new in reversed(places):
        text = text[:start] + new + text[end:]
    return text
