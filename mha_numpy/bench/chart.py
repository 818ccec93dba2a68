"""The ratios as bars, those of a sweep as dots: above 1 ours is faster, below it the other."""

import math

import numpy as np

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.results import Cell, Results, in_digits
from mha_numpy.bench.spread import LEVEL
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures import Picture
from mha_numpy.show.pictures.dots import dots
from mha_numpy.show.pictures.svg import DESK, MARGIN, PHONE, Drawing, shortened, wrapped

# units: where bars begin and end, a bar's pitch and height, a shape's name, between shapes
LEFT, RIGHT, PITCH, HIGH, NAME, GAP = 136, PHONE - 56, 19, 11, 19, 8


def ratio_chart(results: Results) -> Picture:
    """Draw all ratios: a panel for each contestant, a group of bars for each shape.

    Parameters
    ----------
    results : Results
        With at least one cell.

    Returns
    -------
    Picture
        A bar begins at 1: to the right ours is faster, to the left the other. Forward is pale,
        forward with backward strong. Whiskers are quartiles. The axis is logarithmic: 2 is as far
        from 1 as 1/2 is.
    """
    if not results.cells:
        raise ConfigError("chart: expected a ratio to draw; nothing was compared")
    others = list(dict.fromkeys(cell.other for cell in results.cells))
    ours = CONTESTANTS[results.settings.ours].label
    panels = [
        _draw([cell for cell in results.cells if cell.other == other], ours) for other in others
    ]
    title = f"Measured on {results.machine['family']}"
    notes = ["Shapes are B,H[/H_kv],T_q[,T_k],d; of a layer B,T,D,H."]
    return Picture(panels, title=title, notes=notes, alt=_alt_text(results, others))


def _draw(cells: list[Cell], ours: str) -> Drawing:
    """Draw the bars of one contestant, from the line at 1."""
    name = CONTESTANTS[cells[0].other].label
    title = f"Time of {name} / time of {ours}: above 1, ours is faster"
    drawn = Drawing(title, f"{title}. {_span(cells)}.")
    y = MARGIN + 4.0
    for line in wrapped(title, PHONE - 2 * MARGIN, "v"):
        drawn.text(MARGIN, y + 10, line, "v")
        y += NAME
    lowest, highest = (math.log2(pick([*ends, 1.0])) for pick, ends in (
        (min, [cell.ratio.low for cell in cells]), (max, [cell.ratio.high for cell in cells])
    ))  # fmt: skip

    def place(ratio: float) -> float:
        share = (math.log2(ratio) - lowest) / ((highest - lowest) or 1.0)
        return LEFT + share * (RIGHT - LEFT)

    for shape in dict.fromkeys(cell.shape for cell in cells):
        y += GAP
        drawn.text(MARGIN, y + 12, shortened(shape, PHONE - 2 * MARGIN, "sh"), "sh i")
        y += NAME
        top = y
        for cell in (cell for cell in cells if cell.shape == shape):
            _draw_bar(drawn, cell, y, [place(x) for x in (1.0, *cell.ratio)])
            y += PITCH
        line = f'style="stroke:{drawn.color("edge")}" d="M{place(1):.1f} {top:g}V{y:g}"'
        drawn.add(f"<path {line}/>", PHONE - MARGIN, y)
    return drawn


def _draw_bar(drawn: Drawing, cell: Cell, y: float, places: list[float]) -> None:
    start, end, low, high = places
    drawn.text(LEFT - 8, y + 12, cell.case, "s", align="end")
    color = "plain" if "bwd" in cell.case or "step" in cell.case else "fill-x"
    drawn.box(min(start, end), y + 2, abs(end - start), HIGH, fill=color, kind="ratio")
    ink = f"stroke:{drawn.color('ink')};stroke-width:1.2"
    drawn.add(f'<path style="{ink}" d="M{low:.1f} {y + 2 + HIGH / 2:g}H{high:.1f}"/>')
    drawn.text(max(start, high) + 5, y + 12, in_digits(cell.ratio.median, 2), "v s3")


def _span(cells: list[Cell]) -> str:
    medians = [cell.ratio.median for cell in cells]
    name = CONTESTANTS[cells[0].other].label
    return f"{name} {in_digits(min(medians), 2)} to {in_digits(max(medians), 2)}"


def _alt_text(results: Results, others: list[str]) -> str:
    told = [_span([cell for cell in results.cells if cell.other == other]) for other in others]
    ours = CONTESTANTS[results.settings.ours].label
    return (
        f"Times of others divided by those of {ours}, on {results.machine['family']}. "
        f"Bars for each shape and case; above 1, {ours} is faster: {'; '.join(told)}."
    )


def sweep_chart(results: Results) -> Picture:
    """Draw each call as a dot over the time that the other takes; below the line it is faster.

    Parameters
    ----------
    results : Results
        Of a sweep, with at least one cell whose results agree.

    Returns
    -------
    Picture
        A panel for each contestant; both axes are logarithmic.
    """
    others = list(dict.fromkeys(cell.other for cell in results.cells if cell.agrees))
    ours = CONTESTANTS[results.settings.ours].label
    panels: dict[int, list[Drawing]] = {PHONE: [], DESK: []}
    told = []
    for other in others:
        cells = [cell for cell in results.cells if cell.other == other and cell.agrees]
        label = CONTESTANTS[other].label
        title = f"Time of {label} / time of {ours}: above 1, ours is faster"
        ratios = [cell.ratio.median for cell in cells]
        level = sum(ratio >= LEVEL for ratio in ratios)
        told.append(
            f"{label}: {level} of {len(cells)} calls at 1 or more, median "
            f"{in_digits(float(np.median(ratios)), 2)}, lowest {in_digits(min(ratios), 2)}"
        )
        for limit, drawings in panels.items():
            points = [(cell.other_ms, cell.ratio.median, "fwd+bwd" in cell.case) for cell in cells]
            desc = f"{title}. {told[-1]}."
            x_label = f"ms that {label} takes"
            drawings.append(dots(points, limit, LEVEL, x_label=x_label, title=title, desc=desc))
    alt = f"Random calls on {results.machine['family']}; {'; '.join(told)}."
    title = f"Random calls, measured on {results.machine['family']}"
    up = f"Upwards: the other's time / that of {ours}. Above 1, ours is faster."
    notes = [*told, up, "A ring is forward, a disc is forward with backward."]
    return Picture(panels[PHONE], title=title, notes=notes, alt=alt, wide=panels[DESK])
