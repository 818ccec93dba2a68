"""A table with two renderings: plain text for terminals and pipes, HTML for notebooks."""

import os
import sys
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from textwrap import wrap
from typing import NamedTuple

from mha_numpy.dtypes import Array
from mha_numpy.look import HEADS, PALETTE, tokens

__all__ = ["Table", "plain", "shaded", "show"]

# colours are the page's own, and rules are half transparent: readable on light and on dark
CELL = "padding:3px 10px 3px 6px;text-align:left;font-family:monospace;font-size:13px"
RULE = "border-bottom:1px solid rgba(128,128,128,0.4)"
BAD = "font-weight:bold;border-left:4px solid"
LEAST_SHARE = 0.1  # of a cell that is shaded
LONG = 60  # characters of an HTML cell that is broken into lines
GAP, INDENT = "  ", "    "
LEAST = 20  # characters of a last column that is broken into lines


class Table(NamedTuple):
    """Rows of strings under a title.

    Examples
    --------
    >>> print(Table("Sizes", ["axis", "size"], [["B", "2"], ["T", "5"]]).to_text())
    Sizes
    axis  size
    ----  ----
    B     2
    T     5
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    bad_rows: frozenset[int] = frozenset()  # in red, or in bold with a bar before them
    first_head: int | None = None  # the column of head 0: from there on, each head has its colour
    shares: Sequence[Sequence[float]] = ()  # of the last cells of each row: how strong, 0 to 1
    shaded_head: int = 0  # whose colour they have

    def to_text(self, width: int | None = None) -> str:
        """Return aligned columns in plain text, without colour or box drawing.

        Where the columns together are wider than `width`, the last one is broken into lines if a
        sentence of it still fits; columns of heads stand in several tables, one below the other;
        else a row goes over several lines, cut between columns.
        """
        return "\n".join(line for line, _ in self.lines(width))

    def lines(self, width: int | None = None) -> Iterator[tuple[str, str]]:
        """Yield the lines of `to_text`, each with its kind: "title", "head", "row" or "bad"."""
        if self.title:
            yield self.title, "title"
        widths = self._widths()
        if self.first_head is not None and len(_groups(widths, width)) > 1:
            for number, table in enumerate(self._cut_between_heads(width or 0)):
                yield from [("", "row")] * bool(number)
                yield from table.lines(width)
            return
        room = (width or 0) - sum(n + len(GAP) for n in widths[:-1])
        is_broken = LEAST <= room < widths[-1]
        widths[-1] = room if is_broken else widths[-1]
        groups = _groups(widths, width)
        rule = ["-" * n for n in widths]
        for cells in (self.columns, rule):
            yield from ((line, "head") for line in _aligned(cells, widths, groups))
        for number, cells in enumerate(self.rows):
            kind = "bad" if number in self.bad_rows else "row"
            for part in _broken(cells, room) if is_broken else [cells]:
                yield from ((line, kind) for line in _aligned(part, widths, groups))

    def spans(self, width: int) -> list[tuple[int, int]]:
        """Return where each column begins and ends; nothing where rows do not fit into a line."""
        widths = self._widths()
        if len(_groups(widths, width)) > 1:
            return []
        ends = accumulate(n + len(GAP) for n in widths)
        return [(end - n - len(GAP), end - len(GAP)) for n, end in zip(widths, ends, strict=True)]

    def _cut_between_heads(self, width: int) -> Iterator["Table"]:
        """Yield tables of as many heads as fit, each with the columns before the heads."""
        widths = [n + len(GAP) for n in self._widths()]
        before = list(range(self.first_head or 0))
        heads = list(range(len(before), len(widths)))
        room = max(1, (width + len(GAP) - sum(widths[: len(before)])) // max(widths[len(before) :]))
        for start in range(0, len(heads), room):
            kept = [*before, *heads[start : start + room]]
            rows = [[row[i] for i in kept] for row in self.rows]
            yield Table("", [self.columns[i] for i in kept], rows, self.bad_rows)

    def _widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]

    def to_markdown(self) -> str:
        """Return a Markdown table under its title in bold."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        rows = [f"| {' | '.join(cells)} |" for cells in lines]
        return "\n".join([f"**{self.title}**", "", *rows] if self.title else rows)

    def to_html(self) -> str:
        """Return a table with inline styles only: it survives in a notebook not yet trusted."""
        return "".join(self._html_parts())

    def _repr_html_(self) -> str:
        return self.to_html()

    def _html_parts(self) -> Iterator[str]:
        yield '<table class="mha-table" style="border-collapse:collapse;background:transparent">'
        yield f'<caption style="text-align:left;font-weight:bold">{escape(self.title)}</caption>'
        yield from self._html_row("th", self.columns, RULE)
        for number, row in enumerate(self.rows):
            shares = self.shares[number] if self.shares else ()
            bad = f";{BAD}" if number in self.bad_rows else ""
            yield from self._html_row("td", row, f"{RULE}{bad}", shares)
        yield "</table>"

    def _html_row(
        self, tag: str, cells: Sequence[str], style: str, shares: Sequence[float] = ()
    ) -> Iterator[str]:
        yield f'<tr style="background:transparent;{style}">'
        first = len(cells) - len(shares)
        for place, cell in enumerate(cells):
            look = "min-width:40ch" if len(cell) > LONG else "white-space:nowrap"
            if self.first_head is not None and place >= self.first_head:
                look += f";color:var(--head-{(place - self.first_head) % len(HEADS)}-ink,inherit)"
            if place >= first:
                red, green, blue = bytes.fromhex(PALETTE[self.shaded_head % len(PALETTE)][1:])
                share = 0.55 * shares[place - first]
                look += f";background-color:rgba({red},{green},{blue},{share:.2f})"
            yield f'<{tag} style="{CELL};{look}">{escape(cell)}</{tag}>'
        yield "</tr>"


