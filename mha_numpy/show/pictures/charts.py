"""matplotlib in the look of the pictures: names for colours, text as text, sized for the column."""

import re
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from mha_numpy.look import PALETTE, TOKENS, tokens
from mha_numpy.show.pictures.svg import MARGIN, Drawing

PX = 1 / 96  # inches; an SVG of matplotlib has 72 units to the inch: 9.75 points are 13 px
TEXT = 13 * 0.75  # in points
EDGE = 14  # units: beside a plot
_INK, _SOFT, _EDGE, _LINE = (TOKENS[name][0] for name in ("ink", "soft", "edge", "line"))
STYLE: dict[Any, Any] = {
    "figure.dpi": 96, "savefig.transparent": True, "svg.fonttype": "none",
    "svg.hashsalt": "mha_numpy", "font.family": "DejaVu Sans", "font.size": TEXT,
    "figure.titlesize": TEXT, "figure.titleweight": "normal", "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": EDGE * PX, "figure.constrained_layout.h_pad": 7 * PX,
    "axes.labelsize": TEXT, "xtick.labelsize": TEXT, "ytick.labelsize": TEXT,
    "lines.linewidth": 2, "lines.markeredgecolor": TOKENS["card"][0], "lines.markeredgewidth": 0.8,
    "axes.prop_cycle": cycler(
        color=PALETTE, marker=[*"os^DvPX*"], markersize=(5.5, 5.2, 6, 5, 6, 7.5, 7, 10),
        linestyle=["-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 3)),
                   (0, (3, 1, 1, 1, 1, 1)), (0, (2, 1)), (0, (8, 2, 2, 2, 2, 2))],
    ),
    "text.color": _INK, "axes.labelcolor": _SOFT, "xtick.color": _SOFT, "ytick.color": _SOFT,
    "axes.edgecolor": _EDGE, "axes.grid": True, "axes.grid.axis": "y", "grid.color": _LINE,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "xtick.major.size": 3, "ytick.major.size": 0,
    "text.parse_math": False, "axes.formatter.useoffset": False,
}  # fmt: skip


def drawing_of(figure: Figure, title: str, desc: str) -> Drawing:
    """Return a figure as a drawing: each colour of the look by its name, and no other.

    Examples
    --------
    >>> figure = Figure(figsize=(1, 1))
    >>> _ = figure.text(0.1, 0.5, "a line", color=TOKENS["ink"][0])
    >>> "var(--m-ink)" in drawing_of(figure, "One line", "A line.").svg()
    True
    """
    file = StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawn = Drawing(title, desc)
    text = re.sub(
        r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", file.getvalue(), flags=re.S
    )
    text = re.sub(r"\s+", " ", text[text.index("<svg") :])
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None
    body = body[: body.rindex("</svg>")].replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', r"\1ID-", body)
    body = re.sub(r"font: (\w+ )?([\d.]+)px [^;\"]*", _font, body)
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    body = re.sub(r"#[0-9a-fA-F]{6}\b", lambda found: drawn.color(_name_of(found[0])), body)
    width, height = (n / PX for n in figure.get_size_inches())
    drawn.add(
        f'<svg viewBox="{box[1]}" width="{width:.0f}" height="{height:.0f}" overflow="visible">'
        f'<g style="stroke-linejoin:round">{body}</g></svg>',
        width - MARGIN, height - MARGIN,
    )  # fmt: skip
    return drawn


def _font(found: re.Match[str]) -> str:
    """Return size and weight: the family is that of all pictures."""
    weight = f"; font-weight: {found[1].strip()}" if found[1] else ""
    return f"font-size: {found[2]}px{weight}"


def _name_of(color: str) -> str:
    """Return the token of a colour, or raise a ValueError."""
    named = {light.lower(): name for name, (light, _) in reversed(tokens().items())}
    if color.lower() not in named:
        raise ValueError(f"a picture's colours are those of mha_numpy.look; got {color}")
    return named[color.lower()]
