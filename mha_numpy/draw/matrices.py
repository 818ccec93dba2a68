"""Arrays side by side: numbers by sign and size, masks by who may attend."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_flag
from mha_numpy.draw.blocks import is_broken, is_hidden
from mha_numpy.draw.colors import BROKEN, GREY, HIDDEN
from mha_numpy.draw.labels import (
    HEADING_SIZE,
    MARGIN,
    NOTE_SIZE,
    check_labels,
    check_text,
    content_at,
    named_arrays,
    short_number,
    start_picture,
    widest,
    wrap_heading,
)
from mha_numpy.draw.matrix_paint import (
    MAY_ATTEND,
    add_matrix_axes,
    paint_key,
    paint_matrix,
    paint_scale,
)
from mha_numpy.draw.matrix_panels import NAME, MatrixPanel, prepare_matrix
from mha_numpy.draw.panels import pixels
from mha_numpy.draw.save import Picture
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError

MAX_SIDE = 512  # rows or columns

# lengths in inches
GUTTER, MAX_WIDTH, MIN_WIDTH = 0.36, 9.6, 3.0
SCALE_WIDTH, SCALE, KEY = 2.0, 0.42, 0.22


class _Layout(NamedTuple):
    """Where heading, panels, scale and keys lie."""

    heading: list[str]
    notes: list[str]
    lines: list[list[int]]  # which panels stand side by side
    tops: list[float]  # of each line, and below the last one
    key_widths: list[float]
    key_lines: list[list[int]]
    keys_at: float
    width: float
    height: float


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
    words = [check_text("meaning", word) for word in meaning]
    labels = [
        None if given is None else check_labels(name, given)
        for name, given in (("row_labels", row_labels), ("column_labels", column_labels))
    ]
    largest = {name: _largest(array) for name, array in values.items()}
    if is_shared:
        largest = dict.fromkeys(largest, max(largest.values()))
    panels = []
    for (name, array), given in zip(values.items(), arrays.values(), strict=True):
        facts = [str(np.shape(given))] + ["no cells"] * (array.size == 0)
        if not is_shared and array.dtype != bool:
            facts.append(f"largest |x| {short_number(largest[name])}")
        panels.append(prepare_matrix(name, array, largest[name], labels, facts))
    scale, keys = _scale_texts(values, largest, is_shared=is_shared), _keys(values, words)
    layout = _lay_out(title, _notes(panels, labels), panels, list(keys), has_scale=bool(scale))

    width, height = layout.width, layout.height
    picture, inches = start_picture(width, height, layout.heading, layout.notes)
    picture.set_label(_alt_text(title, arrays, values, words[0]))
    for line, top in zip(layout.lines, layout.tops, strict=False):
        x = MARGIN
        for i in line:
            at = x + panels[i].left, top + NAME
            paint_matrix(add_matrix_axes(picture, panels[i], at), panels[i])
            x += panels[i].width + GUTTER
    if scale:
        box = MARGIN, height - layout.tops[-1] - 0.14, SCALE_WIDTH, 0.12
        left, bottom, wide, high = np.divide(box, (width, height, width, height)).tolist()
        paint_scale(picture.add_axes((left, bottom, wide, high), label="scale"), scale)
    for number, line in enumerate(layout.key_lines):
        x = MARGIN
        for i in line:
            text = list(keys)[i]
            paint_key(picture, inches, text, keys[text], (x, layout.keys_at + KEY * number))
            x += layout.key_widths[i] + GUTTER
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


def _lay_out(
    title: str, notes: list[str], panels: list[MatrixPanel], keys: list[str], *, has_scale: bool
) -> _Layout:
    """Break panels and keys into lines, and the title to the width of these."""
    lines = _flow([panel.width for panel in panels], GUTTER, MAX_WIDTH)
    key_widths = [widest([text], NOTE_SIZE) + 0.2 for text in keys]
    content = max(sum(panels[i].width for i in line) + GUTTER * (len(line) - 1) for line in lines)
    content = max([content, MIN_WIDTH, 1.05 * widest(notes, NOTE_SIZE), *key_widths])
    heading = wrap_heading(title, max(content, 6.0))
    content = max(content, widest(heading, HEADING_SIZE, weight="bold") + 0.1)
    tops = [pixels(content_at(heading, notes))]
    for line in lines:
        tops.append(tops[-1] + max(panels[i].height for i in line) + 0.2)
    keys_at = tops[-1] + SCALE * has_scale
    key_lines = _flow(key_widths, GUTTER, content)
    height = pixels(keys_at + KEY * len(key_lines) + MARGIN - 0.1)
    width = pixels(content + 2 * MARGIN)
    return _Layout(heading, notes, lines, tops, key_widths, key_lines, keys_at, width, height)


def _flow(widths: list[float], gap: float, limit: float) -> list[list[int]]:
    """Break things of some widths into lines; each line lists which."""
    lines: list[list[int]] = []
    used = np.inf
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


def _keys(values: dict[str, Array], meaning: list[str]) -> dict[str, dict[str, Any]]:
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


def _notes(panels: list[MatrixPanel], labels: list[list[str] | None]) -> list[str]:
    """Say so where not all labels fit."""
    notes = []
    for axis, given in enumerate(labels):
        every = max((panel.columns if axis else panel.rows).every for panel in panels)
        if given is not None and every > 1:
            notes.append(f"Labels: one {('row', 'column')[axis]} of every {every}.")
    return notes


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
