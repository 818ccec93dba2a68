"""Arrays side by side: numbers by sign and size, masks by who may attend."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Transform

from mha_numpy.core.checks import check_flag
from mha_numpy.core.dtypes import Array
from mha_numpy.draw.blocks import is_broken, is_hidden
from mha_numpy.draw.colors import (
    BROKEN,
    GREY,
    HIDDEN,
    INK,
    MUTED,
    PALETTE,
    fade,
    hatch_cells,
    text_on,
)
from mha_numpy.draw.labels import (
    HEADING_SIZE,
    LABEL_PITCH,
    MARGIN,
    MINUS,
    NOTE_SIZE,
    check_text,
    content_at,
    decimal,
    named_arrays,
    printable,
    short_number,
    start_picture,
    widest,
    wrap_heading,
)
from mha_numpy.draw.panels import PIXEL, pixels
from mha_numpy.draw.save import Picture
from mha_numpy.errors import ConfigError, ShapeError

SIGNED = LinearSegmentedColormap.from_list(
    "negative, white, positive", [PALETTE[1], "#ffffff", PALETTE[0]], N=257
)
MAY_ATTEND = fade(PALETTE[0])(0.3)
LINE = "#E2E2E2"
MAX_NUMBERS, MAX_SIDE = 12, 512  # rows or columns with a number in each cell; drawn at all
MAX_STRIPS = 2000  # hatched one by one
COUNTED = 8  # places of a long axis that are numbered
LONGEST_NAME = 40  # characters
SIZE, NAME_SIZE = 6.5, 9  # of numbers and shapes, in points

# lengths in inches
CELL, LARGE, THINNEST = 45 * PIXEL, 2.65, 0.16  # LARGE: of a side, at least a pixel a cell
SMALLEST_SQUARE = 0.08  # smaller cells are pixels of an image
GUTTER, MAX_WIDTH, MIN_WIDTH = 0.36, 9.6, 3.0
NAME, TICK, FACT = 0.24, 0.08, 0.15
SCALE_WIDTH, SCALE, KEY = 2.0, 0.42, 0.22


class _Ticks(NamedTuple):
    """Which rows or columns are labelled, and how."""

    places: list[int]
    texts: list[str]
    size: float = 8.0  # in points


class _Panel(NamedTuple):
    """One array, ready to be drawn."""

    name: str
    values: Array  # (rows, columns)
    full: float  # the |x| that has the full colour; 0 if all numbers are 0
    numbers: list[str]  # of the cells, row by row; none where they do not fit
    cell: tuple[float, float]  # width and height
    rows: _Ticks
    columns: _Ticks
    is_turned: bool  # whether column labels stand upright
    facts: list[str]  # under the cells
    left: float  # room for row labels
    below: float  # room for column labels

    @property
    def is_mask(self) -> bool:
        """Whether the cells are bools."""
        return self.values.dtype == bool

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of all cells."""
        rows, columns = self.values.shape
        return max(1, columns) * self.cell[0], max(1, rows) * self.cell[1]

    @property
    def width(self) -> float:
        """What labels, cells and words need."""
        words = max(
            widest([self.name], NAME_SIZE, "monospace", "bold"),
            widest(self.facts, SIZE, "monospace"),
        )
        return pixels(self.left + max(self.size[0], words))

    @property
    def height(self) -> float:
        """What name, cells, labels and facts need."""
        return pixels(NAME + self.size[1] + self.below + FACT * len(self.facts))


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

    Raises
    ------
    ShapeError, DTypeError
        An array has more than two axes or more than 512 rows or columns, or holds neither numbers
        nor bools.
    ConfigError
        There is no array, `meaning` is not two strings, or the labels are not as many as the rows
        or columns of an array.

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
    for word in meaning:
        check_text("meaning", word)
    labels = [
        None if given is None else [printable(label) for label in given]
        for given in (row_labels, column_labels)
    ]
    largest = {name: _largest(array) for name, array in values.items()}
    if is_shared:
        largest = dict.fromkeys(largest, max(largest.values()))
    panels = []
    for (name, array), given in zip(values.items(), arrays.values(), strict=True):
        facts = [str(np.shape(given))] + ["no cells"] * (array.size == 0)
        if not is_shared and array.dtype != bool:
            facts.append(f"largest |x| {short_number(largest[name])}")
        panels.append(_prepare(name, array, largest[name], labels, facts))
    lines = _flow([panel.width for panel in panels], GUTTER, MAX_WIDTH)
    scale, keys = _scale_texts(values, largest, is_shared=is_shared), _keys(values, meaning)
    widths = [widest([text], NOTE_SIZE) + 0.2 for text in keys]
    content = max(sum(panels[i].width for i in line) + GUTTER * (len(line) - 1) for line in lines)
    content = max([content, MIN_WIDTH, *widths])
    heading = wrap_heading(title, max(content, 6.0))
    content = max(
        [content, *(widest([line], HEADING_SIZE, weight="bold") + 0.1 for line in heading)]
    )
    notes = _notes(panels, labels)
    content = max(content, 1.05 * widest(notes, NOTE_SIZE))
    tops = [pixels(content_at(heading, notes))]
    for line in lines:
        tops.append(tops[-1] + max(panels[i].height for i in line) + 0.2)
    keys_at = tops[-1] + SCALE * bool(scale)
    key_lines = _flow(widths, GUTTER, content)
    width = pixels(content + 2 * MARGIN)
    height = pixels(keys_at + KEY * len(key_lines) + MARGIN - 0.1)

    picture, inches = start_picture(width, height, heading, notes)
    picture.set_label(_alt_text(title, arrays, values, meaning[0]))
    for line, top in zip(lines, tops, strict=False):
        x = MARGIN
        for i in line:
            panel = panels[i]
            _paint(_add_axes(picture, panel, (x + panel.left, top + NAME)), panel)
            x += panel.width + GUTTER
    if scale:
        ax = picture.add_axes(
            (MARGIN / width, 1 - (tops[-1] + 0.14) / height, SCALE_WIDTH / width, 0.12 / height),
            label="scale",
        )
        _paint_scale(ax, scale)
    for number, line in enumerate(key_lines):
        x = MARGIN
        for i in line:
            text = list(keys)[i]
            _paint_key(picture, inches, text, keys[text], (x, keys_at + KEY * number))
            x += widths[i] + GUTTER
    return picture


