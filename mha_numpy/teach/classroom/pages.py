"""What all pages of a class are made of: a frame with the style in it, lists, tables, code."""

from collections.abc import Iterable
from html import escape
from pathlib import Path

from mha_numpy import __version__

STYLE = Path(__file__).with_name("feedback.css")


def as_list(items: Iterable[str]) -> str:
    """Return items of HTML as a list, or nothing if there are none."""
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


def quoted(text: str) -> str:
    """Return a text as HTML, with everything in backticks as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def as_table(label: str, rows: Iterable[str], kind: str = "") -> str:
    """Return a table; where it is too wide, it can be moved sideways, with the keyboard too."""
    of_kind = f' class="{kind}"' if kind else ""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table{of_kind}>{''.join(rows)}</table></div>"
    )


def as_row(*cells: str, is_head: bool = False) -> str:
    """Return a row of a table; its cells are HTML, right-aligned after the first."""
    tag, scope = ("th", ' scope="col"') if is_head else ("td", "")
    first, *others = cells
    right = "".join(f'<{tag}{scope} class="n">{cell}</{tag}>' for cell in others)
    return f"<tr><{tag}{scope}>{first}</{tag}>{right}</tr>"


def version_text(version: str) -> str:
    """Return which version of an assignment, and of this package, made a page."""
    return f"Graded with mha-numpy {__version__}, version {version} of the assignment."


def as_page(title: str, parts: Iterable[str], kind: str = "narrow") -> str:
    """Return a whole page, which asks for no other file; its parts are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{STYLE.read_text()}</style></head>"
        f'<body class="{kind}"><main>\n'
        + "\n".join(filter(None, parts))
        + "\n</main></body></html>\n"
    )
