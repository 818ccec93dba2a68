"""Held out: what would be said of edits of one kind if the search knew none of that kind."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mha_numpy.progress import progress
from mha_numpy.teach.conventions import Variant, using
from mha_numpy.teach.diagnosis.answers import answers_with, fingerprints, fits
from mha_numpy.teach.diagnosis.clues import find_clues
from mha_numpy.teach.diagnosis.search import Candidate, all_numbers, candidates, have
from mha_numpy.teach.diagnosis.small_edits import GROUPS

ANOTHER_SEED = 1  # whose numbers tell an explanation that fits by chance


class HeldOut(NamedTuple):
    """What became of the edits of one kind."""

    group: str
    made: int
    named: int  # by a known mistake that gives the same
    edited: int  # by an edit of another kind that gives the same
    clues: int  # steps, places or a pattern are told
    nothing: int
    wrongly: int  # of the named and edited: other numbers are drawn, and it gives something else


def hold_out(pieces: Sequence[str], each: int = 2, seed: int = 0) -> list[HeldOut]:
    """Make edits of every kind, and look for them without that kind.

    Parameters
    ----------
    pieces : names of ``TASKS``
    each : int
        How many edits of each kind to draw for each piece.
    seed : int

    Returns
    -------
    list of HeldOut
        One for each kind of edits.

    Examples
    --------
    >>> found = hold_out(["scores_backward"])
    >>> all(one.wrongly == 0 for one in found), sum(one.made for one in found) > 20
    (True, True)
    """
    rng = np.random.default_rng(seed)
    counts = {group: np.zeros(6, dtype=int) for group in GROUPS}
    for piece in progress(list(pieces), len(pieces), "holding out"):
        edits, (rows, numbers) = candidates(piece), all_numbers(piece)
        groups = np.array([edits[row].edit.group for row in rows])
        for group in GROUPS:
            drawn = rng.permutation(np.flatnonzero(groups == group))[:each]
            for i in drawn:
                others = rows[have(numbers, numbers[i]) & (groups != group)]
                ranked = sorted(others, key=lambda row: edits[row].edit.rank)
                counts[group] += _told(piece, edits[rows[i]], [edits[row] for row in ranked])
    return [HeldOut(group, *map(int, count)) for group, count in counts.items() if count[0]]


def _told(piece: str, made: Candidate, others: Sequence[Candidate]) -> list[int]:
    """Return the counts of one edit, as in HeldOut."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = list(made.answers(piece))
        names = [name for name, known in fingerprints(piece).items() if fits(answers, known)]
        fitting = (one for one in others if fits(answers, list(one.answers(piece))))
        other = None if names else next(fitting, None)
        if names or other:
            with using(Variant(ANOTHER_SEED)):
                told = list(other.answers(piece)) if other else answers_with(piece, names[:1])
                wrongly = not fits(list(made.answers(piece)), told)
            return [1, bool(names), not names, 0, 0, wrongly]
    has_clue = bool(find_clues(piece, answers))
    return [1, 0, 0, has_clue, not has_clue, 0]
