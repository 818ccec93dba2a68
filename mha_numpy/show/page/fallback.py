"""What is left of a stepper where scripts are removed: a table with inline styles only."""

from collections.abc import Sequence
from html import escape

from mha_numpy.checking.tracing import Step
from mha_numpy.show.pictures.panels import named_sizes
from mha_numpy.tables import CELL, RULE

COLUMNS = ("#", "step", "axes", "shape", "strides", "equation")
NOTE = "Trust this notebook to step through these arrays and to point at their cells."


def table_of(steps: Sequence[Step]) -> str:
    """Return the steps as a table, one row each."""
    rows = [f'<th style="{CELL}">{column}</th>' for column in COLUMNS]
    lines = [f'<tr style="background:transparent;{RULE}">{"".join(rows)}</tr>']
    for step in steps:
        cells = [
            str(step.number),
            escape(step.name),
            escape(" ".join(named_sizes(step))),
            _unbroken(str(step.array.shape)),
            _unbroken(str(step.array.strides)),
            escape(step.equation or step.memory),
        ]
        row = "".join(f'<td style="padding:2px 8px;text-align:left">{cell}</td>' for cell in cells)
        lines.append(f'<tr style="background:transparent;{RULE};{CELL}">{row}</tr>')
    return (
        '<table style="border-collapse:collapse;background:transparent">'
        f'<caption style="text-align:left">{NOTE}</caption>{"".join(lines)}</table>'
    )


def _unbroken(text: str) -> str:
    return text.replace(" ", "&nbsp;")
