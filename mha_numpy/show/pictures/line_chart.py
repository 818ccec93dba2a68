"""Lines over a number, each named at its end."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter
from matplotlib.transforms import ScaledTranslation

from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.look import PALETTE, TOKENS, tokens
from mha_numpy.show.pictures.charts import EDGE, PX, STYLE, drawing_of
from mha_numpy.show.pictures.labels import (
    as_numbers,
    check_text,
    named_arrays,
    printable,
    short_number,
)
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import DESK, PHONE

LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
MAX_MARKERS = 20  # on a line
STEPS = [1, 2, 2.5, 5, 10]  # between ticks

# units
ABOVE, BELOW = 42, 50  # the plot: name of the axis; ticks and name
BESIDE, PITCH = 20, 17  # from the plot to a name; from one line of a name to the next
PLOT = {PHONE: 190, DESK: 280}  # the least height by width
NAMES = {PHONE: 13, DESK: 28}  # characters in a line of a name


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

    A line that was measured several times shows every run, thin, and their mean.

    Parameters
    ----------
    x : (N,) numbers
        Increasing.
    lines : mapping of name to (N,) or (runs, N) numbers
        NaN leaves a gap.
    title, x_label, y_label : str
        What is seen; what lies across and what upward.
    log_x, log_y : bool
        A logarithmic axis: to base 2 if all its numbers are powers of two, or else to base 10.

    Returns
    -------
    Picture
        Its ``alt`` says the lowest and highest value of each line, or of its mean.

    Notes
    -----
    Each line has its own colour, marker and dash. A long name takes several lines.

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
    means = {name: _mean_of(line) for name, line in values.items()}
    empty = [np.isnan(line).all() for line in means.values()]
    notes = [f"No values: {name}." for name, is_empty in zip(names, empty, strict=True) if is_empty]
    if any(line.ndim > 1 for line in values.values()):
        notes.append("Thin lines are single runs, a bold line is their mean.")
    alt = _lines_in_words(title, x_label, y_label, across, means)
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
    """Draw the lines as wide as the limit, and as high as their names need."""
    names = ["\n".join(wrap(name.replace(" = ", "\xa0=\xa0"), NAMES[limit])) for name in lines]
    high = max(PLOT[limit], PITCH * (sum(name.count("\n") + 1 for name in names)))
    figure = Figure(figsize=(limit * PX, (ABOVE + high + BELOW) * PX))
    ax = figure.subplots()
    color = TOKENS["ink"][0] if len(lines) == 1 else None
    for name, line in zip(names, lines.values(), strict=True):
        mean = _mean_of(line)
        (drawn,) = ax.plot(
            across, mean, color=color, label=name, clip_on=False, markevery=_marked(mean)
        )
        if line.ndim > 1:
            _draw_runs(ax, across, line, drawn.get_color())
    numbers = np.concatenate([line[~np.isnan(line)] for line in lines.values()])
    _set_scale(ax.xaxis, ax.set_xscale, across, is_log=is_log_x, room=0.7 * limit)
    _set_scale(ax.yaxis, ax.set_yscale, numbers, is_log=is_log_y)
    if numbers.size and not is_log_y and 0 <= numbers.min() <= numbers.max() / 2:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(x_label, labelpad=3)
    figure.suptitle(y_label, x=EDGE / limit, ha="left", color=TOKENS["soft"][0])
    _name_ends(ax, high)
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
        if line.shape[-1:] != across.shape or line.ndim > 2 or line.size == 0:
            raise ShapeError(
                f"lines[{name!r}]: expected (N={across.size},) or (runs, N={across.size}) to match "
                f"x; got {line.shape}"
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


def _mean_of(line: Array) -> Array:
    return line.mean(axis=0) if line.ndim > 1 else line


def _draw_runs(ax: Axes, across: Array, runs: Array, color: Any) -> None:
    """Draw each run thin, and its points where there are few."""
    paths = [np.stack([across, run], axis=-1) for run in runs]
    look: dict[str, Any] = {"alpha": 0.45, "clip_on": False, "zorder": 1.9}
    ax.add_collection(LineCollection(paths, colors=[color], linewidths=0.8, **look))
    if across.size <= MAX_MARKERS:
        ax.scatter(np.tile(across, len(runs)), runs, s=9, color=color, linewidths=0, **look)


def _set_scale(
    axis: Axis, set_scale: Callable[..., None], numbers: Array, *, is_log: bool,
    room: float = math.inf,
) -> None:  # fmt: skip
    """Choose linear or logarithmic, and where the ticks are; in the room there are fewer."""
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
        return
    multiples = (1, 2, 5) if base == 10 and decades < 3 else (1,)
    long = 10 + 8 * max((len(short_number(number)) for number in numbers), default=0)
    axis.set_major_locator(LogLocator(base, multiples, numticks=int(min(9, room // long))))
    has_powers = base == 10 and decades >= 3
    axis.set_major_formatter(
        lambda value, _: f"1e{math.log10(value):.0f}" if has_powers and value >= 1e6
        else short_number(value)
    )  # fmt: skip


def _marked(line: Array) -> list[int]:
    """Return which points have a marker: every second, third, ... and those that stand alone."""
    padded = np.isnan(np.pad(line, 1, constant_values=np.nan))
    alone = ~padded[1:-1] & padded[:-2] & padded[2:]
    every = np.arange(line.size) % math.ceil(line.size / MAX_MARKERS) == 0
    return np.flatnonzero(alone | every).tolist()


def _name_ends(ax: Axes, high: float) -> None:
    """Write each line's name at the height of its last value, moved apart where they meet."""
    ax.autoscale_view()
    ends = []  # (height in units, number of the line, last point)
    for i, line in enumerate(ax.lines):
        points = np.asarray(line.get_xydata())
        known = points[~np.isnan(points[:, 1])]
        if len(known):
            height = (ax.transData - ax.transAxes).transform(known[-1])[1] * high
            ends.append((height, i, known[-1]))
    ends.sort(key=lambda end: end[0])
    beside = ax.transAxes + ScaledTranslation(BESIDE * PX, 0, ax.figure.dpi_scale_trans)
    sizes = [PITCH * (str(ax.lines[i].get_label()).count("\n") + 1) for _, i, _ in ends]
    places = _apart([height for height, _, _ in ends], sizes, high)
    for (_, i, end), y in zip(ends, places, strict=True):
        line = ax.lines[i]
        ax.annotate(
            str(line.get_label()), end, (1, y / high), textcoords=beside,
            va="center", color=tokens()[f"head-{i}-ink" if len(ax.lines) > 1 else "ink"][0],
            weight="bold", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.8,
                        "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


def _apart(wanted: list[float], sizes: Sequence[float], high: float) -> list[float]:
    """Return increasing places that leave room for sizes, near the wanted ones, from 0 to high."""
    steps = [(a + b) / 2 for a, b in pairwise(sizes)]
    offsets = np.cumsum([0.0, *steps])
    groups: list[list[float]] = []  # of places that stand as close as they may
    for place, offset in zip(wanted, offsets.tolist(), strict=False):
        groups.append([place - offset])
        while len(groups) > 1 and np.mean(groups[-2]) >= np.mean(groups[-1]):
            groups[-2].extend(groups.pop())
    free = [float(np.mean(group)) for group in groups for _ in group]
    return (np.clip(free, 0, max(0.0, high - offsets[-1])) + offsets).tolist()


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
