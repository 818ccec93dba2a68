"""Rings and discs on two logarithmic axes, with a line at a level."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from mha_numpy.look import TOKENS
from mha_numpy.show.pictures.charts import PX, STYLE, drawing_of
from mha_numpy.show.pictures.svg import DESK, PHONE, Drawing

HIGH = {PHONE: 300, DESK: 340}  # units


@mpl.rc_context(STYLE)
def dots(
    points: Sequence[tuple[float, float, bool]],
    limit: int,
    level: float,
    *,
    x_label: str,
    title: str,
    desc: str,
) -> Drawing:
    """Draw points (x, y, whether it is a disc) within a width of `limit`, PHONE or DESK."""
    figure = Figure(figsize=(limit * PX, HIGH[limit] * PX))
    ax = figure.subplots()
    ink = TOKENS["ink"][0]
    for is_disc in (False, True):
        chosen = [(x, y) for x, y, kind in points if kind == is_disc]
        face = ink if is_disc else "none"
        xs, ys = [x for x, _ in chosen], [y for _, y in chosen]
        ax.scatter(xs, ys, s=22, facecolors=face, edgecolors=ink, linewidths=1)
    ax.axhline(level, color=TOKENS["edge"][0], linewidth=1.2)
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel(x_label, labelpad=3)
    return drawing_of(figure, title, desc)
