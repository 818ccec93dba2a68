"""A table with two renderings: plain text for terminals and pipes, HTML for notebooks."""

import sys
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

CELL = "padding:2px 8px;text-align:left;white-space:nowrap;font-family:monospace;color:#1a1a1a"


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
    bad_rows: frozenset[int] = frozenset()  # shown in red

    def to_text(self) -> str:
        """Return aligned columns in plain text, without colour or box drawing."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        rule = ["-" * width for width in widths]
        aligned = [_align(line, widths) for line in (self.columns, rule, *self.rows)]
        return "\n".join([self.title, *aligned] if self.title else aligned)

    def to_html(self) -> str:
        """Return a table with inline styles alone: it survives in a notebook not yet trusted."""
        return "".join(self._html_parts())

    def _html_parts(self) -> Iterator[str]:
        yield '<table style="border-collapse:collapse;background:#ffffff">'
        yield f'<caption style="text-align:left;font-weight:bold">{escape(self.title)}</caption>'
        yield from _html_row("th", self.columns, "#d8dee9")
        for number, row in enumerate(self.rows):
            bad = "#f4c7c3" if number in self.bad_rows else None
            yield from _html_row("td", row, bad or ("#ffffff", "#f3f4f6")[number % 2])
        yield "</table>"


def show(section: Table | str) -> None:
    """Print a paragraph or a table: in colour on a terminal, as plain text elsewhere."""
    if not sys.stdout.isatty():
        print(section if isinstance(section, str) else section.to_text(), end="\n\n")
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    console = Console(highlight=False)
    if isinstance(section, str):
        console.print(escape(section), end="\n\n")
        return
    table = RichTable(title=escape(section.title), title_justify="left", box=box.SIMPLE_HEAD)
    for column in section.columns:
        table.add_column(escape(column), overflow="fold")
    for number, row in enumerate(section.rows):
        style = "bold red" if number in section.bad_rows else "dim" if number % 2 else ""
        table.add_row(*map(escape, row), style=style)
    console.print(table)


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Pad the cells of one line to the widths of their columns."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _html_row(tag: str, cells: Sequence[str], background: str) -> Iterator[str]:
    """Yield one row of an HTML table."""
    yield f'<tr style="background:{background}">'
    for cell in cells:
        yield f'<{tag} style="{CELL}">{escape(cell)}</{tag}>'
    yield "</tr>"
