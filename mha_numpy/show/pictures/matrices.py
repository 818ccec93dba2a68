"""Arrays side by side: numbers by sign and size, masks by who may attend."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.look import PALETTE
from mha_numpy.show.pictures.blocks import is_broken, is_hidden
from mha_numpy.show.pictures.cells import (
    MAX_NUMBERS,
    NUMBER_SIZE,
    SCALE,
    Labels,
    fit_labels,
    label_cells,
    paint_cells,
    paint_scale,
)
from mha_numpy.show.pictures.colors import BROKEN, GREY, HIDDEN, MUTED, fade
from mha_numpy.show.pictures.labels import (
    MONO,
    check_labels,
    check_text,
    decimal,
    named_arrays,
    printable,
    short_number,
    widest,
    write_title,
)
from mha_numpy.show.pictures.layout import PIXEL, Box, flow, patch, pixels, start_page
from mha_numpy.show.pictures.save import Picture

MAX_SIDE = 512  # rows or columns
COUNTED = 8  # places of a long axis that are numbered
LONGEST_NAME = 40  # characters
NAME_SIZE = 9  # in points
SIGNED = LinearSegmentedColormap.from_list(
    "negative, white, positive", [PALETTE[1], "#ffffff", PALETTE[0]], N=257
)
MAY_ATTEND = fade(PALETTE[0])(0.3)

# lengths in inches
CELL, LARGE, THINNEST = 45 * PIXEL, 2.65, 0.16  # LARGE: of a side, at least a pixel a cell
NAME, TICK, FACT = 0.24, 0.08, 0.15


class _Panel(NamedTuple):
    """One array, ready to be drawn."""

    name: str
    values: Array  # (rows, columns)
    full: float  # the |x| that has the full colour; 0 if all numbers are 0
    numbers: list[str]  # of the cells, row by row; none where they do not fit
    cell: tuple[float, float]  # width and height
    rows: Labels
    columns: Labels
    is_turned: bool  # whether column labels stand upright
    facts: list[str]  # under the cells
    left: float  # room for row labels
    below: float  # room for column labels

    @property
    def box(self) -> Box:
        """The cells, and room for name, labels and facts."""
        (rows, columns), (wide, high) = self.values.shape, self.cell
        words = max(
            widest([self.name], NAME_SIZE, "monospace", "bold"),
            widest(self.facts, NUMBER_SIZE, "monospace"),
        )
        width, height = max(1, columns) * wide, max(1, rows) * high
        right, below = pixels(max(0.0, words - width)), self.below + FACT * len(self.facts)
        return Box(width, height, self.left, NAME, right, below)


def matrices(
    arrays: Mapping[str, Array],
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str = "",
    shared: bool = True,
    meaning: tuple[str, str] = ("may attend", "hidden"),
) -> Picture:
    """Draw arrays side by side: numbers by sign and size, bools as masks.

    Parameters
    ----------
    arrays : mapping of name to (rows, columns) or (columns,) array
        Numbers, or bools: a mask, True = may attend. At most 512 rows and columns.
    row_labels, column_labels : strings, optional
        One for each row and for each column of all arrays; an axis of size 1 goes without.
    title : str
        What is seen.
    shared : bool
        One scale for all numbers; otherwise each array has its own, and its largest absolute
        value is written under it.
    meaning : (str, str)
        What True and False say; they are a mask's unless written.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the arrays and last the
        scale.

    Notes
    -----
    White is 0, blue is positive and orange negative; up to 12 by 12 cells have their numbers.
    A False of a mask and -inf are hatched as hidden, NaN and +inf are cross-hatched. Where not all
    labels fit, every second, third, ... is written; an axis of more than 12 without labels is
    counted from 0.

    Examples
    --------
    >>> p = np.array([0.75, 0.25])
    >>> picture = matrices({"p": p, "jacobian": np.diag(p) - np.outer(p, p)})
    >>> [ax.get_title(loc="left") for ax in picture.axes[:2]]
    ['p', 'jacobian']
    >>> picture.get_label()
    '2 arrays: p (2,), 0.25 to 0.75; jacobian (2, 2), -0.188 to 0.188.'
    """
    values = _check_arrays(arrays)
    is_shared, title = check_flag("shared", shared), check_text("title", title)
    if not (isinstance(meaning, (tuple, list)) and len(meaning) == 2):
        raise ConfigError(f"meaning: expected two strings, of True and of False; got {meaning!r}")
    words = [check_text("meaning", word) for word in meaning]
    labels = [
        None if given is None else check_labels(name, given)
        for name, given in (("row_labels", row_labels), ("column_labels", column_labels))
    ]
    largest = {name: _largest(array) for name, array in values.items()}
    if is_shared:
        largest = dict.fromkeys(largest, max(largest.values()))
    panels = []
    for name, array in values.items():
        facts = [str(array.shape)] + ["no cells"] * (array.size == 0)
        if not is_shared and array.dtype != bool:
            facts.append(f"largest |x| {short_number(largest[name])}")
        panels.append(_prepare(name, np.atleast_2d(array), largest[name], labels, facts))
    rows, scale = flow([panel.box for panel in panels]), _scale_texts(values, largest, is_shared)
    rows += [[SCALE]] * bool(scale)
    alt, legend = _alt_text(title, values, words[0]), _legend(values, words)
    picture, axes = start_page(rows, title, _notes(panels, labels), alt=alt, legend=legend)
    for ax, panel in zip(axes, panels, strict=False):
        _paint(ax, panel)
    if scale:
        lowest = 0.5 * (len(scale) == 2)
        paint_scale(axes[-1], SIGNED(np.linspace(lowest, 1, 256))[None], scale)
    return picture


def _check_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    values = named_arrays("arrays", arrays, "biuf")
    for name, array in values.items():
        if array.ndim not in (1, 2):
            raise ShapeError(
                f"arrays[{name!r}]: expected (columns,) or (rows, columns); got {array.shape}"
                + "; draw one head of one sequence" * (array.ndim > 2)
            )
        if max(array.shape) > MAX_SIDE:
            raise ShapeError(
                f"arrays[{name!r}]: expected at most {MAX_SIDE} rows and columns; "
                f"got {array.shape}; draw a part"
            )
    return values


def _prepare(
    name: str, values: Array, full: float, labels: list[list[str] | None], facts: list[str]
) -> _Panel:
    """Choose the size of the cells, and what is written at them."""
    rows, columns = values.shape
    has_numbers = max(rows, columns) <= MAX_NUMBERS and values.dtype != bool
    numbers = _cell_texts(values) if has_numbers else []
    if max(rows, columns) <= MAX_NUMBERS:
        wide, high = pixels(max(CELL, widest(numbers, NUMBER_SIZE) + 0.08)), CELL
    else:
        side = max(PIXEL, min(CELL, math.floor(LARGE / max(rows, columns) / PIXEL) * PIXEL))
        wide, high = (max(side, pixels(THINNEST / max(1, n))) for n in (columns, rows))
    row_labels = _choose_labels(name, "row", labels[0], rows, high)
    column_labels = _choose_labels(name, "column", labels[1], columns, wide)
    long = widest(column_labels.texts, column_labels.size)
    is_turned = long > wide * column_labels.every - 0.06
    left = TICK + widest(row_labels.texts, row_labels.size) if row_labels.texts else 0.0
    below = TICK + (long if is_turned else 0.12) if column_labels.texts else 0.0
    return _Panel(
        printable(name, LONGEST_NAME), values, full, numbers, (wide, high), row_labels,
        column_labels, is_turned, facts, pixels(left), below + 0.07,
    )  # fmt: skip


def _choose_labels(
    name: str, axis: str, labels: list[str] | None, size: int, cell: float
) -> Labels:
    """Choose labels as far as they fit; a long axis without labels is counted."""
    if labels is None:
        every = 1 << max(0, math.ceil(math.log2(max(1, size / COUNTED))))
        counted = list(range(0, size, every)) if size > MAX_NUMBERS else []
        return Labels(counted, [str(place) for place in counted])
    if size <= 1 < len(labels):
        return Labels([], [])
    if len(labels) != size:
        raise ConfigError(
            f"{axis}_labels: expected {size} of them for arrays[{name!r}]; got {len(labels)}"
        )
    return fit_labels(labels, cell)


def _cell_texts(values: Array) -> list[str]:
    """Return what stands in the cells: few characters, with one number of places for all."""
    known, largest = values[np.isfinite(values)], _largest(values)
    is_whole = bool((known == np.round(known)).all())
    limits = [np.inf, 99.5, 9.95, 0.5]  # numbers below have more than 0, 1, 2 places
    places = 0 if is_whole else sum(largest < limit for limit in limits) - 1
    while places > 1 and np.allclose(known, np.round(known, places - 1), 0, 1e-6 * largest):
        places -= 1  # .25, not .250
    is_scientific = not (0.0095 <= largest < 9999.5 or (is_whole and largest < 1e6))
    texts = []
    for value in values.flat:
        power = 0
        if is_scientific and value and np.isfinite(value):  # 1.2e-9
            mantissa, exponent = f"{value:.1e}".split("e")
            value, places, power = float(mantissa), 1, int(exponent)
        text = decimal(value, places) + (f"e{power}" if power else "")
        texts.append(text if np.isfinite(value) else "")
    return texts


def _largest(values: Array) -> float:
    """Return the largest |x| of the finite numbers; 0 without any, and for a mask."""
    known = values[np.isfinite(values)] if values.dtype != bool else np.empty(0)
    return float(np.abs(known).max(initial=0.0))


def _scale_texts(values: dict[str, Array], largest: dict[str, float], is_shared: bool) -> list[str]:
    """Return what stands under the scale's ends: two if nothing is negative, none without one."""
    numbers = [array for array in values.values() if array.dtype != bool]
    if not any(largest.values()):
        return []
    is_signed = any((array[np.isfinite(array)] < 0).any() for array in numbers)
    end = short_number(max(largest.values())) if is_shared else "largest |x|"
    return [f"-{end}", "0", end] if is_signed else ["0", end]