def _check_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays with two axes, or raise an error that names one."""
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
    return {name: np.atleast_2d(array) for name, array in values.items()}


def _largest(values: Array) -> float:
    """Return the largest |x| of the finite numbers; 0 without any, and for a mask."""
    known = values[np.isfinite(values)] if values.dtype != bool else np.empty(0)
    return float(np.abs(known).max(initial=0.0))


def _prepare(
    name: str, values: Array, full: float, labels: list[list[str] | None], facts: list[str]
) -> _Panel:
    """Choose the size of the cells, and what is written at them."""
    rows, columns = values.shape
    has_numbers = max(rows, columns) <= MAX_NUMBERS and values.dtype != bool
    numbers = _cell_texts(values) if has_numbers else []
    if max(rows, columns) <= MAX_NUMBERS:
        wide, high = pixels(max(CELL, widest(numbers, SIZE) + 0.08)), CELL
    else:
        side = max(PIXEL, min(CELL, math.floor(LARGE / max(rows, columns) / PIXEL) * PIXEL))
        wide, high = (max(side, pixels(THINNEST / max(1, n))) for n in (columns, rows))
    row_ticks = _ticks(name, "row", labels[0], rows, high)
    column_ticks = _ticks(name, "column", labels[1], columns, wide)
    long = widest(column_ticks.texts, column_ticks.size)
    is_turned = long > wide * _every(column_ticks) - 0.06
    left = TICK + widest(row_ticks.texts, row_ticks.size) if row_ticks.texts else 0.0
    below = TICK + (long if is_turned else 0.12) if column_ticks.texts else 0.0
    return _Panel(
        printable(name, LONGEST_NAME), values, full, numbers, (wide, high), row_ticks, column_ticks,
        is_turned, facts, pixels(left), below + 0.07,
    )  # fmt: skip


def _ticks(name: str, axis: str, labels: list[str] | None, size: int, cell: float) -> _Ticks:
    """Choose labels as far as they fit; a long axis without labels is counted."""
    if labels is None:
        every = 1 << max(0, math.ceil(math.log2(max(1, size / COUNTED))))
        counted = list(range(0, size, every)) if size > MAX_NUMBERS else []
        return _Ticks(counted, [str(place) for place in counted])
    if size <= 1 < len(labels):
        return _Ticks([], [])
    if len(labels) != size:
        raise ConfigError(
            f"{axis}_labels: expected {size} of them for arrays[{name!r}]; got {len(labels)}"
        )
    every = math.ceil(LABEL_PITCH / cell)
    points = min(8.0, 72 * cell * every / 1.25)
    return _Ticks(list(range(0, size, every)), labels[::every], points)


def _every(ticks: _Ticks) -> int:
    """Return how many rows or columns are from one label to the next."""
    return ticks.places[1] - ticks.places[0] if len(ticks.places) > 1 else 1


def _cell_texts(values: Array) -> list[str]:
    """Return what stands in the cells: few characters, with one number of places for all."""
    known = values[np.isfinite(values)]
    largest = float(np.abs(known).max(initial=0.0))
    is_whole = bool((known == np.round(known)).all())
    limits = [np.inf, 99.5, 9.95, 0.5]  # numbers below have more than 0, 1, 2 places
    places = 0 if is_whole else sum(largest < limit for limit in limits) - 1
    while places > 1 and np.allclose(known, np.round(known, places - 1), 0, 1e-6 * largest):
        places -= 1  # .25, not .250
    if 0.0095 <= largest < 9999.5 or (is_whole and largest < 1e6):
        return [decimal(value, places) if np.isfinite(value) else "" for value in values.flat]
    return [_scientific(value) if np.isfinite(value) else "" for value in values.flat]


def _scientific(value: float) -> str:
    """Return a number as 1.2e-9, and 0 as 0."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{abs(value):.1e}".split("e")
    power = f"e{int(exponent)}" if int(exponent) else ""
    return decimal(math.copysign(float(mantissa), value), 1) + power


