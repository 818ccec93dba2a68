"""Lines over a number, each named at its end."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.look import PALETTE, TOKENS, tokens
from mha_numpy.show.pictures.charts import PX, STYLE, drawing_of
from mha_numpy.show.pictures.labels import (
    as_numbers,
    check_text,
    named_arrays,
    printable,
    short_number,
)
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import DESK, PHONE, width_of, wrapped

MARKERS = dict(zip("os^DvPX*", (5.5, 5.2, 6, 5, 6, 7.5, 7, 10), strict=True))  # with sizes
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 3)), (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 1)), (0, (8, 2, 2, 2, 2, 2)),
)  # fmt: skip
LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
MAX_MARKERS = 20  # on a line
STEPS = [1, 2, 2.5, 5, 10]  # between ticks

# units
ABOVE, BELOW, EDGE = 42, 50, 14  # the plot: name of the axis; ticks and name; beside it
BESIDE, PITCH = 24, 17  # from the plot to a name; from one name to the next
PLOT = {PHONE: 190, DESK: 280}  # height by width
NAMES = {PHONE: 96, DESK: 200}  # the longest name at its line's end, else all are in a legend


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
        Its ``alt`` says each line's lowest and highest value.

    Notes
    -----
    Each line has its own colour, marker and dash; names that are too long for the lines' ends are
    in a legend.

    Examples
    --------
    >>> d_k = [1, 4, 16]
    >>> lines = {"scaled": np.array([2.0, 2.0, 2.0]), "plain": np.array([2.0, 1.5, 0.5])}
    >>> picture = line_chart(d_k, lines, title="Entropy", x_label="d_k", y_label="nats", log_x=True)
    >>> picture.alt.split("; ")[1]
    'plain is lowest, 0.5, at 16 and highest, 2, at 1.'
    """
    log_x, log_y = check_flag("log_x", log_x), check_flag("log_y", log_y)
    x_label, y_label = check_text("x_label", x_label), check_text("y_label", y_label)
    title = check_text("title", title)
    across, values = _check_lines(x, lines, is_log_x=log_x, is_log_y=log_y)
    names = [printable(name, LONGEST_NAME) for name in values]
    empty = [np.isnan(line).all() for line in values.values()]
    notes = [f"No values: {name}." for name, is_empty in zip(names, empty, strict=True) if is_empty]
    alt = _lines_in_words(title, x_label, y_label, across, values)
    named = dict(zip(names, values.values(), strict=True))
    phone, desk = (
        drawing_of(
            figure_of(across, named, limit, x_label, y_label, is_log_x=log_x, is_log_y=log_y),
            title, alt,
        )
        for limit in (PHONE, DESK)
    )  # fmt: skip
    return Picture([phone], title=title, notes=notes, alt=alt, wide=[desk])


