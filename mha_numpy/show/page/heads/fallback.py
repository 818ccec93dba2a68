"""What remains of a report of heads where scripts are taken out: a table with inline styles."""

from typing import Any

from mha_numpy.show.page.heads.words import PATTERNS
from mha_numpy.tables import CELL

NOTE = "Trust this notebook to look into each head. The pattern that each follows most:"


def table_of(data: dict[str, Any]) -> str:
    """Return the strongest pattern of each head on the first text: a row for each layer."""
    rows = []
    for number, scores in enumerate(data["texts"][0]["scores"]):
        cells = []
        for h in range(data["heads"][number]):
            known = {name: scores[name][h] or 0 for name in PATTERNS if name in scores}
            best = max(known, key=lambda name: known[name])
            cells.append(f'<td style="{CELL}">{PATTERNS[best][0]} {known[best]:.2f}</td>')
        rows.append(f'<tr><th style="{CELL}">layer {number}</th>{"".join(cells)}</tr>')
    return (
        '<table style="border-collapse:collapse;background:#ffffff;color:#1a1a1a">'
        f'<caption style="text-align:left;color:#1a1a1a;background:#ffffff">{NOTE}</caption>'
        f"{''.join(rows)}</table>"
    )
