"""find_alike: pairs of submissions with much the same code. They are pointed out, never judged."""

import io
import keyword
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

WIDTH = 6  # tokens that are compared as one
LEAST = 30  # runs of tokens of one's own: below, there is too little to compare
OVERLAP = 0.7
MOST_SHOWN = 100  # pairs that get a page: the most alike
COMMON = 1 / 3  # of the class: what so many wrote says nothing
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER, tokenize.STRING,
}  # fmt: skip


class Pair(NamedTuple):
    """Two submissions with much the same code."""

    one: str
    other: str
    overlap: float  # of the shorter one, 0 to 1


def tokens_of(text: str) -> list[str]:
    """Return a text's tokens: an author's names all count as one, comments and strings as none.

    Examples
    --------
    >>> tokens_of("total = np.exp(x)  # all")
    ['name', '=', 'name', '.', 'exp', '(', 'name', ')']
    """
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT:
                continue
            is_own = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            is_attribute = bool(found) and found[-1] == "."
            found.append("name" if is_own and not is_attribute else token.string)
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # what came before the error is enough
    return found


def fingerprint(texts: Iterable[str], handed_out: Iterable[str] = ()) -> list[int]:
    """Return numbers for the runs of tokens in some texts, in ascending order.

    Runs that occur in handed-out code, such as stubs, are left out.

    Examples
    --------
    >>> fingerprint(["a = b + c * d"]) == fingerprint(["x=y+z*w  # mine"])
    True
    """
    given = {run for text in handed_out for run in _runs(text)}
    return sorted({run for text in texts for run in _runs(text)} - given)


def _runs(text: str) -> Iterator[int]:
    tokens = tokens_of(text)
    for start in range(len(tokens) - WIDTH + 1):
        yield zlib.crc32(" ".join(tokens[start : start + WIDTH]).encode())


def find_alike(fingerprints: Mapping[str, Iterable[int]]) -> list[Pair]:
    """Return the pairs of students whose code is much the same, the most alike first.

    What a third of the class wrote is left out: a short function has few right forms.

    Examples
    --------
    >>> find_alike({"ada": range(50), "bob": range(5, 60), "eve": range(100, 150)})
    [Pair(one='ada', other='bob', overlap=0.9)]
    """
    sets = {student: set(found) for student, found in sorted(fingerprints.items())}
    counts = Counter(run for found in sets.values() for run in found)
    most = max(2.0, COMMON * len(sets))
    own = {
        student: {run for run in found if counts[run] <= most} for student, found in sets.items()
    }
    pairs = []
    for one, other in combinations(own, 2):
        shorter = min(len(own[one]), len(own[other]))
        if shorter >= LEAST and (overlap := len(own[one] & own[other]) / shorter) >= OVERLAP:
            pairs.append(Pair(one, other, round(overlap, 2)))
    return sorted(pairs, key=lambda pair: (-pair.overlap, pair.one, pair.other))
