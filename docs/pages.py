"""Pages that have more than their text: the first one, the notebooks, and what any of them has.

The first page has a template that is all its own, with its look inside, so that it loads little and
waits for no other file before it is drawn. A notebook of the first hour shows where in it you are.
Pictures become part of their page, so that they follow its theme; wide tables name the column in
each cell, so that a phone can show every row as a card; a long line of code goes on below its own
indentation; and a shape such as (B, H, T_q, d_k) stays on one line.
"""

import base64
import html
import re
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from fonts import PRELOADED
from hero import code, hero, verdict
from sphinx.application import Sphinx

from mha_numpy.models.experiments import EXPERIMENTS

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
FONTS = DOCS / "_build/static/fonts"
PICTURE = (
    r'<(?:img|source)\s[^>]*?src(?:set)?="(?:data:image/svg\+xml;base64,([^"]+)|'
    r'[./]*_images/([^"]+\.svg))"[^>]*>'
)
TWO = r"<picture>(<source [^>]+>)(<img [^>]+>)</picture>"  # for a wide page, and for others

TABLE = re.compile(r'<table class="table">.*?</table>', re.DOTALL)
ANCHORS = re.compile(r"(<tr[^>]*>)((?:<span id=[^>]*></span>)+)(<td[^>]*>)")
ROLES = {  # which CSS takes from what it makes a block
    "tr": 'role="row"', "thead": 'role="rowgroup"', "tbody": 'role="rowgroup"',
    "th": 'role="columnheader"',
}  # fmt: skip
LINE, WORD = 34, 24  # letters: a table whose longest cells need more becomes cards on a phone;
# one of two columns only if it has a word that is longer
SHAPE = re.compile(r"\((?:[\w*/ ]{1,16},\s)*(?:[\w*/ ]{1,16},?|\.\.\.)\)")
SYMBOLS = re.compile(r"\b(?:[BHTDEGFNVLOI]|[dT]_\w|H_kv)\b")  # a shape has one of them
CODE = re.compile(r"(<div class=\"highlight\"><pre>)(.*?)(</pre>)", re.DOTALL)
COLUMNS = re.compile(r"\S {3,}[^\s#]")  # of a printed table, which scrolls
WIDE = 100  # letters: a line that is longer has sentences in it, and is broken anyway
END = re.compile(r"\n+(?=</pre>)")  # of examples, which doctest needs, and no reader

GOAL = "<p><strong>By the end you can"  # a quiet line, the same in each notebook

IDS = r'(?<=\bid=")[^"]+|(?<=#)(?:{})(?![\w-])|(?<=by=")[^"]+'