@mpl.rc_context(STYLE)
def figure_of(
    across: Array, lines: dict[str, Array], limit: int, x_label: str, y_label: str, *,
    is_log_x: bool, is_log_y: bool,
) -> Figure:  # fmt: skip
    """Draw the lines as wide as the limit."""
    longest = max(map(width_of, lines))
    is_direct = longest <= NAMES[limit]
    entries = 0 if is_direct else len(lines)
    columns = max(1, int((limit - 2 * EDGE) // (longest + 62)))
    told = ["\n".join(wrapped(name, limit - 2 * EDGE - 40)) for name in lines]
    high = max(text.count("\n") + 1 for text in told)
    above = ABOVE + (4 + 17 * high) * math.ceil(entries / columns) + 6 * bool(entries)
    height = above + PLOT[limit] + BELOW
    figure = Figure(figsize=(limit * PX, height * PX))
    width = limit - 2 * EDGE - (BESIDE + longest) * is_direct
    ax = figure.add_axes((EDGE / limit, BELOW / height, width / limit, PLOT[limit] / height))
    for i, (name, line) in enumerate(lines.items()):
        ax.plot(
            across, line, **_look(i, len(lines)), label=name, clip_on=False, markevery=_marked(line)
        )
    numbers = np.concatenate([line[~np.isnan(line)] for line in lines.values()])
    _set_scale(ax.xaxis, ax.set_xscale, across, is_log=is_log_x)
    _set_scale(ax.yaxis, ax.set_yscale, numbers, is_log=is_log_y)
    if numbers.size and not is_log_y and 0 <= numbers.min() <= numbers.max() / 2:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(x_label, labelpad=3, parse_math=False)
    ax.set_title(y_label, pad=8, parse_math=False, x=0)
    _make_room(ax)
    if is_direct:
        _name_ends(ax, PLOT[limit])
    else:
        handles = [Line2D([], [], **_look(i, entries)) for i in range(entries)]
        order = [i for c in range(columns) for i in range(c, entries, columns)]  # read in lines
        drawn = figure.legend(
            [handles[i] for i in order], [told[i] for i in order], ncols=columns,
            loc="upper left", bbox_to_anchor=(EDGE / limit, 1 - 10 / height), borderpad=0,
            borderaxespad=0, handlelength=2.2, labelspacing=0.45, columnspacing=1.4,
        )  # fmt: skip
        for text in drawn.get_texts():
            text.set_parse_math(False)
    return figure


def _check_lines(
    x: Sequence[float] | Array, lines: Mapping[str, Array], *, is_log_x: bool, is_log_y: bool
) -> tuple[Array, dict[str, Array]]:
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
    checked = [("x", across, "log_x", is_log_x)]
    checked += [(f"lines[{name!r}]", line, "log_y", is_log_y) for name, line in values.items()]
    for name, numbers, option, is_log in checked:
        if (np.abs(numbers) > LARGEST).any():
            raise ConfigError(
                f"{name}: expected numbers up to {LARGEST:g}, NaN for a gap; "
                f"got {numbers[np.nanargmax(np.abs(numbers))]:g}"
            )
        if is_log and (numbers <= 0).any():
            raise ConfigError(
                f"{name}: expected numbers > 0 with {option}=True; got {np.nanmin(numbers):g}"
            )
    return across, values


def _set_scale(axis: Axis, set_scale: Callable[..., None], numbers: Array, *, is_log: bool) -> None:
    """Choose linear or logarithmic, and where the ticks are."""
    if not is_log:
        is_whole = bool((numbers == np.round(numbers)).all())
        axis.set_major_locator(MaxNLocator("auto", steps=STEPS, integer=is_whole))
        return
    base = 2 if (np.frexp(numbers)[0] == 0.5).all() else 10
    decades = math.log10(numbers.max() / numbers.min()) if numbers.size else 1
    set_scale("log", base=base)
    axis.set_minor_locator(NullLocator())
    if base == 10 and decades < 1:
        axis.set_major_locator(MaxNLocator("auto", steps=STEPS))
        axis.set_major_formatter(ScalarFormatter())
    else:
        multiples = (1, 2, 5) if base == 10 and decades < 3 else (1,)
        axis.set_major_locator(LogLocator(base, multiples))
        axis.set_major_formatter(lambda value, _: short_number(value))


def _make_room(ax: Axes) -> None:
    """Make room for the numbers on the left, and put the axis' name above them."""
    left, bottom, width, height = ax.get_position().bounds
    used: Any = ax.get_tightbbox()
    full = ax.figure.bbox.width
    room = max(0.0, (ax.bbox.x0 - used.x0) / full)
    past = max(0.0, (used.x1 - ax.bbox.x1) / full - EDGE * 0.6 * PX * ax.figure.dpi / full)
    ax.set_position((left + room, bottom, width - room - past, height))
    ax.title.set_x(-room / (width - room - past))


def _look(i: int, count: int) -> dict[str, Any]:
    """Return colour, marker and dash of line i; a line without others is ink."""
    marker, size = list(MARKERS.items())[i]
    return {
        "color": PALETTE[i] if count > 1 else TOKENS["ink"][0],
        "marker": marker, "linestyle": DASHES[i],
        "markersize": size, "markeredgecolor": TOKENS["card"][0], "markeredgewidth": 0.8,
    }  # fmt: skip


def _marked(line: Array) -> list[int]:
    """Return which points have a marker: every second, third, ... and those that stand alone."""
    padded = np.isnan(np.pad(line, 1, constant_values=np.nan))
    alone = ~padded[1:-1] & padded[:-2] & padded[2:]
    every = np.arange(line.size) % math.ceil(line.size / MAX_MARKERS) == 0
    return np.flatnonzero(alone | every).tolist()


def _name_ends(ax: Axes, high: float) -> None:
    """Write each line's name at the height of its last value, moved apart where they meet."""
    ends = []  # (height in units, number of the line, last point)
    for i, line in enumerate(ax.lines):
        points = np.asarray(line.get_xydata())
        known = points[~np.isnan(points[:, 1])]
        if len(known):
            height = (ax.transData - ax.transAxes).transform(known[-1])[1] * high
            ends.append((height, i, known[-1]))
    ends.sort(key=lambda end: end[0])
    beside = 1 + (BESIDE - 4) * PX * ax.figure.dpi / ax.bbox.width
    places = _apart([height for height, _, _ in ends], PITCH, 0.0, high)
    for (_, i, end), y in zip(ends, places, strict=True):
        line = ax.lines[i]
        ax.annotate(
            str(line.get_label()), end, (beside, y / high), textcoords=ax.transAxes,
            va="center", color=tokens()[f"head-{i}-ink" if len(ax.lines) > 1 else "ink"][0],
            parse_math=False, weight="bold",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.8,
                        "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


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


def _lines_in_words(
    title: str, x_label: str, y_label: str, across: Array, values: dict[str, Array]
) -> str:
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
