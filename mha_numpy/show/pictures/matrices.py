"""Arrays side by side: numbers by sign and size, masks by who may attend."""

from collections.abc import Mapping, Sequence

import numpy as np

from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.blocks import is_broken, is_hidden
from mha_numpy.show.pictures.grid import MAX_NUMBERS, Grid
from mha_numpy.show.pictures.labels import (
    check_labels,
    check_text,
    decimal,
    named_arrays,
    printable,
    short_number,
)
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import Drawing

MAX_SIDE = 512  # rows or columns
LONGEST_NAME = 40  # characters
MAY_ATTEND = 0.4  # of full colour


def matrices(
    arrays: Mapping[str, Array],
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str = "",
    shared: bool = True,
    heads: Sequence[Sequence[int]] | None = None,
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
    heads : sequences of integers, optional
        For each array, the heads that its columns belong to, block by block: ``[[0, 1], [1]]`` is
        an array of both heads, side by side, and then one of head 1. Default: none has a colour.
    meaning : (str, str)
        What True and False say; they are a mask's unless written.

    Returns
    -------
    Picture
        One panel for each array.

    Notes
    -----
    A filled cell is more than 0, a ring less; the stronger, the further from 0. Up to 12 by 12
    cells have their numbers. A False of a mask and -inf are hatched as hidden, NaN and +inf are
    cross-hatched. Where not all labels fit, every second, third, ... is written; an axis of more
    than 12 without labels is counted from 0.

    Examples
    --------
    >>> p = np.array([0.75, 0.25])
    >>> picture = matrices({"p": p, "jacobian": np.diag(p) - np.outer(p, p)})
    >>> [panel.title for panel in picture.panels]
    ['p', 'jacobian']
    >>> picture.alt
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
    owners: Sequence[Sequence[int]] = [()] * len(values) if heads is None else heads
    sizes = [array.shape[-1] for array in values.values()]
    if [n % max(1, len(of)) for n, of in zip(sizes, owners, strict=False)] != [0] * len(values):
        raise ConfigError(f"heads: expected equal blocks of columns of each array; got {heads!r}")
    drawn = []
    for (name, array), blocks in zip(values.items(), owners, strict=True):
        facts = [str(array.shape)] + ["no cells"] * (array.size == 0)
        if not is_shared and array.dtype != bool:
            facts.append(f"largest |x| {short_number(largest[name])}")
        grid = _grid(name, np.atleast_2d(array), largest[name], labels, facts, words[0])
        drawn.append(grid._replace(blocks=blocks).draw())
    panels, wide = zip(*drawn, strict=True)
    has_plain = any(max(array.shape) > MAX_NUMBERS for array in values.values())
    notes = _notes(values, words, largest if has_plain and is_shared else {})
    if any('class="less"' in text and 'class="n' not in text for text in map(_drawn, panels)):
        notes.insert(0, "Rings mark negative numbers.")
    return Picture(
        panels, title=title, notes=notes, alt=_alt_text(title, values, words[0]), wide=wide
    )


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


def _grid(
    name: str, values: Array, full: float, labels: list[list[str] | None], facts: list[str],
    meaning: str,
) -> Grid:  # fmt: skip
    rows, columns = (
        _labels_of(name, axis, given, size)
        for axis, given, size in zip(("row", "column"), labels, values.shape, strict=True)
    )
    if values.dtype == bool:
        shares, hidden, broken = MAY_ATTEND * values, ~values, None
    else:
        shares = np.where(np.isfinite(values), values, 0.0) / (full or 1.0)
        hidden, broken = is_hidden(values), is_broken(values)
    has_numbers = max(values.shape) <= MAX_NUMBERS and values.dtype != bool and values.size
    return Grid(
        printable(name, LONGEST_NAME), f"{name} {_in_words(values, meaning)}", shares, None,
        _cell_texts(values) if has_numbers else (), rows, columns, hidden, broken, facts=facts,
    )  # fmt: skip


def _labels_of(name: str, axis: str, labels: list[str] | None, size: int) -> list[str] | None:
    if labels is None or size <= 1 < len(labels):
        return None
    if len(labels) != size:
        raise ConfigError(
            f"{axis}_labels: expected {size} of them for arrays[{name!r}]; got {len(labels)}"
        )
    return labels


def _cell_texts(values: Array) -> list[str]:
    """Return the cells' texts: few characters, with one number of places for all."""
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


def _notes(values: dict[str, Array], meaning: list[str], largest: Mapping[str, float]) -> list[str]:
    """Say what cells mean that are no plain numbers, and how much full colour is without any."""
    masks = [array for array in values.values() if array.dtype == bool]
    numbers = [array for array in values.values() if array.dtype != bool]
    notes = []
    if any(largest.values()):
        notes.append(f"The strongest colour stands for {short_number(max(largest.values()))}.")
    if any(array.any() for array in masks):
        notes.append(f"Filled (True): {meaning[0]}.")
    names = [f"False: {meaning[1]}"] * any(not array.all() for array in masks)
    names += ["-inf: hidden"] * any(is_hidden(array).any() for array in numbers)
    if names == ["False: hidden", "-inf: hidden"]:
        names = ["False or -inf: hidden"]
    notes += [f"Hatched ({name.replace(':', '):')}." for name in names]
    if any(is_broken(array).any() for array in numbers):
        notes.append("Cross-hatched: NaN or +inf.")
    return notes


def _drawn(panel: Drawing) -> str:
    return "".join(panel.parts)


def _alt_text(title: str, values: dict[str, Array], meaning: str) -> str:
    told = [f"{name} {_in_words(array, meaning)}" for name, array in values.items()]
    heading = f"{title}. " if title else ""
    return f"{heading}{len(told)} array{'s' * (len(told) > 1)}: {'; '.join(told)}."


def _in_words(array: Array, meaning: str) -> str:
    """Return an array's shape, and from where to where its numbers go."""
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
    return f"{array.shape}, {words}"
