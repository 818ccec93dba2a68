"""Pages that have more than their text: the first one, the notebooks, and pictures in any of them.

The first page has a template that is all its own, so that it loads little. A notebook of the first
hour shows where in it you are; pictures become part of the page, so that they follow its theme.
"""

import base64
import re
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from fonts import PRELOADED
from hero import code, hero, verdict
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
FONTS = DOCS / "_build/static/fonts"
PICTURE = (
    r'<(?:img|source)\s[^>]*?src(?:set)?="(?:data:image/svg\+xml;base64,([^"]+)|'
    r'[./]*_images/([^"]+\.svg))"[^>]*>'
)
TWO = r"<picture>(<source [^>]+>)(<img [^>]+>)</picture>"  # for a wide page, and for others

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
        context["topics"] = topics
        if pagename == "index":
            fonts = [name for name in PRELOADED if (FONTS / f"{name}.woff2").exists()]
            context.update(first_page, preloaded=fonts)
            return "landing.html"
        if pagename.startswith("notebooks") or pagename in ("gpt", "gallery"):
            context["sidebars"] = ["topics.html"]
        if "body" in context:
            body = context["body"].replace(' aria-label="Toggle hidden content"', "")
            context["body"] = pictures_inline(body)  # a fold is called what it says
        if pagename.startswith("notebooks/"):
            names = [part.name for part in hour]
            name = pagename.removeprefix("notebooks/")
            context.update(hour=hour, part=names.index(name) if name in names else None)
            heading = re.search("<h1>.*?</h1>", context["body"], re.DOTALL)
            context["heading"] = heading[0]
            title = app.builder.templates.render("title.html", context)
            context["body"] = context["body"].replace(heading[0], title, 1)
        return None

    app.connect("html-page-context", complete)
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


def pictures_inline(html: str) -> str:
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

    html = re.sub(TWO, r'<span class="wide">\1</span><span class="narrow">\2</span>', html)
    return re.sub(PICTURE, drawn, html)
