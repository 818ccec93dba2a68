"""compare: say whether arrays are as expected, and if not, where they differ."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_numpy.checking.differences import differing, distances, largest_of, two_numbers
from mha_numpy.checking.patterns import find_pattern
from mha_numpy.checking.report import Report
from mha_numpy.checking.trees import children, leaves
from mha_numpy.checks import check_number
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, DTypeError, describe
from mha_numpy.tables import Table

ROOT = "result"  # the name of what has none
NUMBERS = (bool, int, float, complex)  # of Python
MISSING = object()  # where one of the trees has no leaf


@dataclass(frozen=True)
class ComparedArray:
    """One array next to the expected one, and the finding in a sentence."""

    name: str
    shape: tuple[int, ...] | None  # None: not an array
    trouble: str  # the first of: "unwritten", "type", "shape", "finite", "values"; "" without any
    finding: str

    @property
    def passed(self) -> bool:
        """Whether the array is as expected."""
        return not self.trouble


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """All arrays of one result; true if each is as expected.

    Examples
    --------
    >>> bool(Comparison([ComparedArray("out", (2,), "", "all 2 numbers agree")]))
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
        The result of the code under test. None or ``...`` counts as not written yet.
    expected : array, or NamedTuple, tuple, list or dict of arrays
        A plain tuple is matched with the fields of a NamedTuple in order; names may differ in case
        and underscores.
    name : str
        What the report calls a single array.
    tolerance : float, optional
        Largest error, relative to the largest expected number of the whole set, so that a gradient
        whose true value is 0 may have rounding errors. Default: a thousand roundings of the coarser
        of both dtypes, 2e-13 in float64 and 1e-4 in float32.

    Returns
    -------
    Comparison
        Prints as a table. It shows the first of these findings for each array: not written yet,
        not an array, wrong dtype, wrong shape, not finite, differs (how many numbers, the worst
        and where, one factor between all), agrees.

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
    pairs = matched(actual, expected, name)
    return Comparison([_compare_one(*pair, largest, tolerance) for pair in pairs])


def agrees(actual: Any, expected: Any, *, tolerance: float | None = None) -> bool:
    """Return whether `compare` would pass, without looking for the reason.

    Parameters
    ----------
    actual, expected, tolerance
        As in `compare`.

    Returns
    -------
    bool

    Examples
    --------
    >>> agrees((np.ones(2), np.zeros(3)), {"d_x": np.ones(2), "d_b": np.zeros(3)})
    True
    """
    return all(agreeing(actual, expected, tolerance=tolerance))


def agreeing(actual: Any, expected: Any, *, tolerance: float | None = None) -> Iterator[bool]:
    """Yield for each array, in the order of the expected ones, whether it is as expected."""
    arrays = [np.asarray(leaf) for leaf in leaves(expected).values() if leaf is not None]
    largest = max(map(largest_of, arrays), default=np.longdouble(0))
    for _, one, other in matched(actual, expected):
        is_fit = not _misfit(one, other)[0]
        yield bool(
            is_fit and not differing(np.asarray(one), np.asarray(other), largest, tolerance).any()
        )


def _check_expected(path: str, leaf: Any) -> Array:
    array = np.asarray(leaf) if _is_array(leaf) or isinstance(leaf, NUMBERS) else None
    if array is None or array.dtype.kind not in "biufc":
        name = f"expected[{path!r}]" if path else "expected"
        raise DTypeError(f"{name}: expected an array of numbers or bools; got {describe(leaf)}")
    return array


