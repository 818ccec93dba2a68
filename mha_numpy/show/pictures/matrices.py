"""Arrays side by side: numbers by sign and size, masks by who may attend."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.palette import PALETTE
from mha_numpy.show.pictures.blocks import is_broken, is_hidden
from mha_numpy.show.pictures.cells import NUMBER_SIZE, SCALE, label_cells, paint_cells, paint_scale
from mha_numpy.show.pictures.colors import BROKEN, GREY, HIDDEN, INK, MUTED, fade
from mha_numpy.show.pictures.labels import check_labels, check_text, named_arrays, short_number
from mha_numpy.show.pictures.layout import flow, patch, start_page
from mha_numpy.show.pictures.matrix_panels import NAME_SIZE, MatrixPanel, prepare_matrix
from mha_numpy.show.pictures.save import Picture

MAX_SIDE = 512  # rows or columns
SIGNED = LinearSegmentedColormap.from_list(
    "negative, white, positive", [PALETTE[1], "#ffffff", PALETTE[0]], N=257
)
MAY_ATTEND = fade(PALETTE[0])(0.3)


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
    for (name, array), given in zip(values.items(), arrays.values(), strict=True):
        facts = [str(np.shape(given))] + ["no cells"] * (array.size == 0)
        if not is_shared and array.dtype != bool:
            facts.append(f"largest |x| {short_number(largest[name])}")
        panels.append(prepare_matrix(name, array, largest[name], labels, facts))
    rows, scale = flow([panel.box for panel in panels]), _scale_texts(values, largest, is_shared)
    picture, axes = start_page(
        rows + [[SCALE]] * bool(scale), title, _notes(panels, labels), legend=_legend(values, words)
    )
    picture.set_label(_alt_text(title, arrays, values, words[0]))
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
    return {name: np.atleast_2d(array) for name, array in values.items()}


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
    has_hidden = any(is_hidden(array).any() for array in numbers)
    has_false = any(not array.all() for array in masks)
    legend = {}
    if any(array.any() for array in masks):
        legend[f"True: {meaning[0]}"] = patch(facecolor=MAY_ATTEND, linewidth=0.5)
    names = [f"False: {meaning[1]}"] * has_false + ["-inf: hidden"] * has_hidden
    if names == ["False: hidden", "-inf: hidden"]:
        names = ["False or -inf: hidden"]
    legend |= {name: patch(facecolor="none", hatch=HIDDEN) for name in names}
    if any(is_broken(array).any() for array in numbers):
        legend["NaN or +inf"] = patch(facecolor="none", hatch=BROKEN)
    return legend


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


def _paint(ax: Axes, panel: MatrixPanel) -> None:
    values = panel.values
    rows, columns = values.shape
    ax.set_label(f"matrix {panel.name}")
    ax.set_title(
        panel.name, loc="left", fontsize=NAME_SIZE, fontweight="bold", fontfamily="monospace",
        color=INK, pad=5, parse_math=False,
    )  # fmt: skip
    ax.spines[:].set(edgecolor=GREY, linewidth=0.8)
    ax.annotate(
        "\n".join(panel.facts), (0, 0), (0, -72 * panel.below), xycoords="axes fraction",
        textcoords="offset points", va="top", fontsize=NUMBER_SIZE, fontfamily="monospace",
        color=MUTED, parse_math=False,
    )  # fmt: skip
    if values.size:
        is_shown = values if panel.is_mask else np.isfinite(values)
        if panel.is_mask:
            colors = np.where(values[..., None], MAY_ATTEND, 1.0)
        else:
            colors = SIGNED(0.5 + 0.5 * np.where(is_shown, values, 0.0) / (panel.full or 1.0))
        hidden = ~values if panel.is_mask else is_hidden(values)
        broken = ~is_shown & ~hidden
        paint_cells(ax, colors, panel.numbers, hidden, broken, min(panel.cell))
    ax.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    label_cells(ax, panel.rows, panel.columns, is_turned=panel.is_turned)
