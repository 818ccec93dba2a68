"""Predict first: what answers a question is hidden until the reader has committed.

A question is a quote that begins with **Predict first.** What follows it, up to the end of the
"Answer" below, or else up to the next question or heading, is its answer: of cells the output, and
all text. Cells right after an Answer that comes before any cell belong to it as well.

If the quote has a list, its lines are buttons to choose from. A comment in the quote, which no
notebook shows, may have the right answer: ``<!-- answer: the last -->`` for a line of the list, or
``<!-- answer: 6.5 within 0.2 -->`` for a number (and ``within 2 %`` for one in percent). Without
both, readers write what they expect.

The build only marks the parts; ``_static/site.js`` hides them, so that without it all can be seen.
"""

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SIGN = "Predict first."
ANSWER = re.compile(r"<!--\s*answer:\s*(.+?)(?:\s+within\s+([\d.]+)\s*(%?))?\s*-->")
END = "</details>"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the step."""
    app.connect("doctree-read", lambda app, page: mark_questions(page))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def mark_questions(page: nodes.document) -> None:
    """Put each question of a page, and its answer, into a frame."""
    for quote in list(page.findall(nodes.block_quote)):
        if quote.astext().startswith(SIGN):
            _frame(quote)


def _frame(quote: nodes.block_quote) -> None:
    parent, place = quote.parent, quote.parent.index(quote)
    answer: list[nodes.Node] = []
    is_told = False
    for node in parent[place + 1 :]:
        is_cell = "cell" in node.get("classes", ())
        if isinstance(node, nodes.section) or node.astext().startswith(SIGN):
            break
        if is_told and not is_cell:
            break
        answer.append(node)
        if isinstance(node, nodes.raw) and END in node.astext():
            is_told = True
            if any("cell" in one.get("classes", ()) for one in answer):
                break
    attributes = ""
    for comment in list(quote.findall(lambda node: isinstance(node, (nodes.raw, nodes.comment)))):
        if found := ANSWER.search(comment.astext()):
            values = zip(("answer", "within", "unit"), found.groups(), strict=True)
            attributes = "".join(f' data-{name}="{html.escape(v)}"' for name, v in values if v)
            comment.parent.remove(comment)
    parts = [
        _tag(f'<div class="predict"{attributes}>'),
        quote,
        _tag('<div class="predict-answer">'),
    ]
    parent[place : place + 1 + len(answer)] = [*parts, *answer, _tag("</div></div>")]


def _tag(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")
