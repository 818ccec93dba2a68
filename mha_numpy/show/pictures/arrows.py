"""Pairs of numbers as arrows on circles: what a rotation turns, and by how much."""

from collections.abc import Mapping, Sequence

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.labels import check_labels, check_text, named_arrays, short_number
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, PHONE, Drawing, shortened, width_of

RADIUS = 50  # units: of a circle
PALEST = 0.35  # share of full colour that the first arrow has
SIDES = {-1: "end", 0: "middle", 1: "start"}  # where a name begins at its tip, by x
BESIDE, APART = 0.2, 0.28  # from a tip to its name; between names; in radii


def arrows(
    panels: Mapping[str, Array], *, title: str, labels: Sequence[str] | None = None
) -> Picture:
    """Draw each row of an (n, 2) array as an arrow from the middle of a circle.

    The arrows of a panel get stronger from the first to the last, which shows how they turn.

    Parameters
    ----------
    panels : mapping of name to (n, 2) array
        One circle each; its radius is the longest arrow of all panels.
    title : str
        What is seen.
    labels : sequence of n strings, optional
        Names of the arrows, such as positions; default 0, 1, 2, ...

    Returns
    -------
    Picture
        One panel for each circle; its ``alt`` says the angle of every arrow.

    Examples
    --------
    >>> quarter_turns = np.array([[1.0, 0], [0, 1], [-1, 0]])
    >>> arrows({"pair 0": quarter_turns}, title="Turned by position").alt
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
    title = check_text("title", title)
    told = {name: _in_words(name, array, names) for name, array in rows.items()}
    alt = f"{title}. {'; '.join(told.values())}."
    drawn = [_draw(name, array / radius, names, told[name]) for name, array in rows.items()]
    return Picture(drawn, title=title, alt=alt)


def _draw(name: str, array: Array, names: Sequence[str], told: str) -> Drawing:
    """Draw one circle with its arrows; the longest arrow of all panels has length 1."""
    drawn = Drawing(name, f"{told}.")
    room = max(16.0, *map(width_of, names))
    x0, y0 = MARGIN + room + RADIUS, MARGIN + 44 + RADIUS
    drawn.text(MARGIN, MARGIN + 13, shortened(name, PHONE - 2 * MARGIN, "t"), "t")
    edge, blue = drawn.color("line"), drawn.color("head-0")
    drawn.add(
        f'<circle style="fill:none;stroke:{edge};stroke-width:1.5" cx="{x0:g}" cy="{y0:g}" '
        f'r="{RADIUS}"/>',
        x0 + RADIUS + room, y0 + RADIUS + 20,
    )  # fmt: skip
    for number, (x, y) in enumerate((array * (RADIUS, -RADIUS)).tolist()):
        share = PALEST + (1 - PALEST) * (number + 1) / len(array)
        long = float(np.hypot(x, y)) or 1.0
        a, b = x / long, y / long  # along the arrow
        stem, wing = max(0.0, long - 9), 4.5
        drawn.add(
            f'<g class="arrow" opacity="{share:.2f}"><path style="stroke:{blue};stroke-width:2.2" '
            f'd="M{x0:g} {y0:g}l{a * stem:.1f} {b * stem:.1f}"/><path style="fill:{blue}" '
            f'd="M{x0 + x:.1f} {y0 + y:.1f}l{-9 * a - wing * b:.1f} {-9 * b + wing * a:.1f}'
            f'l{2 * wing * b:.1f} {-2 * wing * a:.1f}z"/></g>'
        )
    for number, (x, y) in _tips(array).items():
        at = x0 + RADIUS * x, y0 - RADIUS * y + 5
        drawn.text(*at, names[number], "s i", align=SIDES[round(max(-1.0, min(1.0, 1.2 * x)))])
    return drawn


def _tips(array: Array) -> dict[int, Array]:
    """Return the names' places: of the first arrow, the last, and those with room between."""
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
