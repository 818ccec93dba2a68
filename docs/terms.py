"""Terms of the glossary link to it, wherever a page names them, and show what they mean.

Names in code letters, such as `scores`, link each time. Words of prose do so where they first stand
in a page, and only those of two parts, such as "layer norm": a row, or a step, is an everyday word.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "glossary"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both steps: rows become targets, then names become links."""
    app.connect("doctree-read", _collect)
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": False, "parallel_write_safe": True}


def _collect(app: Sphinx, page: nodes.document) -> None:
    """Give each row of the glossary's tables an anchor for each term in its first cell."""
    if app.env.docname != GLOSSARY:
        return
    app.env.terms = terms = {}
    for row in page.findall(nodes.row):
        if isinstance(row.parent, nodes.thead):
            continue
        names, *others = (cell.astext() for cell in row)
        meaning = others[1] if len(others) == 3 else others[0]  # after the shape
        for term in re.split(r", (?![^()]*\))", names):
            if term in terms:  # as bias: of a norm, or of the scores
                terms[term] = (terms[term][0], f"{terms[term][1]}; or: {meaning}")
            else:
                terms[term] = (f"term-{nodes.make_id(term)}", meaning)
                row["ids"].append(terms[term][0])


def _link(app: Sphinx, page: nodes.document, docname: str) -> None:
    """Make links of the names that a page has, but for the glossary's own."""
    if docname == GLOSSARY or docname.startswith("_"):
        return
    terms = app.env.terms
    to = app.builder.get_relative_uri(docname, GLOSSARY)
    for code in list(page.findall(nodes.literal)):
        name = code.astext()
        if name in terms and _may_link(code):
            code.replace_self(_reference(to, *terms[name], code.deepcopy()))
        elif re.fullmatch(r"d_\w+", name) and _may_link(code):
            meaning = f"the gradient of the loss with respect to {name[2:]}"
            code.replace_self(_reference(to, terms["d_<name>"][0], meaning, code.deepcopy()))
    words = {term for term in terms if re.fullmatch(r"[a-z]+[- ][a-z -]+", term)}
    longest_first = "|".join(sorted(words, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])({longest_first})(?![\w/-])")
    for text in list(page.findall(nodes.Text)):
        found = pattern.search(text)
        is_code = isinstance(text.parent, nodes.literal)
        if not found or found[0] not in words or is_code or not _may_link(text):
            continue
        words.remove(found[0])
        before, after = text[: found.start()], text[found.end() :]
        link = _reference(to, *terms[found[0]], nodes.Text(found[0]))
        text.parent.replace(text, [nodes.Text(before), link, nodes.Text(after)])


def _may_link(node: nodes.Node) -> bool:
    """Return whether a node is in running text; a table may have the names of others.

    The choices of a prediction become buttons, in which there can be no link.
    """
    others = (nodes.reference, nodes.title, nodes.FixedTextElement, nodes.raw, nodes.table)
    while node.parent is not None:
        node = node.parent
        is_list = isinstance(node, nodes.bullet_list)
        is_choice = is_list and isinstance(node.parent, nodes.block_quote)
        if isinstance(node, others) or is_choice:
            return False
        if node.__class__.__name__.startswith("desc_") and "content" not in type(node).__name__:
            return False
    return True


def _reference(page: str, anchor: str, meaning: str, child: nodes.Node) -> nodes.reference:
    """Return a link to a row of the glossary, which shows what the row says."""
    uri = f"{page}#{anchor}"
    return nodes.reference(
        "", "", child, refuri=uri, internal=True, reftitle=meaning, classes=["term"]
    )