def _legend(values: dict[str, Array], meaning: list[str]) -> dict[str, Rectangle]:
    """Return patches for the cells that are no numbers."""
    masks = [array for array in values.values() if array.dtype == bool]
    numbers = [array for array in values.values() if array.dtype != bool]
    legend = {}
    if any(array.any() for array in masks):
        legend[f"True: {meaning[0]}"] = patch(facecolor=MAY_ATTEND, linewidth=0.5)
    names = [f"False: {meaning[1]}"] * any(not array.all() for array in masks)
    names += ["-inf: hidden"] * any(is_hidden(array).any() for array in numbers)
    if names == ["False: hidden", "-inf: hidden"]:
        names = ["False or -inf: hidden"]
    legend |= {name: patch(facecolor="none", hatch=HIDDEN) for name in names}
    if any(is_broken(array).any() for array in numbers):
        legend["NaN or +inf"] = patch(facecolor="none", hatch=BROKEN)
    return legend


def _notes(panels: list[_Panel], labels: list[list[str] | None]) -> list[str]:
    """Say so where not all labels fit."""
    notes = []
    for axis, given in enumerate(labels):
        every = max((panel.columns if axis else panel.rows).every for panel in panels)
        if given is not None and every > 1:
            notes.append(f"Labels: one {('row', 'column')[axis]} of every {every}.")
    return notes


