"""What is left of a stepper where scripts are removed: a table with inline styles only."""

from collections.abc import Iterator, Sequence
from html import escape

from matplotlib.colors import to_rgb

from mha_numpy.checking.tracing import Step
from mha_numpy.show.pictures.blocks import Blocks, cut_step
from mha_numpy.show.pictures.colors import text_on
from mha_numpy.show.pictures.panels import named_sizes
from mha_numpy.tables import CELL

COLUMNS = ("#", "step", "heads", "axes", "shape", "strides", "equation")
MAX_HEADS = 1000  # squares in the table; more would make it heavy
NOTE = "Trust this notebook to step through these arrays and to point at their cells."


def table_of(steps: Sequence[Step], sequence: int) -> str:
    """Return the steps as a table, one row each, with a coloured square for each head."""
    cut = [cut_step(step, sequence, list(steps)) for step in steps]
    is_drawn = sum(len(blocks.labels) for blocks in cut) <= MAX_HEADS
    return "".join(_parts(steps, cut, is_drawn))


def _parts(steps: Sequence[Step], cut: Sequence[Blocks], is_drawn: bool) -> Iterator[str]:
    yield f'<table style="border-collapse:collapse"><caption style="text-align:left">{NOTE}'
    yield "</caption><tr>"
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
        yield f'<tr style="{CELL}">'
        for cell in cells:
            yield f'<td style="padding:2px 8px;text-align:left">{cell}</td>'
        yield "</tr>"
    yield "</table>"


def _unbroken(text: str) -> str:
    return text.replace(" ", "&nbsp;")


def _square(label: str, color: str) -> str:
    """Return a head's number in its colour."""
    ink = text_on(to_rgb(color))
    return f'<span style="background:{color};color:{ink};padding:0 4px">{escape(label)}</span>'
