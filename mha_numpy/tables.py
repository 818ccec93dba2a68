"""A table with two renderings: plain text for terminals and pipes, HTML for notebooks."""

import sys
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from textwrap import wrap
from typing import NamedTuple

from mha_numpy.look import HEADS, PALETTE

__all__ = ["Table", "plain", "show"]

# colours are the page's own, and rules are half transparent: readable on light and on dark
CELL = "padding:3px 10px 3px 6px;text-align:left;font-family:monospace;font-size:13px"
RULE = "border-bottom:1px solid rgba(128,128,128,0.4)"
BAD = "font-weight:bold;border-left:4px solid"
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
    columns: Sequence[str]  # () leaves out the head
    rows: Sequence[Sequence[str]]
    bad_rows: frozenset[int] = frozenset()  # in red, or in bold with a bar before them
    first_head: int | None = None  # the column of head 0: from there on, each head has its colour

    def to_text(self, width: int | None = None) -> str:
        """Return aligned columns in plain text, without colour or box drawing.

        If the columns together are wider than `width`, the last one is broken into lines, beside
        the others if a sentence of it still fits there; columns of heads go into several tables,
        one below the other; else a row goes over several lines, cut between columns.
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
        if room < LEAST:  # the last column has a line for itself
            room = (width or 0) - len(INDENT)
        is_broken = LEAST <= room < widths[-1]
        widths[-1] = room if is_broken else widths[-1]
        groups = _groups(widths, width)
        rule = ["-" * n for n in widths]
        for cells in (self.columns, rule) if self.columns else ():
            yield from ((line, "head") for line in _aligned(cells, widths, groups))
        for number, cells in enumerate(self.rows):
            kind = "bad" if number in self.bad_rows else "row"
            for part in _broken(cells, room) if is_broken else [cells]:
                yield from ((line, kind) for line in _aligned(part, widths, groups))

    def spans_of_heads(self, width: int) -> list[tuple[int, int]]:
        """Return where the column of each head begins and ends, if the rows fit into a line."""
        widths = self._widths()
        if self.first_head is None or len(_groups(widths, width)) > 1:
            return []
        ends = list(accumulate(n + len(GAP) for n in widths))
        return [(end - n - len(GAP), end) for n, end in zip(widths, ends, strict=True)][
            self.first_head :
        ]

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
        rows = [*[self.columns] * bool(self.columns), *self.rows]
        return [max(map(len, column)) for column in zip(*rows, strict=True)]

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
        if self.columns:
            yield from self._html_row("th", self.columns, RULE)
        for number, row in enumerate(self.rows):
            bad = f";{BAD}" if number in self.bad_rows else ""
            yield from self._html_row("td", row, f"{RULE}{bad}")
        yield "</table>"

    def _html_row(self, tag: str, cells: Sequence[str], style: str) -> Iterator[str]:
        yield f'<tr style="background:transparent;{style}">'
        for place, cell in enumerate(cells):
            look = "min-width:40ch" if len(cell) > LONG else "white-space:nowrap"
            if self.first_head is not None and place >= self.first_head:
                look += f";color:var(--head-{(place - self.first_head) % len(HEADS)}-ink,inherit)"
            yield f'<{tag} style="{CELL};{look}">{escape(cell)}</{tag}>'
        yield "</tr>"


def plain(sections: Sequence[Table | str]) -> str:
    """Return paragraphs and tables as text, with an empty line between them."""
    return "\n\n".join(part if isinstance(part, str) else part.to_text() for part in sections)


def show(section: Table | str, width: int | None = None, most: int | None = None) -> None:
    """Print a paragraph or a table: in colour and cut to width on a terminal, plain elsewhere.

    `width` is that of a pipe or a file; a terminal has its own, of which `most` may be used.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        print(section if isinstance(section, str) else section.to_text(width), end="\n\n")
        return
    from rich.console import Console
    from rich.text import Text

    styles = {"title": "bold", "head": "bold", "bad": "bold red"}
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, most or console.width)
    lines = [(section, "text")] if isinstance(section, str) else section.lines(console.width)
    for line, kind in lines:
        text = Text(line, styles.get(kind, ""))
        if isinstance(section, Table) and kind in ("head", "row"):
            for head, span in enumerate(section.spans_of_heads(console.width)):
                text.stylize(PALETTE[head % len(PALETTE)], *span)
        console.print(text)
    console.print()


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
        line = (indent + GAP.join(cells[i].ljust(widths[i]) for i in group)).rstrip()
        if line or len(groups) == 1:
            yield line
