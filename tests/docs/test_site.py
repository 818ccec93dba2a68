"""Every link of the built website leads to a file of it, and to an anchor in that file."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from mha_numpy.show.scenes.scenes import SCENES
from mha_numpy.show.walk.example import TOKENS

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
BUILT = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SITE / "index.html").exists(), reason="before it: python docs/build.py"
    ),
]
pytestmark = BUILT


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")}
        self.links |= {attrs.get("href"), attrs.get("src")} - {None}


def test_every_link_holds():
    pages = {path: Page(path) for path in SITE.rglob("*.html") if is_ours(path)}
    broken = [(path.relative_to(SITE), link) for path in pages for link in pages[path].links
              if not leads_somewhere(path, link, pages)]  # fmt: skip
    assert not broken
    assert len(pages) > 60


def test_no_formula_has_a_command_left():
    texts = [path.read_text(encoding="utf-8") for path in SITE.rglob("*.html") if is_ours(path)]
    formulas = [found for text in texts for found in re.findall("<math.*?</math>", text, re.DOTALL)]
    assert len(formulas) > 300
    assert not [one for one in formulas if "\\" in one or "&#x0005C;" in one]


def test_pictures_are_part_of_their_page_and_ids_are_unique():
    texts = {path: path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")
             if is_ours(path) and not {"play", "_modules"} & set(path.parts)}  # fmt: skip
    assert not [path for path, text in texts.items() if "data:image/svg+xml" in text]
    ids = {path: re.findall(r"<svg[^>]* id=\"([^\"]+)\"", text) for path, text in texts.items()}
    assert not [path for path, found in ids.items() if len(found) > len(set(found))]


def leads_somewhere(path, link, pages):
    scheme, host, file, _, anchor = urlsplit(link)
    target = (path.parent / unquote(file)).resolve() if file else path
    if scheme or host:
        return True
    if target.parent.name == "play" and "/" in anchor:  # a scene, a word, a head, a way
        scene, word, *_ = anchor.split("/")
        return scene in {scene.id for scene in SCENES} and word in TOKENS and target in pages
    if target in pages and anchor:
        return unquote(anchor) in pages[target].anchors
    return target.is_file()


def is_ours(path):
    """Return whether Sphinx or we wrote a page; JupyterLite makes its links as it runs."""
    return path.relative_to(SITE).parts[0] not in ("lite", "_static")
