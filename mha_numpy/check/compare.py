"""compare: say whether arrays hold what was expected, and if not, where they differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_numpy.check.differences import differing, distances, largest_of, two_numbers
from mha_numpy.check.report import Report
from mha_numpy.check.trees import children, leaves
from mha_numpy.core.checks import check_number
from mha_numpy.core.dtypes import Array
from mha_numpy.errors import ConfigError, DTypeError, describe
from mha_numpy.tables import Table

SAME_FACTOR = 1e-6  # how far apart ratios may be and still count as one factor
ROOT = "result"  # the name of what has none
NUMBERS = (bool, int, float, complex)  # of Python
MISSING = object()  # stands where one of the trees has nothing


@dataclass(frozen=True)
class ComparedArray:
    """One array beside the expected one, and what was found in a sentence."""

    name: str
    shape: tuple[int, ...] | None  # None: not an array
    passed: bool
    finding: str


@dataclass(frozen=True)
class Comparison(Report):
    """All arrays of one result; true if each is as expected.

    Examples
    --------
    >>> bool(Comparison([ComparedArray("out", (2,), True, "all 2 numbers agree")]))
    True
    """

    rows: Sequence[ComparedArray]

    def table(self) -> Table:
        """Return one row for each array, in the order of the expected ones."""
        failed = sum(not row.passed for row in self.rows)
        verdict = f"DIFFERS: {failed} of {len(self.rows)}" if failed else "as expected"
        rows = [
            [
                "ok" if r.passed else "FAIL",
                r.name,
                "-" if r.shape is None else str(r.shape),
                r.finding,
            ]
            for r in self.rows
        ]
        bad = frozenset(i for i, row in enumerate(self.rows) if not row.passed)
        return Table(f"comparison: {verdict}", ["", "array", "shape", "finding"], rows, bad)


def compare(
    actual: Any, expected: Any, *, name: str = ROOT, tolerance: float | None = None
) -> Comparison:
    """Compare arrays with the expected ones, and say where the first trouble is.

    Parameters
    ----------
    actual : array, or NamedTuple, tuple, list or dict of arrays
        What somebody's code returned. None or ``...`` counts as not written yet.
    expected : array, or NamedTuple, tuple, list or dict of arrays
        A plain tuple is matched with the fields of a NamedTuple in order.
    name : str
        What the report calls a single array.
    tolerance : float, optional
        Largest error, relative to the largest expected number of the whole set (so that a
        gradient whose true value is 0 may hold rounding errors); default a thousand roundings of
        the coarser of both dtypes: 2e-13 in float64, 1e-4 in float32.

    Returns
    -------
    Comparison
        Prints as a table. For each array the first that holds of: not written yet, not an array,
        wrong dtype, wrong shape, not finite, differs (how many numbers, the worst and where, one
        factor between all), agrees.

    Raises
    ------
    ConfigError
        `expected` holds no array, or `tolerance` is not a positive number.
    DTypeError
        `expected` holds something else than arrays of numbers or bools, numbers, and None.

    Examples
    --------
    >>> print(compare(np.array([[1.0, 2.0], [3.0, 8.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])))
    comparison: DIFFERS: 1 of 1
          array   shape   finding
    ----  ------  ------  ----------------------------------------------------
    FAIL  result  (2, 2)  1 of 4 numbers differ, most at [1, 1]: 8, expected 4
    """
    if tolerance is not None:
        check_number("tolerance", tolerance, positive=True)
    wanted = leaves(expected)
    if not any(_is_array(leaf) for leaf in wanted.values()):
        raise ConfigError(f"expected: expected at least one array; got {describe(expected)}")
    arrays = [_check_expected(path, leaf) for path, leaf in wanted.items() if leaf is not None]
    largest = max(largest_of(array) for array in arrays)
    pairs = _pairs(actual, expected, name)
    return Comparison([_compare_one(*pair, largest, tolerance) for pair in pairs])


def _check_expected(path: str, leaf: Any) -> Array:
    """Return an expected leaf as an array of numbers or bools, or raise an error that names it."""
    array = np.asarray(leaf) if _is_array(leaf) or isinstance(leaf, NUMBERS) else None
    if array is None or array.dtype.kind not in "biufc":
        name = f"expected[{path!r}]" if path else "expected"
        raise DTypeError(f"{name}: expected an array of numbers or bools; got {describe(leaf)}")
    return array


def _pairs(actual: Any, expected: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, actual, expected) for every leaf of either tree."""
    wanted = children(expected)
    if wanted is None:
        if not all(leaf is None or leaf is MISSING for leaf in (actual, expected)):
            yield path, actual, expected
        return
    is_plain = isinstance(actual, (tuple, list)) and not hasattr(actual, "_fields")
    found = children(actual)
    if actual is None or actual is ... or actual is MISSING:
        found = dict.fromkeys(wanted, actual)
    elif is_plain:
        names = [*wanted, *map(str, range(len(wanted), len(actual)))]
        found = dict(zip(names, actual, strict=False))
    elif found is None:
        yield path, actual, tuple(wanted)
        return
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        below = name if path == ROOT else f"{path}.{name}"
        yield from _pairs(found.get(name, MISSING), wanted.get(name, MISSING), below)


def _compare_one(
    name: str, actual: Any, expected: Any, largest: np.floating[Any], tolerance: float | None
) -> ComparedArray:
    """Return what is found about one array."""
    shape = actual.shape if isinstance(actual, (np.ndarray, np.generic)) else None
    if isinstance(expected, tuple):
        trouble = f"expected {', '.join(expected)}; got {_told(actual)}"
    elif expected is MISSING or expected is None:
        trouble = "nothing of this name was expected"
    else:
        trouble = _trouble(actual, np.asarray(expected), largest, tolerance)
    size = np.size(expected)
    agreed = "the number agrees" if size == 1 else f"all {size} numbers agree"
    name = name if name.isprintable() else ascii(name)
    return ComparedArray(name, shape, not trouble, trouble or agreed)


def _is_array(leaf: Any) -> bool:
    """Return whether a leaf holds numbers in NumPy's sense."""
    return isinstance(leaf, (np.ndarray, np.generic))


def _told(value: Any) -> str:
    """Say what somebody's code returned, even where that fails at saying it."""
    try:
        return describe(value)
    except Exception:  # anybody's __repr__; lists nested too deep
        return f"an object of type {type(value).__name__}"


def _trouble(
    actual: Any, expected: Array, largest: np.floating[Any], tolerance: float | None
) -> str:
    """Say what is wrong with an array, or nothing."""
    if actual is None or actual is ...:
        return f"not written yet: the function returned {actual!r}"
    if actual is MISSING:
        return "missing: nothing of this name was returned"
    if np.ma.isMaskedArray(actual):
        return "expected a plain array; got a masked one: x.filled(0) is plain"
    is_number = isinstance(actual, NUMBERS) and expected.ndim == 0
    if not (_is_array(actual) or is_number):
        return f"expected an array {expected.shape} of {expected.dtype}; got {_told(actual)}"
    actual = np.asarray(actual)
    if actual.dtype.kind != expected.dtype.kind:
        return f"expected {expected.dtype}; got {actual.dtype}"
    if actual.shape != expected.shape:
        hint = ""
        if actual.ndim > 1 and actual.swapaxes(-1, -2).shape == expected.shape:
            hint = ": the last two axes are exchanged"
        elif actual.size == expected.size:
            hint = ": as many numbers, other axes"
        return f"expected shape {expected.shape}; got {actual.shape}{hint}"
    differs = differing(actual, expected, largest, tolerance)
    return _where(actual, expected, differs) if differs.any() else ""


def _where(actual: Array, expected: Array, differs: Array) -> str:
    """Say how many numbers differ, which is the worst, and whether one factor explains all."""
    error = distances(actual, expected)
    error = np.where(differs, np.where(np.isnan(error), np.inf, error), -1)
    worst = np.unravel_index(error.argmax(), error.shape)
    at = f" at {[int(i) for i in worst]}" if worst else ""
    got, wanted = two_numbers(actual[worst], expected[worst])
    many = f"{differs.sum()} of {differs.size} numbers differ, most{at}: {got}, expected {wanted}"
    return many + (_narrower(actual, expected) or _one_factor(actual, expected))


def _narrower(actual: Array, expected: Array) -> str:
    """Say that only the dtype is to blame, where it is."""
    is_narrower = actual.dtype.itemsize < expected.dtype.itemsize
    if not is_narrower or differing(actual, expected, largest_of(expected)).any():
        return ""
    return f"; right as far as {actual.dtype} goes, and {expected.dtype} was asked for"


def _one_factor(actual: Array, expected: Array) -> str:
    """Say that all numbers are off by the same factor, where they are."""
    counts = np.isfinite(actual) & np.isfinite(expected) & (expected != 0)
    if counts.sum() < 2 or not np.isfinite(actual).all() or (actual[~counts] != 0).any():
        return ""
    with np.errstate(over="ignore", invalid="ignore"):  # 1 / 5e-324, and the median of such
        ratios = actual[counts] / expected[counts]
        factor = np.median(ratios)
        is_same = np.abs(ratios - factor) <= SAME_FACTOR * np.abs(factor)
    if not is_same.all():
        return ""
    return "; all are 0" if factor == 0 else f"; each is {factor:.6g} times what was expected"
