"""Lines over a number, each named at its end."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform

from mha_numpy.checks import check_flag
from mha_numpy.draw.colors import GREY, INK, MUTED, PALETTE, head_color
from mha_numpy.draw.labels import (
    MARGIN,
    as_numbers,
    check_text,
    content_at,
    named_arrays,
    printable,
    short_number,
    start_picture,
    widest,
    wrap_heading,
)
from mha_numpy.draw.save import Picture
from mha_numpy.draw.ticks import PITCH, TEXT_SIZE, Ticks, choose_ticks
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError

MARKERS = dict(zip("os^DvPX*", (5.5, 5.2, 6, 5, 6, 7.5, 7, 10), strict=True))  # with sizes
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 3)), (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 1)), (0, (8, 2, 2, 2, 2, 2)),
)  # fmt: skip
GRID = "#E6E6E6"
LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
MAX_MARKERS = 20  # on a line
SIZE = 9  # of names, in points

# lengths in inches
WIDTH, PLOT = 7.6, 3.1  # of a chart; height of the plot
NAMES = 2.1  # the longest name that stands at its line's end, or else all stand in a legend
BESIDE = 0.42  # from the plot to a name, with its marker
UNIT, TICK_ROOM, AXIS_NAME = 0.24, 0.2, 0.22


def line_chart(
    x: Sequence[float] | Array,
    lines: Mapping[str, Array],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Picture:
    """Draw up to eight lines over `x`, each named at its right end.

    Parameters
    ----------
    x : (N,) numbers
        Increasing.
    lines : mapping of name to (N,) numbers
        NaN leaves a gap.
    title, x_label, y_label : str
        What is seen; what lies across and what upward.
    log_x, log_y : bool
        A logarithmic axis: to base 2 if all its numbers are powers of two, or else to base 10.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, with each line's lowest and highest
        value.

    Raises
    ------
    ShapeError, DTypeError
        `x` or a line is not a row of N >= 1 numbers.
    ConfigError
        `x` does not increase, there is no line or more than eight, or a number is infinite or has
        no logarithm.

    Notes
    -----
    Each line has its own colour, marker and dash; where names are too long to stand at the lines'
    ends, they stand in a legend.

    Examples
    --------
    >>> d_k = [1, 4, 16]
    >>> lines = {"scaled": np.array([2.0, 2.0, 2.0]), "plain": np.array([2.0, 1.5, 0.5])}
    >>> picture = line_chart(d_k, lines, title="Entropy", x_label="d_k", y_label="nats", log_x=True)
    >>> [line.get_label() for line in picture.axes[0].lines]
    ['scaled', 'plain']
    >>> [label.get_text() for label in picture.axes[0].get_xticklabels()]
    ['1', '2', '4', '8', '16']
    """
    log_x, log_y = check_flag("log_x", log_x), check_flag("log_y", log_y)
    x_label, y_label = check_text("x_label", x_label), check_text("y_label", y_label)
    title = check_text("title", title)
    across, values = _check_lines(x, lines, is_log_x=log_x, is_log_y=log_y)
    names = [printable(name, LONGEST_NAME) for name in values]
    heading = wrap_heading(title, WIDTH - 2 * MARGIN)
    empty = [np.isnan(line).all() for line in values.values()]
    notes = [f"No values: {name}." for name, is_empty in zip(names, empty, strict=True) if is_empty]
    is_direct = widest(names, SIZE) <= NAMES
    right = BESIDE + widest(names, SIZE) if is_direct else 0.1

    numbers = np.concatenate([line[~np.isnan(line)] for line in values.values()])
    y_axis = choose_ticks(numbers, PLOT, is_log=log_y, is_upward=True)
    left = MARGIN + widest(y_axis.texts, TEXT_SIZE) + 0.1
    plot = WIDTH - left - right - MARGIN
    x_axis = choose_ticks(across, plot, is_log=log_x, is_upward=False)
    top = content_at(heading, notes)
    legend = [] if is_direct else names
    columns = max(1, int(plot / (0.55 + widest(names, SIZE))))
    plot_at = top + 0.2 * math.ceil(len(legend) / columns) + 0.1 * bool(legend) + UNIT
    height = plot_at + PLOT + TICK_ROOM + AXIS_NAME + MARGIN - 0.1

    picture, inches = start_picture(WIDTH, height, heading, notes)
    picture.set_label(_lines_in_words(title, x_label, y_label, across, values))
    ax = picture.add_axes(
        (left / WIDTH, 1 - (plot_at + PLOT) / height, plot / WIDTH, PLOT / height), label="plot"
    )
    _style(ax, x_axis, y_axis, is_log_x=log_x, is_log_y=log_y)
    small: dict[str, Any] = {"transform": inches, "fontsize": TEXT_SIZE, "color": MUTED}
    picture.text(MARGIN, plot_at - 0.1, y_label, **small, parse_math=False)
    picture.text(
        left + plot, plot_at + PLOT + TICK_ROOM + 0.06, x_label, ha="right",
        va="top", **small, parse_math=False,
    )  # fmt: skip
    for i, (name, line) in enumerate(zip(names, values.values(), strict=True)):
        (drawn,) = ax.plot(across, line, **_look(i), label=name, clip_on=False)
        drawn.set_markevery(_marked(line).tolist())
    if is_direct:
        _name_ends(picture, inches, left + plot)
    for i, name in enumerate(legend):
        row, column = divmod(i, columns)
        at = left + column * plot / columns, top + 0.2 * row + 0.1
        _entry(picture, inches, i, name, [(at[0], at[1]), (at[0] + 0.4, at[1])], at[0] + 0.2)
    return picture


def _check_lines(
    x: Sequence[float] | Array, lines: Mapping[str, Array], *, is_log_x: bool, is_log_y: bool
) -> tuple[Array, dict[str, Array]]:
    """Return x and the lines as float64, or raise an error that names one of them."""
    across, values = as_numbers("x", x), named_arrays("lines", lines, "iuf")
    if across.ndim != 1 or across.size == 0:
        raise ShapeError(f"x: expected (N,) with N >= 1; got {across.shape}")
    if len(values) > len(PALETTE):
        raise ConfigError(
            f"lines: expected at most {len(PALETTE)}; got {len(values)}; draw two charts"
        )
    if not (np.isfinite(across).all() and (across[1:] > across[:-1]).all()):
        raise ConfigError("x: expected finite numbers that increase; sort x and the lines with it")
    for name, line in values.items():
        if line.shape != across.shape:
            raise ShapeError(
                f"lines[{name!r}]: expected (N={across.size},) to match x; got {line.shape}"
            )
    checked = {"x": (across, "log_x", is_log_x)} | {
        f"lines[{name!r}]": (line, "log_y", is_log_y) for name, line in values.items()
    }
    for name, (numbers, option, is_log) in checked.items():
        if np.isinf(numbers).any() or (np.abs(numbers) > LARGEST).any():
            raise ConfigError(
                f"{name}: expected numbers up to {LARGEST:g}, NaN for a gap; "
                f"got {numbers[np.nanargmax(np.abs(numbers))]:g}"
            )
        if is_log and (numbers <= 0).any():
            raise ConfigError(
                f"{name}: expected numbers > 0 with {option}=True; got {np.nanmin(numbers):g}"
            )
    return across, values


def _style(ax: Axes, x_axis: Ticks, y_axis: Ticks, *, is_log_x: bool, is_log_y: bool) -> None:
    """Set scales and limits; draw ticks, a light grid, and no frame."""
    ax.set_xscale("log" if is_log_x else "linear")
    ax.set_yscale("log" if is_log_y else "linear")
    ax.set(xlim=(x_axis.low, x_axis.high), ylim=(y_axis.low, y_axis.high))
    text: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": INK, "parse_math": False}
    ax.set_xticks(x_axis.ticks, x_axis.texts, **text)
    ax.set_yticks(y_axis.ticks, y_axis.texts, **text)
    ax.set_xticks([], minor=True)
    ax.set_yticks([], minor=True)
    ax.tick_params(length=0, pad=5)
    ax.grid(color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["left", "top", "right"]].set_visible(False)
    ax.spines["bottom"].set(color=GREY, linewidth=0.8)


def _look(i: int) -> dict[str, Any]:
    """Return colour, marker and dash of line i."""
    marker, size = list(MARKERS.items())[i]
    return {
        "color": PALETTE[i], "marker": marker, "linestyle": DASHES[i], "linewidth": 1.6,
        "markersize": size, "markeredgecolor": "white", "markeredgewidth": 0.6,
    }  # fmt: skip


def _marked(line: Array) -> Array:
    """Return which points have a marker: every second, third, ... and those that stand alone."""
    padded = np.isnan(np.pad(line, 1, constant_values=np.nan))
    alone = ~padded[1:-1] & padded[:-2] & padded[2:]
    every = np.arange(line.size) % math.ceil(line.size / MAX_MARKERS) == 0
    return np.flatnonzero(alone | every)


def _name_ends(picture: Picture, inches: Transform, right: float) -> None:
    """Write each line's name at the height of its last value, moved apart where they meet."""
    (ax,) = picture.axes
    ends = {}
    for i, line in enumerate(ax.lines):
        points = np.asarray(line.get_xydata())
        known = points[~np.isnan(points[:, 1])]
        if known.size:
            ends[i] = inches.inverted().transform(ax.transData.transform(known[-1]))
    order = sorted(ends, key=lambda i: (ends[i][1], i))
    low = picture.get_figheight() * (1 - ax.get_position().y1)
    places = _apart([ends[i][1] for i in order], PITCH, low, low + PLOT)
    for i, y in zip(order, places, strict=True):
        start, end = ends[i]
        path = [(start, end), (right + 0.06, end), (right + 0.2, y), (right + 0.36, y)]
        _entry(picture, inches, i, str(ax.lines[i].get_label()), path, right + 0.28)