def _flow(widths: list[float], gap: float, limit: float) -> list[list[int]]:
    """Break things of some widths into lines; each line lists which."""
    lines: list[list[int]] = []
    used = math.inf
    for i, width in enumerate(widths):
        if used + gap + width > limit:
            lines.append([])
            used = -gap
        lines[-1].append(i)
        used += gap + width
    return lines


def _scale_texts(
    values: dict[str, Array], largest: dict[str, float], *, is_shared: bool
) -> list[str]:
    """Return what stands under the scale's ends: two if nothing is negative, none without one."""
    numbers = [array for array in values.values() if array.dtype != bool]
    if not any(largest.values()):
        return []
    is_signed = any((array[np.isfinite(array)] < 0).any() for array in numbers)
    end = short_number(max(largest.values())) if is_shared else "largest |x|"
    return [f"-{end}", "0", end] if is_signed else ["0", end]


def _keys(values: dict[str, Array], meaning: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """Return the cells that are no numbers, in words, and how they are drawn."""
    masks = [array for array in values.values() if array.dtype == bool]
    numbers = [array for array in values.values() if array.dtype != bool]
    hatched: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0}
    has_hidden = any(is_hidden(array).any() for array in numbers)
    has_false = any(not array.all() for array in masks)
    keys: dict[str, dict[str, Any]] = {}
    if any(array.any() for array in masks):
        keys[f"True: {meaning[0]}"] = {"facecolor": MAY_ATTEND, "edgecolor": GREY, "linewidth": 0.5}
    if has_false and has_hidden and meaning[1] == "hidden":
        keys["False or -inf: hidden"] = hatched | {"hatch": HIDDEN}
    else:
        if has_false:
            keys[f"False: {meaning[1]}"] = hatched | {"hatch": HIDDEN}
        if has_hidden:
            keys["-inf: hidden"] = hatched | {"hatch": HIDDEN}
    if any(is_broken(array).any() for array in numbers):
        keys["NaN or +inf"] = hatched | {"hatch": BROKEN}
    return keys


def _notes(panels: list[_Panel], labels: list[list[str] | None]) -> list[str]:
    """Say so where not all labels fit."""
    notes = []
    for axis, given in enumerate(labels):
        every = max(_every(panel.columns if axis else panel.rows) for panel in panels)
        if given is not None and every > 1:
            notes.append(f"Labels: one {('row', 'column')[axis]} of every {every}.")
    return notes


def _add_axes(picture: Picture, panel: _Panel, at: tuple[float, float]) -> Axes:
    """Add axes for the cells, their upper left corner at inches from the picture's."""
    width, height = picture.get_figwidth(), picture.get_figheight()
    wide, high = panel.size
    box = at[0] / width, 1 - (at[1] + high) / height, wide / width, high / height
    return picture.add_axes(box, label=f"matrix {panel.name}")