def matched(actual: Any, expected: Any, path: str = ROOT) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, actual, expected) for every leaf of either tree."""
    wanted = children(expected)
    if wanted is None:
        if not all(leaf is None or leaf is MISSING for leaf in (actual, expected)):
            yield path, actual, expected
        return
    is_plain = _is_plain(actual)
    found = children(actual)
    if actual is None or actual is ... or actual is MISSING:
        found = dict.fromkeys(wanted, actual)
    elif found is None or (is_plain and len(actual) > len(wanted)):
        yield path, actual, tuple(_below(ROOT, name, expected) for name in wanted)
        return
    elif is_plain:
        found = dict(zip(wanted, actual, strict=False))
    found = {_spelled_as(wanted, name): child for name, child in found.items()}
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        below = _below(path, name, expected)
        yield from matched(found.get(name, MISSING), wanted.get(name, MISSING), below)


def _is_plain(tree: Any) -> bool:
    """Return whether the children of a tree have positions but no names."""
    return isinstance(tree, (tuple, list)) and not hasattr(tree, "_fields")


def _below(path: str, name: str, tree: Any) -> str:
    """Return the name of a child of a tree; a single array is never called "1"."""
    if _is_plain(tree):
        return f"{path}[{name}]"
    return name if path == ROOT else f"{path}.{name}"


def _spelled_as(names: Iterable[str], name: str) -> str:
    """Return the name that differs only in case or underscores, such as dQ for d_q."""
    plain = name.replace("_", "").lower()
    return next((other for other in names if other.replace("_", "").lower() == plain), name)


def _compare_one(
    name: str, actual: Any, expected: Any, largest: np.floating[Any], tolerance: float | None
) -> ComparedArray:
    shape = actual.shape if isinstance(actual, (np.ndarray, np.generic)) else None
    found = _misfit(actual, expected)
    if not found[0]:
        found = _difference(np.asarray(actual), np.asarray(expected), largest, tolerance)
    size = np.size(expected)
    agreed = "the number agrees" if size == 1 else f"all {size} numbers agree"
    name = name if name.isprintable() else ascii(name)
    return ComparedArray(name, shape, found[0], found[1] or agreed)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic))


def _told(value: Any) -> str:
    """Describe the result of the code under test, even if its repr fails."""
    if isinstance(value, (tuple, list, dict)) and len(value):
        return f"a {type(value).__name__} of {len(value)}"
    try:
        return describe(value)
    except Exception:  # anybody's __repr__; lists nested too deep
        return f"an object of type {type(value).__name__}"


def _misfit(actual: Any, expected: Any) -> tuple[str, str]:
    """Return why numbers cannot be compared, as a kind and in words; both "" if they can."""
    if isinstance(expected, tuple):
        return "type", f"expected {', '.join(expected)}; got {_told(actual)}"
    if expected is MISSING or expected is None:
        return "type", "no array of this name was expected"
    if actual is None or actual is ...:
        return "unwritten", f"not written yet: the function returned {actual!r}"
    if actual is MISSING:
        return "type", "missing: no array of this name was returned"
    if np.ma.isMaskedArray(actual):
        return "type", "expected a plain array; got a masked one: return x.filled(0) instead"
    expected = np.asarray(expected)
    is_number = isinstance(actual, NUMBERS) and expected.ndim == 0
    if not (_is_array(actual) or is_number):
        wanted = f"an array {expected.shape} of {expected.dtype}"
        hint = ": np.array(x) makes one" if _could_be_array(actual, expected) else ""
        return "type", f"expected {wanted}; got {_told(actual)}{hint}"
    actual = np.asarray(actual)
    if actual.dtype.kind != expected.dtype.kind:
        return "type", f"expected {expected.dtype}; got {actual.dtype}"
    if actual.shape != expected.shape:
        hint = ""
        if actual.ndim > 1 and actual.swapaxes(-1, -2).shape == expected.shape:
            hint = ": the last two axes are swapped"
        elif actual.size == expected.size:
            hint = ": the same number of numbers, other axes"
        return "shape", f"expected shape {expected.shape}; got {actual.shape}{hint}"
    return "", ""


def _could_be_array(actual: Any, expected: Array) -> bool:
    try:
        return isinstance(actual, (list, tuple)) and np.shape(actual) == expected.shape
    except ValueError:  # of several lengths
        return False


def _difference(
    actual: Array, expected: Array, largest: np.floating[Any], tolerance: float | None
) -> tuple[str, str]:
    differs = differing(actual, expected, largest, tolerance)
    if not differs.any():
        return "", ""
    is_broken = actual.dtype.kind in "fc" and (differs & ~np.isfinite(actual)).any()
    return "finite" if is_broken else "values", _where(actual, expected, differs)


def _where(actual: Array, expected: Array, differs: Array) -> str:
    error = distances(actual, expected)
    error = np.where(differs, np.where(np.isnan(error), np.inf, error), -1)
    worst = np.unravel_index(error.argmax(), error.shape)
    at = f" at {[int(i) for i in worst]}" if worst else ""
    got, wanted = two_numbers(actual[worst], expected[worst])
    what = "values" if expected.dtype.kind == "b" else "numbers"
    many = f"{differs.sum()} of {differs.size} {what} differ, most{at}: " * (differs.size > 1)
    many += f"{got}, expected {wanted}"
    more = _narrower(actual, expected) or find_pattern(actual, expected)
    return many + (f"; {more}" if more else "")


def _narrower(actual: Array, expected: Array) -> str:
    is_narrower = actual.dtype.itemsize < expected.dtype.itemsize
    if not is_narrower or differing(actual, expected, largest_of(expected)).any():
        return ""
    return f"right to the precision of {actual.dtype}, but {expected.dtype} is expected"
