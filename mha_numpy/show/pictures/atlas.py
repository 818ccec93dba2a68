"""Which step needs the digits: an atlas of what rounding costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.checking.rounding import FORMATS
from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.grid import Grid
from mha_numpy.show.pictures.labels import decimal
from mha_numpy.show.pictures.save import Picture

if TYPE_CHECKING:
    from mha_numpy.models.experiments import Result

TITLES = {"one": "Digits lost in {}", "bound": "Digits that can be lost at most in {}"}


def precision_atlas(
    name: str,
    results: Sequence[str] = ("heads", "d_v", "d_q", "d_k"),
    *,
    kind: str = "one",
    result: Result | None = None,
) -> Picture:
    """Draw how many decimal digits of attention each rounded step costs.

    Parameters
    ----------
    name : {"float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2"}
        The format that steps are rounded to.
    results : sequence of str
        Whose digits are counted, two in a panel.
    kind : {"one", "bound"}
        What was measured, or what computed bounds allow.
    result : Result, optional
        Of your own runs of the experiment "rounding"; default: the published one.

    Returns
    -------
    Picture
        Rows are steps, columns are sizes of the scores. Full colour is all digits of the format.

    Examples
    --------
    >>> picture = precision_atlas("bfloat16", ["d_k"])
    >>> picture.panels[0].desc
    'd_k loses most, 1.6 digits, if again: lse is rounded and scores are of size 16.'
    """
    from mha_numpy.models.experiments import load_result
    from mha_numpy.models.experiments.rounding import NAMES, RESULTS, ROWS, SIZES, digits_lost

    name, kind = check_choice("name", name, NAMES), check_choice("kind", kind, TITLES)
    if isinstance(results, str) or not results or any(of not in RESULTS for of in results):
        raise ConfigError(f"results: expected some of {RESULTS}; got {describe(results)}")
    result = load_result("rounding") if result is None else result
    rows, digits = list(ROWS), -np.log10(FORMATS[name].unit)
    arrays = {of: digits_lost(result, of, name, kind=kind) for of in results}
    drawn = []
    pairs = [results[i : i + 2] for i in range(0, len(results), 2)]
    for pair in pairs:
        lost = np.concatenate([arrays[of] for of in pair], axis=1)
        grid = Grid(
            "", " ".join(_in_words(of, arrays[of], rows, SIZES) for of in pair),
            np.clip(np.where(np.isfinite(lost), lost, 0) / digits, 0, 1), None, _texts(lost),
            rows, [str(size) for _ in pair for size in SIZES],
            broken=_is_beyond(lost), widest="9.9", kind="sh", parts=pair,
        )  # fmt: skip
        drawn.append(grid.draw())
    panels, wide = zip(*drawn, strict=True)
    title = TITLES[kind].format(name)
    notes = [
        "Rows: the step that is rounded. Columns: the size of the scores.",
        f"One digit is lost if the error is ten times that of storing the exact result in {name}, "
        f"which has {digits:.1f} digits; full colour is all of them.",
        "Empty: no error. 0: no more than storing costs.",
        "The last four rows are about a backward that computes the weights again from lse.",
    ]
    if any(_is_beyond(lost).any() for lost in arrays.values()):
        notes.append(f"Cross-hatched: {'nothing is left' if kind == 'one' else 'no bound'}.")
    alt = f"{title}. {' '.join(panel.desc for panel in panels)}"
    return Picture(panels, title=title, notes=notes, alt=alt, wide=wide)


def _in_words(of: str, lost: Array, rows: Sequence[str], sizes: Sequence[int]) -> str:
    """Say which cell loses most, of those in which something is left."""
    known = np.where(np.isfinite(lost), lost, -np.inf)
    row, column = divmod(int(known.argmax()), len(sizes))
    return (
        f"{of} loses most, {known.max():.1f} digits, if {rows[row]} is rounded and scores are of "
        f"size {sizes[column]}."
    )


def _is_beyond(lost: Array) -> Array:
    return np.isnan(lost) | (lost == np.inf)


def _texts(lost: Array) -> list[str]:
    """Return a cell's text: with one place, 0 for what is not above 0, none without an error."""
    texts = []
    for digits in lost.flat:
        is_number = np.isfinite(digits)
        texts.append(decimal(max(round(float(digits), 1), 0), 1) if is_number else "")
    return texts
