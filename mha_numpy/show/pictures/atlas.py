"""Which step needs the digits: an atlas of what rounding costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.grid import Grid
from mha_numpy.show.pictures.labels import decimal
from mha_numpy.show.pictures.save import Picture

if TYPE_CHECKING:
    from mha_numpy.models.experiments import Result

TITLES = {"error": "Digits lost in {}", "bound": "Digits that can be lost in {}, by its bounds"}
FULL = 1.5  # digits of the strongest colour


def precision_atlas(
    name: str,
    results: Sequence[str] = ("heads", "d_v", "d_q", "d_k"),
    *,
    kind: str = "error",
    result: Result | None = None,
) -> Picture:
    """Draw how many decimal digits of attention each rounded step costs.

    Parameters
    ----------
    name : {"float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2"}
        The format that steps are rounded to.
    results : sequence of str
        Whose digits are counted, two in a panel.
    kind : {"error", "bound"}
        The measured digits, or what computed bounds allow.
    result : Result, optional
        Of your own runs of the experiment "rounding"; default: the published one.

    Returns
    -------
    Picture
        Rows are steps, columns are sizes of the scores.

    Examples
    --------
    >>> picture = precision_atlas("bfloat16", ["d_k"])
    >>> picture.panels[0].desc
    'd_k: up to 1.6 digits, in the row "kernel: lse" for scores of size 16.'
    """
    from mha_numpy.models.experiments import load_result
    from mha_numpy.models.experiments.rounding import (
        ALL,
        KERNEL,
        NAMES,
        RESULTS,
        ROWS,
        SIZES,
        digits_lost,
    )

    name, kind = check_choice("name", name, NAMES), check_choice("kind", kind, TITLES)
    is_list = isinstance(results, (list, tuple)) and len(results) > 0
    if not is_list or any(of not in RESULTS for of in results):
        raise ConfigError(f"results: expected a list of some of {RESULTS}; got {describe(results)}")
    result = load_result("rounding") if result is None else result
    lost = {of: digits_lost(result, of, name, kind=kind) for of in results}
    rows, at_all = [row.removeprefix(KERNEL) for row in ROWS], list(ROWS).index(ALL)
    drawn = []
    for pair in (results[i : i + 2] for i in range(0, len(results), 2)):
        cells = np.concatenate([list(lost[of].values()) for of in pair], axis=1)
        grid = Grid(
            "", " ".join(_in_words(of, lost[of], SIZES) for of in pair),
            np.clip(np.where(np.isfinite(cells), cells, 0) / FULL, 0, 1), None, _texts(cells),
            rows, [str(size) for _ in pair for size in SIZES], broken=_is_beyond(cells),
            widest="9.9", kind="sh", parts=pair, breaks=(at_all, at_all + 1),
        )  # fmt: skip
        drawn.append(grid.draw())
    panels, wide = zip(*drawn, strict=True)
    title = TITLES[kind].format(name)
    notes = [
        "Rows: the step that is rounded. Columns: the standard deviation of the scores.",
        f"One decimal digit: an error ten times that of storing the exact result in {name}.",
        "0: no more than storing costs. Empty: no error.",
        "The last five rows are about the backward of a kernel, which computes the weights again.",
        "Random inputs.",
    ]
    if any(_is_beyond(digits).any() for rows_of in lost.values() for digits in rows_of.values()):
        notes.append(f"Cross-hatched: {'nothing is left' if kind == 'error' else 'no bound'}.")
    alt = f"{title}. {' '.join(panel.desc for panel in panels)}"
    return Picture(panels, title=title, notes=notes, alt=alt, wide=wide)


def _in_words(of: str, lost: Mapping[str, Array], sizes: Sequence[int]) -> str:
    """Say which cell loses most, and in which rows there is nothing to say."""
    known = {row: np.where(np.isfinite(digits), digits, -np.inf) for row, digits in lost.items()}
    row = max(known, key=lambda row: known[row].max())
    size = sizes[int(known[row].argmax())]
    beyond = [f'"{row}"' for row, digits in lost.items() if _is_beyond(digits).any()]
    words = (
        f'{of}: up to {known[row].max():.1f} digits, in the row "{row}" for scores of size {size}'
    )
    return f"{words}; all may be lost in {', '.join(beyond)}." if beyond else f"{words}."


def _is_beyond(lost: Array) -> Array:
    return np.isnan(lost) | (lost == np.inf)


def _texts(lost: Array) -> list[str]:
    """Return a cell's text: with one place, 0 for what is not above 0, none without an error."""
    return [
        decimal(max(round(float(digits), 1), 0), 1) if np.isfinite(digits) else ""
        for digits in lost.flat
    ]