class Part(NamedTuple):
    """A part of the first hour."""

    name: str
    title: str
    minutes: int
    question: str


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what completes a page."""
    topics = read_topics()
    hour = read_hour(topics)
    first_page = {"hour": hour, "hero": hero(), "verdict": verdict(), "code": code()}

    def complete(app: Sphinx, pagename: str, template: str, context: Any, doctree: Any) -> Any:
        context["topics"], context["experiments"] = topics, EXPERIMENTS
        if pagename == "index":
            fonts = [name for name in PRELOADED if (FONTS / f"{name}.woff2").exists()]
            look = (FONTS.parent / "look.css").read_text(encoding="utf-8")
            look = look.replace("fonts/", "_static/fonts/")
            context.update(first_page, preloaded=fonts, look=look)
            return "landing.html"
        if pagename.startswith(("notebooks", "experiments")) or pagename in ("gpt", "gallery"):
            context["sidebars"] = ["topics.html"]
        if "body" in context:
            body = context["body"].replace(' aria-label="Toggle hidden content"', "")
            body = CODE.sub(_in_lines, END.sub("\n", TABLE.sub(_with_labels, body)))
            context["body"] = pictures_inline(body)  # a fold is called what it says
        if pagename.startswith("notebooks/"):
            names = [part.name for part in hour]
            name = pagename.removeprefix("notebooks/")
            context.update(hour=hour, part=names.index(name) if name in names else None)
            heading = re.search("<h1>.*?</h1>", context["body"], re.DOTALL)
            context["heading"] = heading[0]
            title = app.builder.templates.render("title.html", context)
            body = context["body"].replace(heading[0], title, 1)
            context["body"] = body.replace(GOAL, f'<p class="goal">{GOAL[3:]}', 1)
        return None

    app.connect("html-page-context", complete)
    app.connect("doctree-resolved", lambda app, page, name: keep_shapes_together(page))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read_topics() -> dict[str, dict[str, str]]:
    """Return the notebooks by topic, {topic: {name: title}}, as their list has them."""
    topics = {}
    for section in (DOCS / "notebooks.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = re.findall(r"\[(\d\d [^\]]+)\]\(\.\./notebooks/([^)]+)\.ipynb\)", section)
        topics[section.splitlines()[0]] = {name: title for title, name in rows}
    return topics


def read_hour(topics: dict[str, dict[str, str]]) -> list[Part]:
    """Return the parts of the first hour, with the minutes and questions that the first one has."""
    first, *_ = names = next(iter(topics.values()))
    text = (DOCS.parent / f"notebooks/{first}.py").read_text(encoding="utf-8")
    rows = re.findall(r"^# \| (?:\[)?(\d\d) [^|]+\| (\d+) \| ([^|]+) \|", text, re.MULTILINE)
    about = {number: (int(minutes), question) for number, minutes, question in rows}
    return [Part(name, title[3:], *about.get(title[:2], (10, ""))) for name, title in names.items()]


def keep_shapes_together(page: nodes.document) -> None:
    """Keep each shape, in prose or as code, on one line."""
    for literal in page.findall(nodes.literal):
        if SHAPE.fullmatch(literal.astext()):
            literal["classes"].append("shape")
    for text in list(page.findall(nodes.Text)):
        if not isinstance(text.parent, (nodes.literal, nodes.FixedTextElement, nodes.math)):
            kept = SHAPE.sub(_on_one_line, text)
            if kept != text:
                text.parent.replace(text, nodes.Text(kept))


def _on_one_line(found: re.Match[str]) -> str:
    is_shape = SYMBOLS.search(found[0])
    return re.sub(r"\s", "\N{NO-BREAK SPACE}", found[0]) if is_shape else found[0]


def _with_labels(found: re.Match[str]) -> str:
    """Name the column in each cell of a table that is too wide for a phone."""
    table = ANCHORS.sub(r"\1\3\2", found[0])  # between a row and its cells HTML has no place
    head, cells = _texts(table, "th"), _texts(table, "td")
    if not head or len(cells) % len(head):
        return table
    widest = [max(map(len, cells[n :: len(head)]), default=0) for n in range(len(head))]
    word = max((len(word) for cell in cells for word in cell.split()), default=0)
    if sum(widest) < LINE or (len(head) < 3 and word < WORD):
        return table
    places = count()

    def labelled(found: re.Match[str]) -> str:
        place = next(places)
        role = "rowheader" if place % len(head) == 0 else "cell"
        label = html.escape(head[place % len(head)])
        empty = "" if cells[place] else ' class="empty"'
        return f'<td role="{role}"{empty} data-label="{label}"'

    table = re.sub("<td", labelled, table)
    table = re.sub("<(tr|thead|tbody|th)(?= |>)", lambda tag: f"{tag[0]} {ROLES[tag[1]]}", table)
    return table.replace('<table class="table"', '<table role="table" class="table cards"')


def _in_lines(found: re.Match[str]) -> str:
    """Set each line of code apart, with the place below which its rest goes on."""
    lines = found[2].removeprefix("<span></span>").splitlines(keepends=True)
    plain = [html.unescape(re.sub("<[^>]*>", "", line)).rstrip() for line in lines]
    is_example = any(text.startswith(">>> ") for text in plain)
    if not is_example and any(map(COLUMNS.search, plain)) and max(map(len, plain)) <= WIDE:
        return found[0]
    starts = [len(text) - len(text.removeprefix(">>> ").lstrip(" .")) for text in plain]
    parts = [
        f'<span class="line" style="--in:{start}">{line}</span>'
        for line, start in zip(lines, starts, strict=True)
    ]
    return f"{found[1]}{''.join(parts)}{found[3]}"


def _texts(table: str, kind: str) -> list[str]:
    """Return the texts of a table's cells."""
    found = re.findall(rf"<{kind}\b.*?</{kind}>", table, re.DOTALL)
    return [html.unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in found]


def pictures_inline(page: str) -> str:
    """Put drawings into the page itself, each with its own ids."""
    places = count()

    def drawn(found: re.Match[str]) -> str:
        drawing = base64.b64decode(found[1]) if found[1] else (PICTURES / found[2]).read_bytes()
        svg = drawing.decode("utf-8")
        svg = svg[svg.index("<svg") :]
        ids = "|".join(map(re.escape, re.findall(r'\bid="([^"]+)"', svg)))
        place = next(places)
        own = lambda found: " ".join(f"p{place}-{name}" for name in found[0].split())  # noqa: E731
        return re.sub(IDS.format(ids), own, svg) if ids else svg

    page = re.sub(TWO, r'<span class="wide">\1</span><span class="narrow">\2</span>', page)
    return re.sub(PICTURE, drawn, page)