def _paint(ax: Axes, panel: _Panel) -> None:
    """Draw one array: cells, hatches, numbers, labels and facts."""
    values = panel.values
    rows, columns = values.shape
    ax.set_title(
        panel.name, loc="left", fontsize=NAME_SIZE, fontweight="bold", fontfamily="monospace",
        color=INK, pad=5, parse_math=False,
    )  # fmt: skip
    ax.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    ax.spines[:].set(edgecolor=GREY, linewidth=0.8)
    style: dict[str, Any] = {"color": INK, "parse_math": False}
    ax.set_xticks(
        [place + 0.5 for place in panel.columns.places], panel.columns.texts,
        fontsize=panel.columns.size, rotation=90 if panel.is_turned else 0, **style,
    )  # fmt: skip
    ax.set_yticks(
        [place + 0.5 for place in panel.rows.places], panel.rows.texts,
        fontsize=panel.rows.size, **style,
    )  # fmt: skip
    ax.tick_params(length=2, color=GREY, pad=2)
    below = -72 * panel.below
    ax.annotate(
        "\n".join(panel.facts), (0, 0), (0, below), xycoords="axes fraction",
        textcoords="offset points", va="top", fontsize=SIZE, fontfamily="monospace", color=MUTED,
        parse_math=False,
    )  # fmt: skip
    if values.size == 0:
        return
    if panel.is_mask:
        colors: Array = np.broadcast_to(MAY_ATTEND, (rows, columns, 4)).copy()
        colors[~values] = 1.0
        _hatch(ax, ~values, HIDDEN)
    else:
        known = np.where(np.isfinite(values), values, 0.0)
        colors = SIGNED(0.5 + 0.5 * known / (panel.full or 1.0))
        _hatch(ax, is_hidden(values), HIDDEN)
        _hatch(ax, is_broken(values), BROKEN)
    ax.imshow(
        colors, extent=(0, columns, rows, 0), aspect="auto", interpolation="nearest", zorder=0
    )
    if min(panel.cell) >= SMALLEST_SQUARE:
        style = {"color": LINE, "linewidth": 0.5, "zorder": 0.5}
        ax.vlines(np.arange(1, columns), 0, rows, **style)
        ax.hlines(np.arange(1, rows), 0, columns, **style)
    for (row, column), text in zip(np.ndindex(rows, columns), panel.numbers, strict=False):
        ax.text(
            column + 0.5, row + 0.5, text, ha="center", va="center_baseline", fontsize=SIZE,
            color=text_on(tuple(colors[row, column])),
        )  # fmt: skip


def _hatch(ax: Axes, cells: Array, hatch: str) -> None:
    """Hatch the True cells: very many of them as one shape, which is drawn faster."""
    hatch_cells(ax, cells, hatch)
    if np.count_nonzero(np.diff(cells)) > MAX_STRIPS:
        (strips,) = (found for found in ax.collections if found.get_hatch() == hatch)
        strips.remove()
        path = Path.make_compound_path(*strips.get_paths())
        ax.add_patch(
            PathPatch(
                path, hatch=hatch, facecolor="none", edgecolor=GREY, linewidth=0,
                label=strips.get_label(),
            )
        )  # fmt: skip


def _paint_scale(ax: Axes, texts: list[str]) -> None:
    """Draw the colours from the first of the texts to the last."""
    lowest = -1 if len(texts) == 3 else 0
    shades = SIGNED(0.5 + 0.5 * np.linspace(lowest, 1, 256))
    ax.imshow(shades[None], aspect="auto", extent=(lowest, 1, 1, 0), interpolation="nearest")
    ax.set_yticks([])
    signed = [text.replace("-", MINUS) for text in texts]
    ax.set_xticks(range(lowest, 2), signed, fontsize=7, color=INK, parse_math=False)
    ends = ax.get_xticklabels()
    ends[0].set_horizontalalignment("left")
    ends[-1].set_horizontalalignment("right")
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.spines[:].set(edgecolor=GREY, linewidth=0.6)


def _paint_key(
    picture: Picture, inches: Transform, text: str, style: dict[str, Any], at: tuple[float, float]
) -> None:
    """Draw a cell and say what it is."""
    picture.add_artist(Rectangle(at, 0.14, 0.14, transform=inches, **style))
    picture.text(
        at[0] + 0.2, at[1] + 0.07, text, transform=inches, va="center", fontsize=NOTE_SIZE,
        color=INK,
    )  # fmt: skip


def _alt_text(
    title: str, arrays: Mapping[str, Array], values: dict[str, Array], meaning: str
) -> str:
    """Return the picture in words."""
    told = []
    for (name, array), given in zip(values.items(), arrays.values(), strict=True):
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
        told.append(f"{name} {np.shape(given)}, {words}")
    heading = f"{title}. " if title else ""
    return f"{heading}{len(told)} array{'s' * (len(told) > 1)}: {'; '.join(told)}."