def shaded(
    title: str, rows: Sequence[str], columns: Sequence[str], weights: Array, *, head: int = 0
) -> Table:
    """Return weights as a table: the larger one is, the stronger its cell is shaded.

    A terminal of 256 colours or more and a notebook show the shades; a pipe shows the numbers.

    Parameters
    ----------
    title : str
        What is seen.
    rows, columns : strings
        The tokens that look, and those that they look at.
    weights : (rows, columns) array
        Between 0 and 1.
    head : int
        Whose colour the cells have.

    Examples
    --------
    >>> import numpy as np
    >>> print(shaded("looks at", ["It"], ["cat", "fish"], np.array([[0.78, 0.22]])).to_text())
    looks at
         cat    fish
    --  -----  -----
    It   .78    .22
    """
    width = max(5, *map(len, columns))
    lines = [
        [word, *(f"{n:.2f}".removeprefix("0").center(width) for n in row)]
        for word, row in zip(rows, weights.tolist(), strict=True)
    ]
    heading = ["", *(word.center(width) for word in columns)]
    return Table(title, heading, lines, shares=weights.tolist(), shaded_head=head)


def plain(sections: Sequence[Table | str]) -> str:
    """Return paragraphs and tables as text, with an empty line between them."""
    return "\n\n".join(part if isinstance(part, str) else part.to_text() for part in sections)


def show(section: Table | str, width: int | None = None) -> None:
    """Print a paragraph or a table: in colour and cut to width on a terminal, plain elsewhere.

    `width` is that of a pipe or a file; a terminal has its own.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        print(section if isinstance(section, str) else section.to_text(width), end="\n\n")
        return
    from rich.console import Console
    from rich.text import Text

    styles = {"title": "bold", "head": "bold", "bad": "bold red"}
    console = Console(highlight=False, markup=False, emoji=False)
    lines = [(section, "text")] if isinstance(section, str) else section.lines(console.width)
    can_shade = console.color_system in ("256", "truecolor", "windows")
    number = -1  # of the row
    for line, kind in lines:
        text = Text(line, styles.get(kind, ""))
        number += kind in ("row", "bad")
        spans = section.spans(console.width) if isinstance(section, Table) else []
        if isinstance(section, Table) and spans and kind in ("head", "row"):
            if section.first_head is not None:
                for head, span in enumerate(spans[section.first_head :]):
                    text.stylize(PALETTE[head % len(PALETTE)], *span)
            if can_shade and section.shares and kind == "row":
                shares = section.shares[number]
                for share, span in zip(shares, spans[-len(shares) :], strict=True):
                    text.stylize(_shade(share, section.shaded_head), *span)
        console.print(text)
    console.print()


def _shade(share: float, head: int) -> str:
    """Return rich's style of a cell: ink on a mixture of the terminal's ground and the colour."""
    if share < LEAST_SHARE:
        return ""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    is_dark = ground not in ("7", "15")  # dark where the terminal does not say
    named = tokens()
    card, fill = (
        bytes.fromhex(named[name][is_dark][1:]) for name in ("card", f"fill-{head % len(HEADS)}")
    )
    mixed = bytes(round(a + share * (b - a)) for a, b in zip(card, fill, strict=True))
    return f"{named['ink'][is_dark]} on #{mixed.hex()}"


def _broken(cells: Sequence[str], room: int) -> Iterator[list[str]]:
    """Yield a row as several, its last cell broken into lines."""
    first, *others = wrap(cells[-1], room) or [""]
    yield [*cells[:-1], first]
    for line in others:
        yield [*[""] * (len(cells) - 1), line]


def _groups(widths: Sequence[int], limit: int | None) -> list[range]:
    """Cut the columns into as few lines as fit into `limit` characters."""
    groups, first, used = [], 0, 0
    for column, width in enumerate(widths):
        if limit is not None and column > first and used + width > limit:
            groups.append(range(first, column))
            first, used = column, len(INDENT)
        used += width + len(GAP)
    return [*groups, range(first, len(widths))]


def _aligned(cells: Sequence[str], widths: Sequence[int], groups: list[range]) -> Iterator[str]:
    """Yield the lines of one row, its cells padded to the widths of their columns."""
    for number, group in enumerate(groups):
        indent = INDENT if number else ""
        yield (indent + GAP.join(cells[i].ljust(widths[i]) for i in group)).rstrip()
