"""What is left of a stepper where scripts are removed: a table with inline styles only."""

from collections.abc import Iterator, Sequence
from html import escape

from mha_numpy.checking.tracing import Step
from mha_numpy.look import tokens
from mha_numpy.show.pictures.blocks import Blocks, cut_step
from mha_numpy.show.pictures.panels import named_sizes
from mha_numpy.tables import CELL, RULE

COLUMNS = ("#", "step", "heads", "axes", "shape", "strides", "equation")
MAX_HEADS = 1000  # squares in the table; more would make it heavy
NOTE = "Trust this notebook to step through these arrays and to point at their cells."


def table_of(steps: Sequence[Step], sequence: int) -> str:
    """Return the steps as a table, one row each, with a coloured square for each head."""
    cut = [cut_step(step, sequence, list(steps)) for step in steps]
    is_drawn = sum(len(blocks.labels) for blocks in cut) <= MAX_HEADS
    return "".join(_parts(steps, cut, is_drawn))


def _parts(steps: Sequence[Step], cut: Sequence[Blocks], is_drawn: bool) -> Iterator[str]:
    yield '<table style="border-collapse:collapse;background:transparent">'
    yield f'<caption style="text-align:left">{NOTE}</caption>'
    yield f'<tr style="background:transparent;{RULE}">'
    for column in COLUMNS:
        yield f'<th style="{CELL}">{column}</th>'
    yield "</tr>"
    for step, blocks in zip(steps, cut, strict=True):
        squares = zip(blocks.labels, blocks.colors, strict=False) if is_drawn else ()
        cells = [
            str(step.number),
            escape(step.name),
            "".join(_square(*head) for head in squares),
            escape(" ".join(named_sizes(step))),
            _unbroken(str(step.array.shape)),
            _unbroken(str(step.array.strides)),
            escape(step.equation or step.memory),
        ]
        yield f'<tr style="background:transparent;{RULE};{CELL}">'
        for cell in cells:
            yield f'<td style="padding:2px 8px;text-align:left">{cell}</td>'
        yield "</tr>"
    yield "</table>"


def _unbroken(text: str) -> str:
    return text.replace(" ", "&nbsp;")


def _square(label: str, token: str) -> str:
    """Return a head's number over a line in its colour."""
    line = f"border-bottom:3px solid {tokens()[token][0]}"
    return f'<span style="{line};padding:0 4px;margin-right:3px">{escape(label)}</span>'
