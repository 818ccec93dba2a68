"""Pairs of numbers as arrows on circles: what a rotation turns, and by how much."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.look import PALETTE
from mha_numpy.show.pictures.colors import GREY, fade
from mha_numpy.show.pictures.labels import (
    check_labels,
    check_text,
    named_arrays,
    short_number,
    widest,
    write,
    write_title,
)
from mha_numpy.show.pictures.layout import NOTE_SIZE, Box, flow, start_page
from mha_numpy.show.pictures.save import Picture

SIDE, ROOM, HEAD = 1.5, 0.28, 0.35  # of a panel; for names at the arrows' tips; above it; in inches
PALEST = 0.3  # share of full colour that the first arrow has
SIDES = {-1: "right", 0: "center", 1: "left"}  # where a name's end is at its tip, by x
BESIDE, APART = 0.16, 0.19  # from a tip to its name; between names; in radii


def arrows(
    panels: Mapping[str, Array],
    *,
    title: str,
    labels: Sequence[str] | None = None,
    note: str = "",
) -> Picture:
    """Draw each row of an (n, 2) array as an arrow from the middle of a circle.

    The arrows of a panel darken from the first to the last, so that one sees which way they turn.

    Parameters
    ----------
    panels : mapping of name to (n, 2) array
        One circle each; its radius is the longest arrow of all panels.
    title : str
        What is seen.
    labels : sequence of n strings, optional
        Names of the arrows, such as positions; default 0, 1, 2, ...
    note : str
        A sentence under the title.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, with the angle of every arrow.

    Examples
    --------
    >>> quarter_turns = np.array([[1.0, 0], [0, 1], [-1, 0]])
    >>> arrows({"pair 0": quarter_turns}, title="Turned by position").get_label()
    'Turned by position. pair 0: 0 at 0°, 1 at 90°, 2 at 180°.'
    """
    rows = named_arrays("panels", panels, "iuf")
    for name, array in rows.items():
        if array.ndim != 2 or array.shape[1] != 2 or not len(array):
            raise ShapeError(f"panels[{name!r}]: expected (n, 2) with n >= 1; got {array.shape}")
        if not np.isfinite(array).all():
            raise ConfigError(f"panels[{name!r}]: expected finite numbers; got NaN or inf")
    most = max(map(len, rows.values()))
    names = check_labels("labels", range(most) if labels is None else labels)
    if len(names) != most:
        raise ConfigError(f"labels: expected {most}, one for each arrow; got {len(names)}")
    radius = max(float(np.hypot(*array.T).max()) for array in rows.values()) or 1.0
    room = max(ROOM, widest(names, NOTE_SIZE))
    box = Box(SIDE, SIDE, left=room, top=HEAD, right=room)
    title, note = check_text("title", title), check_text("note", note)
    alt = f"{title}. {'; '.join(_in_words(n, a, names) for n, a in rows.items())}."
    picture, axes = start_page(flow([box] * len(rows)), title, [note], alt=alt)
    for ax, (name, array) in zip(axes, rows.items(), strict=True):
        _paint(ax, name, array / radius, names)
    return picture


def _paint(ax: Axes, name: str, array: Array, names: Sequence[str]) -> None:
    """Draw one circle with its arrows; the longest arrow of all panels has length 1."""
    ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    ax.set_axis_off()
    ax.set_label(name)
    write_title(ax, name, 9.5, 14, loc="center", fontweight="normal")
    ax.add_patch(Circle((0, 0), 1.0, fill=False, edgecolor=GREY, linewidth=0.8))
    for number, (x, y) in enumerate(array):
        share = PALEST + (1 - PALEST) * (number + 1) / len(array)
        color = fade(PALETTE[0])(share)
        ax.annotate(
            "", (x, y), (0, 0), annotation_clip=False,
            arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.6,
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    for number, (x, y) in _tips(array).items():
        write(ax, x, y, names[number], NOTE_SIZE, f"{SIDES[round(x)]} center")


def _tips(array: Array) -> dict[int, Array]:
    """Return where the names stand: of the first arrow, the last, and those with room between."""
    outward = array / np.maximum(np.hypot(*array.T), 1e-12)[:, None]
    places = array + BESIDE * outward
    found: dict[int, Array] = {}
    for number in (0, len(array) - 1, *range(1, len(array) - 1)):
        if all(np.hypot(*(places[number] - other)) >= APART for other in found.values()):
            found[number] = places[number]
    return found


def _in_words(name: str, array: Array, names: Sequence[str]) -> str:
    angles = np.degrees(np.arctan2(array[:, 1], array[:, 0]))
    told = ", ".join(
        f"{label} at {short_number(angle)}°" for label, angle in zip(names, angles, strict=False)
    )
    return f"{name}: {told}"