def _apart(wanted: list[float], pitch: float, low: float, high: float) -> list[float]:
    """Return increasing places at least `pitch` apart, near the wanted ones, within low to high."""
    groups: list[list[float]] = []  # of places that stand as close as they may
    for i, place in enumerate(wanted):
        groups.append([place - i * pitch])
        while len(groups) > 1 and np.mean(groups[-2]) >= np.mean(groups[-1]):
            groups[-2].extend(groups.pop())
    free = [float(np.mean(group)) for group in groups for _ in group]
    last = max(low, high - pitch * (len(wanted) - 1))
    return [min(max(place, low), last) + i * pitch for i, place in enumerate(free)]


def _entry(
    picture: Picture,
    inches: Transform,
    i: int,
    name: str,
    path: list[tuple[float, float]],
    marker_at: float,
) -> None:
    """Write a line's name in its colour, darker, behind its dash and its marker."""
    look = _look(i)
    marker = {key: look.pop(key) for key in list(look) if key.startswith("marker")}
    x, y = path[-1]
    thin = look | {"linewidth": 0.8, "alpha": 0.7}
    picture.add_artist(Line2D(*zip(*path, strict=True), transform=inches, **thin))
    picture.add_artist(Line2D([marker_at], [y], transform=inches, color=look["color"], **marker))
    picture.text(
        x + 0.06, y, name, transform=inches, va="center_baseline", fontsize=SIZE,
        color=head_color(i + len(PALETTE)), parse_math=False,
    )  # fmt: skip


def _lines_in_words(
    title: str, x_label: str, y_label: str, across: Array, values: dict[str, Array]
) -> str:
    """Return the chart in words."""
    told = []
    for name, line in values.items():
        if np.isnan(line).all():
            told.append(f"{name} has no values")
            continue
        low, high = np.nanargmin(line), np.nanargmax(line)
        told.append(
            f"{name} is lowest, {short_number(line[low])}, at {short_number(across[low])} "
            f"and highest, {short_number(line[high])}, at {short_number(across[high])}"
        )
    first, last = short_number(across[0]), short_number(across[-1])
    return f"{title}. {y_label} over {x_label} from {first} to {last}: {'; '.join(told)}."
