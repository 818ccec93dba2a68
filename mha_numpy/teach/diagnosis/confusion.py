"""The confusion table: every mistake made, rejected or not, named rightly or not."""

from collections.abc import Sequence
from itertools import combinations
from time import process_time
from typing import NamedTuple

import numpy as np

from mha_numpy.progress import progress
from mha_numpy.teach.diagnosis.answers import Answer, answers_with, fingerprints
from mha_numpy.teach.diagnosis.diagnose import Diagnosis, diagnose


class Counts(NamedTuple):
    """How many mistakes were made in a function, and how they were named."""

    singles: int  # mistakes that change something
    rejected: int
    on_top: int  # of the singles: the first name given is the right one
    among: int  # of the singles: the right name is among those given
    pairs: int  # of two mistakes that were made
    pairs_rejected: int
    pairs_named: int  # of the rejected: one of the two is named first, or one edit gives the same


class Confusion(NamedTuple):
    """What became of the mistakes made in one function."""

    piece: str
    counts: Counts
    mixed_up: list[tuple[str, list[str]]]  # each mistake that is not on top, and what was named
    slowest: float  # seconds of a processor for a diagnosis


def find_confusion(pieces: Sequence[str], pairs: int = 100, seed: int = 0) -> list[Confusion]:
    """Make every mistake, and some pairs of them, and count how they are named.

    Parameters
    ----------
    pieces : names of ``TASKS``
    pairs : int
        How many pairs of mistakes to draw for each piece, at most; alternatives, and those that
        fail on every probe, are no pairs.
    seed : int

    Returns
    -------
    list of Confusion
        One for each piece.

    Examples
    --------
    >>> (found,) = find_confusion(["softmax_backward"], pairs=10)
    >>> found.counts.rejected == found.counts.on_top == found.counts.singles
    True
    """
    rng = np.random.default_rng(seed)
    return [
        _confusion(piece, pairs, rng)
        for piece in progress(list(pieces), len(pieces), "making mistakes")
    ]


def _confusion(piece: str, pairs: int, rng: np.random.Generator) -> Confusion:
    """Make the mistakes of one piece."""
    names, seconds = list(fingerprints(piece)), [0.0]

    def diagnosed(answers: list[Answer]) -> Diagnosis:
        start = process_time()
        found = diagnose(piece, answers)
        seconds.append(process_time() - start)
        return found

    rejected = on_top = among = 0
    mixed_up = []
    for name in names:
        found = diagnosed(fingerprints(piece)[name])
        is_on_top = bool(found.causes) and found.causes[0] == {name}
        rejected += not found.is_right
        on_top += is_on_top
        among += frozenset({name}) in found.causes
        if not is_on_top:
            mixed_up.append((name, [" + ".join(sorted(cause)) for cause in found.causes]))

    both = list(combinations(names, 2))
    tried = pairs_rejected = pairs_named = 0
    for pair in (frozenset(both[i]) for i in rng.permutation(len(both))):
        if tried == pairs:
            break
        answers = answers_with(piece, pair)
        if all(answer is None for answer in answers):  # or there is none: they are alternatives
            continue
        found = diagnosed(answers)
        tried += 1
        pairs_rejected += not found.is_right
        pairs_named += bool(found.causes[0] & pair) if found.causes else bool(found.edit)
    counts = Counts(len(names), rejected, on_top, among, tried, pairs_rejected, pairs_named)
    return Confusion(piece, counts, mixed_up, max(seconds))
