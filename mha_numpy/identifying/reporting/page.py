"""A datasheet as one page of HTML: to read, to print, to send to a colleague."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from mha_numpy.identifying.reporting.datasheet import Findings, Named
from mha_numpy.identifying.reporting.libraries import which_libraries
from mha_numpy.identifying.reporting.report import (
    COMMON,
    COMPARED,
    FRAMEWORK_NAMES,
    MISTAKES,
    beginning,
    headline,
    label_of,
    parts,
    verdict,
    visible,
)
from mha_numpy.identifying.reporting.rows import Row
from mha_numpy.look import css_tokens
from mha_numpy.show.template import fill, read

SYMBOLS = {
    "B": "sequences", "T": "tokens", "T_q": "queries", "T_k": "keys", "H": "query heads",
    "H_kv": "key/value heads", "d_k": "width of a query or key", "d_v": "width of a value",
    "D": "width of the model", "T_past": "earlier tokens", "buckets": "classes of distances",
}  # fmt: skip
SCOPE = (
    "It called this function and compared its numbers with those of every form of attention that "
    "it knows. This page says nothing about inputs that it did not try."
)
HERE = Path(__file__).parent
PACKAGE = sys.modules["mha_numpy"]  # not imported: its types name identify


def to_page(sheet: Findings) -> str:
    """Return a page that needs no network, no script and no other file."""
    name, framework = visible(sheet.name), FRAMEWORK_NAMES.get(sheet.framework, sheet.framework)
    what = _sentence(headline(sheet))
    says = verdict(sheet) if sheet.is_found else f"{name}: {visible(sheet.saw)}."
    css = (HERE / "page.css").read_text("utf-8")
    body = fill(
        (HERE / "page.html").read_text("utf-8"),
        {
            "top": read("top.html"), "name": escape(name), "framework": escape(framework),
            "headline": escape(what), "verdict": escape(says), "version": PACKAGE.__version__,
            "beginning": "\n".join(f"<p>{_text(says)}</p>" for says in beginning(sheet)),
            "sections": "\n".join(_sections(sheet)), "scope": SCOPE if sheet.rows else "",
        },
    )  # fmt: skip
    return fill(
        read("document.html"),
        {
            "title": escape(f"{name}: {what}"), "style": css_tokens() + read("page.css") + css,
            "scripts": "", "body": body,
        },
    )  # fmt: skip


def _sections(sheet: Findings) -> Iterator[str]:
    shown: dict[str, Callable[[Any], str]] = {
        MISTAKES: lambda part: _list("mistakes", map(_mistake, part)),
        "Arguments": lambda part: _table("names", map(_named, part)) + _symbols(sheet),
        "Returns": lambda part: _table("names", map(_named, part)),
        "Conventions": lambda part: _table("findings", _findings(part)) + _libraries(sheet, part),
        COMMON: lambda part: _list("quiet", (f"<li>{_text(says)}</li>" for says in part)),
    }
    for title, part in parts(sheet).items():
        if part:
            plain = "\n".join(f"<p>{_text(says)}</p>" for says in part if title not in shown)
            show = _compared if title.startswith(COMPARED) else shown.get(title)
            yield f"<section>\n<h2>{title}</h2>\n{show(part) if show else plain}\n</section>"


def _compared(part: Iterable[tuple[str, str, str]]) -> str:
    rows = (
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(here)}'
        + f'<p class="about">{_text(there)}</p>' * bool(there)
        + "</td></tr>"
        for name, here, there in part
    )
    return _table("findings", rows)


def _mistake(row: Row) -> str:
    parts = [f'<p class="about">{_text(label_of(row))}</p><h3>{_text(_sentence(row.says))}</h3>']
    if row.line:
        code = f"<code>{_text(row.code)}</code>"
        parts.append(f'<pre class="source"><span>{row.line}</span>{code}</pre>')
    if row.instead:
        parts.append(f'<p class="instead"><strong>Instead:</strong> {_text(row.instead)}</p>')
    if row.edit:
        code = f"<code>{_text(row.edit)}</code>"
        parts.append(f'<pre class="source"><span>{row.line}</span>{code}</pre>')
    return f"<li>{''.join(parts)}{_example(row)}</li>"


def _findings(part: Iterable[tuple[Row, str]]) -> Iterator[str]:
    for name, group in groupby(part, lambda each: label_of(each[0])):
        start = f'<tr><th scope="row">{_text(name)}</th>'
        for row, there in group:
            says = f"<strong>{_text(row.says)}</strong>" if row.kind != "usual" else _text(row.says)
            about = f'<p class="about">{_text(there)}</p>' if there else ""
            yield f"{start}<td>{says}{_example(row)}{about}</td></tr>"
            start = '<tr class="goes-on"><th></th>'


def _example(row: Row) -> str:
    lines = str(row.example).splitlines() if row.example else []
    return "<pre>" + "\n".join(map(_text, lines)) + "</pre>" if lines else ""


def _named(named: Named) -> str:
    shape = f"<code>{escape(named.axes)}</code>" if named.axes else ""
    note = f" <small>{_text(named.note)}</small>" if named.note else ""
    name = f'<th scope="row"><code>{_text(named.name)}</code></th>'
    return f'<tr>{name}<td class="shape">{shape}</td><td>{_text(named.what)}{note}</td></tr>'


def _symbols(sheet: Findings) -> str:
    """Say what the symbols in shapes mean."""
    shapes = " ".join(named.axes for named in (*sheet.arguments, *sheet.returns))
    used = {*re.findall(r"\w+", shapes)}
    parts = ", ".join(
        f"<code>{name}</code> {what}" for name, what in SYMBOLS.items() if name in used
    )
    return f'\n<p class="symbols">{parts}</p>' if parts else ""


def _libraries(sheet: Findings, part: Iterable[tuple[Row, str]]) -> str:
    """Say which function or layer of each library is meant, where any is."""
    is_any = any(there for _, there in part)
    return f'\n<p class="symbols">{_text(which_libraries(sheet))}</p>' if is_any else ""


def _table(kind: str, rows: Iterable[str]) -> str:
    inner = "\n".join(rows)
    return f'<table class="{kind}"><tbody>\n{inner}\n</tbody></table>' if inner else ""


def _list(kind: str, items: Iterable[str]) -> str:
    inner = "\n".join(items)
    return f'<ul class="{kind}">\n{inner}\n</ul>' if inner else ""


def _text(text: str) -> str:
    return escape(visible(text))


def _sentence(text: str) -> str:
    """Return a text with a large first letter, unless it begins with a name."""
    return text[:1].upper() + text[1:] if re.match(r"(a|[a-z]{2,})\b", text) else text
