"""Formulas as MathML, which browsers draw by themselves: no script, nothing from elsewhere."""

import re
from typing import Any, NoReturn

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

FUNCTION = r"(?<!<msup>)(?<!<msub>)(?<!<munder>)(<mi>(?:cos|exp|log|max|sin|tanh)</mi>)"
SPACE = '<mspace width="0.17em"/>'
INFINITY = "&#x0221E;"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: nodes.math) -> NoReturn:
    """Write a formula that stands in a line."""
    self.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> NoReturn:
    """Write a formula that stands by itself."""
    self.body.append(f'<div class="math">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _mathml(formula: str, display: str) -> str:
    """Return a formula; the converter leaves backslashes in text, and functions without space."""
    formula = re.sub(r"\\text\{[^}]*\}", lambda text: text[0].replace(r"\_", "_"), formula)
    found = convert(formula, display=display)
    found = re.sub(FUNCTION, rf"\1{SPACE}", re.sub(rf"(?<=</mi>){FUNCTION}", rf"{SPACE}\1", found))
    return found.replace(f"<mo>{INFINITY}</mo>", f"<mi>{INFINITY}</mi>")
