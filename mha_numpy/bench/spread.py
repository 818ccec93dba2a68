"""The report of a sweep: how the ratios are spread, what is behind, and all of them as dots."""

from collections.abc import Callable, Iterator

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.problems import LayerProblem, Problem, parse
from mha_numpy.bench.results import Cell, Results, in_digits, in_quartiles, in_words
from mha_numpy.look import TOKENS
from mha_numpy.show.pictures import Picture
from mha_numpy.show.pictures.charts import PX, STYLE, drawing_of
from mha_numpy.show.pictures.svg import DESK, PHONE, Drawing
from mha_numpy.tables import Table

FEW_QUERIES = 8
HIGH = {PHONE: 300, DESK: 340}  # units
LEVEL = 1.0  # of a ratio: as fast as the other


def _is_step(cell: Cell) -> bool:
    """Return whether it is a step of decoding: few queries, more keys."""
    problem = parse(cell.shape)
    return isinstance(problem, Problem) and problem.T_q <= FEW_QUERIES < problem.T_k


KINDS: dict[str, Callable[[Cell], bool]] = {
    "all": lambda cell: True,
    "fwd": lambda cell: "fwd+bwd" not in cell.case,
    "fwd+bwd": lambda cell: "fwd+bwd" in cell.case,
    "layers": lambda cell: isinstance(parse(cell.shape), LayerProblem),
    "few queries, more keys": _is_step,
    "causal": lambda cell: "causal" in cell.case,
    "padding, mask or bias": lambda cell: any(
        word in cell.case for word in ("padding", "mask", "bias")
    ),
    "float64": lambda cell: "float64" in cell.case,
}


def sweep_tables(results: Results, other: str) -> Iterator[Table]:
    """Yield how the ratios to another are spread, then what is behind."""
    cells = sorted(
        (cell for cell in results.cells if cell.other == other), key=lambda cell: cell.ratio.median
    )
    ours, label = CONTESTANTS[results.settings.ours].label, CONTESTANTS[other].label
    rows = []
    for name, belongs in KINDS.items():
        ratios = [cell.ratio.median for cell in cells if cell.agrees and belongs(cell)]
        if ratios:
            spread = np.quantile(ratios, [0, 0.1, 0.5, 0.9])
            level = f"{sum(ratio >= LEVEL for ratio in ratios)} of {len(ratios)}"
            rows.append([name, level, *(f"{number:.2f}" for number in spread)])
    columns = ["calls", "1 or more", "lowest", "a tenth below", "median", "a tenth above"]
    yield Table(f"{label}: its time / that of {ours}, in random calls", columns, rows)
    wrong = [[c.shape, c.case, in_words(c.difference), "", ""] for c in cells if not c.agrees]
    behind = [
        [cell.shape, cell.case, in_quartiles(cell.ratio), _fractions(cell), in_digits(cell.ours_ms)]
        for cell in cells
        if cell.agrees and cell.ratio.median < LEVEL
    ]
    columns = ["shape", "case", "median (quartiles)", f"parts of the peak: {ours} / {label}", "ms"]
    if wrong or behind:
        title = f"Calls in which {label} is faster"
        yield Table(title, columns, wrong + behind, frozenset(range(len(wrong))))


def _fractions(cell: Cell) -> str:
    if cell.ours_fraction is None or cell.other_fraction is None:
        return ""
    return f"{cell.ours_fraction:.1%} / {cell.other_fraction:.1%}"


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
            figure = _dots(cells, limit, f"ms that {label} takes")
            drawings.append(drawing_of(figure, title, f"{title}. {told[-1]}."))
    alt = f"Random calls on {results.machine['family']}; {'; '.join(told)}."
    title = f"Random calls, measured on {results.machine['family']}"
    up = f"Upwards: the other's time / that of {ours}. Above 1, ours is faster."
    notes = [*told, up, "A ring is forward, a disc is forward with backward."]
    return Picture(panels[PHONE], title=title, notes=notes, alt=alt, wide=panels[DESK])


@mpl.rc_context(STYLE)
def _dots(cells: list[Cell], limit: int, x_label: str) -> Figure:
    """Draw forward as rings, forward with backward as discs."""
    figure = Figure(figsize=(limit * PX, HIGH[limit] * PX))
    ax = figure.subplots()
    for filled in (False, True):
        chosen = [cell for cell in cells if ("fwd+bwd" in cell.case) == filled]
        ink = TOKENS["ink"][0]
        ax.scatter(
            [cell.other_ms for cell in chosen], [cell.ratio.median for cell in chosen], s=22,
            facecolors=ink if filled else "none", edgecolors=ink, linewidths=1,
        )  # fmt: skip
    ax.axhline(LEVEL, color=TOKENS["edge"][0], linewidth=1.2)
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: in_digits(value, 2))
    ax.xaxis.set_major_formatter(lambda value, _: in_digits(value, 1))
    ax.set_xlabel(x_label, labelpad=3)
    return figure
