"""The confusion table: every mistake made, rejected or not, named rightly or not."""

from collections.abc import Sequence
from itertools import combinations
from time import perf_counter
from typing import NamedTuple

import numpy as np

from mha_numpy.mistakes.diagnose import Answer, diagnose, fingerprints
from mha_numpy.mistakes.make import make
from mha_numpy.mistakes.pieces import PIECES, find_piece
from mha_numpy.progress import progress


class Counts(NamedTuple):
    """How many mistakes were made in a function, and how they were named."""

    singles: int  # mistakes that change something
    rejected: int
    on_top: int  # of the singles: the first name given is the right one
    among: int  # of the singles: the right name is among those given
    pairs: int  # of two mistakes that were made
    pairs_rejected: int
    pairs_named: int  # of the rejected: the first alternative names one of the two


class Confusion(NamedTuple):
    """What became of the mistakes made in one function."""

    piece: str
    counts: Counts
    mixed_up: list[tuple[str, list[str]]]  # each mistake that is not on top, and what was named
    slowest: float  # seconds of a diagnosis


def pieces_named(name: str | None) -> list[str]:
    """Return one function by its name, or all."""
    if name is None:
        return list(PIECES)
    return [find_piece(name).name]


def find_confusion(pieces: Sequence[str], pairs: int = 100, seed: int = 0) -> list[Confusion]:
    """Make every mistake, and some pairs of them, and count how they are named.

    Parameters
    ----------
    pieces : names of ``PIECES``
    pairs : int
        How many pairs of mistakes to draw for each piece, at most; those that cancel out, or that
        fail on every probe, are not counted.
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
    names = list(fingerprints(piece))
    rejected = on_top = among = 0
    mixed_up, seconds = [], [0.0]
    for name in names:
        start = perf_counter()
        found = diagnose(piece, _answers(piece, {name}))
        seconds.append(perf_counter() - start)
        rejected += not found.is_right
        on_top += bool(found.causes) and found.causes[0] == {name}
        among += frozenset({name}) in found.causes
        if not found.causes or found.causes[0] != {name}:
            mixed_up.append((name, [" + ".join(sorted(cause)) for cause in found.causes]))

    both = list(combinations(names, 2))
    made = pairs_rejected = pairs_named = 0
    for i in rng.permutation(len(both))[:pairs]:
        answers = _answers(piece, set(both[i]))
        if all(answer is None for answer in answers):
            continue
        start = perf_counter()
        found = diagnose(piece, answers)
        seconds.append(perf_counter() - start)
        made += 1
        pairs_rejected += not found.is_right
        pairs_named += bool(found.causes) and bool(found.causes[0] & set(both[i]))
    counts = Counts(len(names), rejected, on_top, among, made, pairs_rejected, pairs_named)
    return Confusion(piece, counts, mixed_up, max(seconds))


def _answers(piece: str, mistakes: set[str]) -> list[Answer]:
    """Return what a function with these mistakes gives for every probe."""
    function = make(piece, mistakes)
    answers: list[Answer] = []
    for given in PIECES[piece].probes():
        try:
            answers.append(function(**given))
        except (ValueError, IndexError):  # shapes that do not fit
            answers.append(None)
    return answers