def _alt_text(title: str, values: dict[str, Array], meaning: str) -> str:
    told = []
    for name, array in values.items():
        known = array[np.isfinite(array)]
        if array.size == 0:
            words = "no cells"
        elif array.dtype == bool:
            words = f"{array.sum()} of {array.size} cells: {meaning}"
        elif known.size == 0:
            words = "no finite number"
        else:
            words = f"{short_number(known.min())} to {short_number(known.max())}"
        if array.dtype != bool:
            for cells, kind in ((is_hidden(array), "hidden"), (is_broken(array), "NaN or +inf")):
                words += f", {cells.sum()} {kind}" * bool(cells.any())
        told.append(f"{name} {array.shape}, {words}")
    heading = f"{title}. " if title else ""
    return f"{heading}{len(told)} array{'s' * (len(told) > 1)}: {'; '.join(told)}."


def _paint(ax: Axes, panel: _Panel) -> None:
    values, (rows, columns) = panel.values, panel.values.shape
    ax.set_label(f"matrix {panel.name}")
    write_title(ax, panel.name, NAME_SIZE, 5, **MONO)
    ax.spines[:].set(edgecolor=GREY, linewidth=0.8)
    ax.annotate(
        "\n".join(panel.facts), (0, 0), (0, -72 * panel.below), xycoords="axes fraction",
        textcoords="offset points", va="top", fontsize=NUMBER_SIZE, color=MUTED, parse_math=False,
        **MONO,
    )  # fmt: skip
    if values.dtype == bool:
        colors = np.where(values[..., None], MAY_ATTEND, 1.0)
        hidden, broken = ~values, np.zeros_like(values)
    else:
        known = np.where(np.isfinite(values), values, 0.0)
        colors = SIGNED(0.5 + 0.5 * known / (panel.full or 1.0))
        hidden, broken = is_hidden(values), is_broken(values)
    if values.size:
        paint_cells(ax, colors, panel.numbers, hidden, broken, min(panel.cell))
    ax.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    label_cells(ax, panel.rows, panel.columns, is_turned=panel.is_turned)
