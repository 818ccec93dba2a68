"""side_by_side: the code of two students next to each other, with marks where lines are equal."""

from collections.abc import Container, Iterator
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest
from typing import NamedTuple

from mha_numpy.teach.classroom.alike import Pair, tokens_of
from mha_numpy.teach.classroom.pages import as_page, as_table
from mha_numpy.teach.classroom.results import Result, file_name
from mha_numpy.teach.exercises.child.errors import shown

MOST_LINES, LONGEST = 300, 300  # of a function, characters of a line; more is cut
SAME, NEARLY = "=", "≈"
LEGEND = (
    f"{SAME} is the same line, {NEARLY} the same except for names, spaces, comments and strings. "
    "Handed-out code is not marked. Two people may well have the same idea, so read both, and "
    "talk to both, before you draw any conclusion."
)


class Line(NamedTuple):
    """A line of the one, a line of the other, "" if there is none, and how alike they are."""

    one: str
    other: str
    mark: str = ""
    is_given: bool = False  # nobody wrote it: it was handed out
    of_one: int = 0  # numbers of the lines
    of_other: int = 0


def address(pair: Pair) -> str:
    """Return where the page of a pair is, from the class page."""
    return f"alike/{file_name(pair.one)}--{file_name(pair.other)}.html"


def side_by_side(
    title: str, pair: Pair, left: Result, right: Result, given: Container[str] = ()
) -> str:
    """Return the page of a pair, from the title of the assignment and both results.

    Lines that are `given`, see `lines_given`, are shown and do not count.
    """
    one, other = (result.name or result.student for result in (left, right))
    mine, others = left.codes, right.codes
    parts = [
        f'<p><a href="../class.html">{escape(title)}: the class</a></p>',
        f"<h1>{escape(one)} and {escape(other)}</h1>",
        f'<p>{100 * pair.overlap:.0f}% overlap. <span class="soft">{LEGEND}</span></p>',
    ]
    for function in dict.fromkeys([*mine, *others]):
        parts.append(f"<h2><code>{escape(function)}</code></h2>")
        if function not in mine or function not in others:
            alone = one if function in mine else other
            parts.append(f"<p>Only {escape(alone)} handed this in.</p>")
            continue
        lines = list(aligned(mine[function], others[function], given))
        same = sum(bool(line.mark) for line in lines)
        written = sum(not line.is_given for line in lines)
        parts.append(f"<p>{same} of {written} lines are marked.</p>")
        parts.append(_table(function, lines, one, other))
    return as_page(f"{one} and {other}", parts, "wide-page")


def aligned(one: str, other: str, given: Container[str] = ()) -> Iterator[Line]:
    r"""Yield the lines of two texts, those next to each other that are alike.

    Lines that were handed out have no mark.

    Examples
    --------
    >>> for line in aligned("a = 1\nb = 2", "x = 1 # one\nif x: pass\nb = 2"):
    ...     print(line.one, "|", line.mark, "|", line.other)
    a = 1 | ≈ | x = 1 # one
     |  | if x: pass
    b = 2 | = | b = 2
    """
    texts = [[_line(line) for line in text.split("\n")[:MOST_LINES]] for text in (one, other)]
    mine, others = (
        [" ".join(tokens_of(line.strip())) or f"nothing {side} {n}" for n, line in enumerate(lines)]
        for side, lines in enumerate(texts)
    )  # lines without code are like no other
    matcher = SequenceMatcher(None, mine, others, autojunk=False)
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        for i, j in zip_longest(range(a, a_end), range(b, b_end)):
            left, right = ("" if i is None else texts[0][i]), ("" if j is None else texts[1][j])
            is_given = all(not text or text in given for text in (left.strip(), right.strip()))
            mark = SAME if left.strip() == right.strip() else NEARLY
            mark *= kind == "equal" and not is_given
            numbers = (0 if n is None else n + 1 for n in (i, j))
            yield Line(left, right, mark, is_given, *numbers)


def _line(text: str) -> str:
    """Return a line as it can be shown: without tabs, control characters, and not too long."""
    text = text.expandtabs(4).rstrip()
    indent = len(text) - len(text.lstrip(" "))
    return " " * indent + shown(text[indent:])[:LONGEST]


def _table(function: str, lines: list[Line], one: str, other: str) -> str:
    rows = [
        '<tr><th scope="col">line</th>'
        f'<th scope="col">{escape(one)}</th><th scope="col">alike</th><th scope="col">line</th>'
        f'<th scope="col">{escape(other)}</th></tr>'
    ]
    for before, line in zip([None, *lines], lines, strict=False):
        if before and not (before.one or before.other or line.one or line.other):
            continue  # of several empty lines, one is enough
        kind = {SAME: "same", NEARLY: "near"}.get(line.mark, "soft" * line.is_given)
        cells = (
            f'<td class="n">{line.of_one or ""}</td><td><code>{escape(line.one)}</code></td>'
            f'<td class="mark">{line.mark}</td>'
            f'<td class="n">{line.of_other or ""}</td><td><code>{escape(line.other)}</code></td>'
        )
        rows.append(f'<tr class="{kind}">{cells}</tr>')
    return as_table(function, rows, "code")
