"""The ratios as bars: above the line at 1 ours is faster, below it the other."""

from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.results import Cell, Results, in_digits
from mha_numpy.errors import ConfigError
from mha_numpy.look import TOKENS, tokens
from mha_numpy.show.pictures import Picture
from mha_numpy.show.pictures.charts import PX, STYLE, drawing_of

HATCHES = {"causal": "/////", "padding": ".....", "mask": "xxxxx", "step": "\\\\\\\\\\"}
FORWARD, BACKWARD = tokens()["fill-0"][0], tokens()["head-0"][0]
INK = TOKENS["ink"][0]
BAR, PANEL, MARGIN = 34 * PX, 220 * PX, 100 * PX  # in inches: a bar, a contestant, the legend


def ratio_chart(results: Results) -> Picture:
    """Draw all ratios: a panel for each contestant, a group of bars for each shape.

    Parameters
    ----------
    results : Results
        With at least one cell.

    Returns
    -------
    Picture
        Forward is pale, forward with backward dark; causal and masked cases are hatched: grey
        paper shows them too. Whiskers are quartiles. The axis is logarithmic: 2 is as far from 1 as
        1/2 is.
    """
    with mpl.rc_context(STYLE):
        figure = figure_of(results)
    alt = _alt_text(results)
    title = f"Measured on {results.machine['family']}"
    return Picture([drawing_of(figure, title, alt)], title=title, alt=alt)


def figure_of(results: Results) -> Figure:
    """Return the chart as matplotlib draws it."""
    if not results.cells:
        raise ConfigError("chart: expected a ratio to draw; nothing was compared")
    others = list(dict.fromkeys(cell.other for cell in results.cells))
    shapes = list(dict.fromkeys(cell.shape for cell in results.cells))
    cases = list(dict.fromkeys(cell.case for cell in results.cells))
    ours = CONTESTANTS[results.settings.ours].label
    width = 0.8 + len(shapes) * max(1.25, BAR * (len(cases) + 1))
    size = (max(6.5, width), MARGIN + PANEL * len(others))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(others), 1, sharex=True, squeeze=False)[:, 0]
    for ax, other in zip(panels, others, strict=True):
        _paint(ax, [cell for cell in results.cells if cell.other == other], shapes, cases)
        title = f"time of {CONTESTANTS[other].label} / time of {ours} (above 1, ours is faster)"
        ax.set_title(title, loc="left", color=INK)
    panels[-1].set_xticks(range(len(shapes)), [name.replace(" ", "\n") for name in shapes])
    panels[-1].set_xlabel("B,H[/H_kv],T_q[,T_k],d; layer B,T,D,H")
    bars: dict[str, Any] = {}
    for ax in panels:
        bars |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(bars.values(), bars, loc="outside upper left", ncols=4, alignment="left")
    return figure


def _paint(ax: Axes, cells: list[Cell], shapes: list[str], cases: list[str]) -> None:
    """Draw the bars of one contestant, from the line at 1."""
    width, place = 0.8 / len(cases), {}
    for number, shape in enumerate(shapes):
        there = [cell for cell in cells if cell.shape == shape]
        for i, cell in enumerate(there):
            place[cell] = number + width * (i - (len(there) - 1) / 2)
    for case in cases:
        found = [cell for cell in cells if cell.case == case]
        if not found:
            continue
        kind, *words = case.split()
        ratios = [cell.ratio for cell in found]
        ax.bar(
            [place[cell] for cell in found], [ratio.median - 1 for ratio in ratios],
            width, bottom=1, label=case,
            yerr=[[x.median - x.low for x in ratios], [x.high - x.median for x in ratios]],
            color=FORWARD if kind == "fwd" else BACKWARD, hatch="".join(HATCHES[w] for w in words),
            edgecolor=INK, linewidth=0.6, error_kw={"elinewidth": 0.8, "ecolor": INK},
        )  # fmt: skip
    for cell, at in place.items():
        _, low, high = cell.ratio
        is_above = cell.ratio.median >= 1
        ax.annotate(
            in_digits(cell.ratio.median, 2), (at, high if is_above else low),
            (0, 2 if is_above else -2), textcoords="offset points", ha="center",
            va="bottom" if is_above else "top", color=INK,
        )  # fmt: skip
    ax.axhline(1, color=INK, linewidth=1.2)
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
    ax.margins(y=0.2)
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.45), max(high, 2.2))


def _alt_text(results: Results) -> str:
    told = []
    others = list(dict.fromkeys(cell.other for cell in results.cells))
    for other in others:
        medians = [cell.ratio.median for cell in results.cells if cell.other == other]
        span = f"{in_digits(min(medians), 2)} to {in_digits(max(medians), 2)}"
        told.append(f"{CONTESTANTS[other].label} {span}")
    ours = CONTESTANTS[results.settings.ours].label
    return (
        f"Times of others divided by those of {ours}, on {results.machine['family']}. "
        f"Bars for each shape and case; above 1, {ours} is faster: {'; '.join(told)}."
    )
