"""What a head looks at on a text, as one of a few families; never more than the weights show."""

from collections.abc import Mapping

import numpy as np

from mha_numpy.dtypes import Array

# in words, and a colour of the palette; grey where a head looks at no word
FAMILIES: dict[str, tuple[str, int | None]] = {
    "induction": ("what followed the same word", 7),
    "copies": ("the same word, earlier", 7),
    "previous": ("the word before", 0),
    "next": ("the word after", 1),
    "near": ("words nearby", 2),
    "chosen": ("one chosen word", 3),
    "shared": ("one word, from every word", 6),
    "delimiter": ("full stops and the end", None),
    "first": ("the start", None),
    "many": ("many words at once", 4),
}
RESTS = 0.7  # of all weight on the start: such a head mostly rests there
MOST = 0.45  # of the weight that is not on the start, as are all shares below
NEARBY = 0.75  # on the word itself and two on each side
SHARED = 0.35  # on one word, by all words together
STANDS_OUT = 1.4  # times as much as any word gets from all
START = 0.5  # of all weight, if nothing else is to be seen; also on repeated words
LEAST_PLACES = 2  # of copies: one could be chance


def family_of(weights: Array, patterns: Mapping[str, Array]) -> str:
    """Return the family of a head on a text.

    A head leaves on the first token what it does not need, so its family is where the rest goes,
    unless almost nothing is left.

    Parameters
    ----------
    weights : (T, T) array
    patterns : dict of (T, T) bool arrays
        As `token_patterns` returns them, for one sequence, with "delimiter".

    Examples
    --------
    >>> from mha_numpy.models.analysis import token_patterns
    >>> ids = np.arange(4)[None]
    >>> found = token_patterns(ids, is_delimiter=ids > 9)
    >>> patterns = {name: where[0] for name, where in found.items()}
    >>> family_of(np.eye(4, k=-1), patterns)
    'previous'
    """
    for pattern, family in (("induction", "induction"), ("duplicate", "copies")):
        rows = patterns[pattern].any(axis=1)
        if rows.sum() >= LEAST_PLACES:
            on_pattern = np.where(patterns[pattern], weights, 0)[rows].sum(axis=1)
            if on_pattern.mean() >= START:
                return family
    start, rest = weights[1:, 0].mean(), weights[1:, 1:]
    if start >= RESTS:
        return "first"

    def share_on(where: Array) -> float:
        return float(np.where(where, rest, 0).sum() / rest.sum())

    simple = {name: share_on(patterns[name][1:, 1:]) for name in ("previous", "next", "delimiter")}
    best = max(simple, key=lambda name: simple[name])
    if simple[best] >= MOST:
        return best
    i, j = np.ogrid[: len(rest), : len(rest)]
    if share_on(abs(i - j) <= 2) >= NEARBY:
        return "near"
    of_each, of_all = (rest.max(axis=1).sum() / rest.sum(), rest.sum(axis=0).max() / rest.sum())
    if of_each >= max(MOST, STANDS_OUT * of_all):
        return "chosen"
    if of_all >= SHARED:
        return "shared"
    return "first" if start >= START else "many"
