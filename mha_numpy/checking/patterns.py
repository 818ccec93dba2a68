"""How an array is related to the expected one, if it is not equal to it."""

from collections.abc import Callable, Iterator

import numpy as np

from mha_numpy.dtypes import Array

SAME = 1e-6  # how far apart two numbers may be, relative to the largest, and still count as one
NEAR = 1e-3  # of the largest number: closer arrays fit every pattern
MOST = 64  # indices of an axis that are tried out against each other


def find_pattern(actual: Array, expected: Array) -> str:
    """Say in a clause how the actual array follows from the expected one, or return "".

    Parameters
    ----------
    actual, expected : arrays of one shape

    Returns
    -------
    str
        The first of these that is true: one factor; one distance; the last two axes swapped; the
        indices of an axis in a different order; a separate factor or distance for each index of
        some axes; the same numbers in different places; all differences at one index of an axis.
        Empty if none is.

    Examples
    --------
    >>> expected = np.array([[1.0, 2.0, 3.0], [5.0, 7.0, 11.0]])
    >>> find_pattern(expected / 4, expected)
    'each is 0.25 times the expected number'
    >>> find_pattern(expected[:, ::-1], expected)
    'the expected array, with the indices of axis 1 in the order [2, 1, 0]'
    >>> find_pattern(expected + [[1.0], [2.0]], expected)
    'each index of axis 0 is off by its own number'
    """
    if actual.dtype.kind not in "fc":
        return _where_alone(actual, expected)
    patterns: list[Callable[[Array, Array], str]] = [_where_alone]
    if np.isfinite(actual).all() and np.isfinite(expected).all() and actual.size > 1:
        patterns = [_one_factor, _one_distance, _exchanged, _reordered, _own_factor, _own_distance,
                    _moved, _where_alone]  # fmt: skip
    with np.errstate(all="ignore"):  # 1e308 / 1e-308, and such
        off, largest = np.abs(actual - expected).max(initial=0), np.abs(expected).max(initial=0)
        if off <= NEAR * largest:  # then everything fits
            patterns = [_where_alone]
        return next(filter(None, (pattern(actual, expected) for pattern in patterns)), "")


def _agree(one: Array, other: Array) -> bool:
    return bool((np.abs(one - other) <= SAME * np.abs(other).max(initial=0)).all())


def _factors(actual: Array, expected: Array, axes: tuple[int, ...]) -> Array:
    """Return the factor of each index of the other axes, by least squares."""
    size = (expected * expected).sum(axis=axes, keepdims=True)
    return (actual * expected).sum(axis=axes, keepdims=True) / np.where(size == 0, 1, size)


def _one_factor(actual: Array, expected: Array) -> str:
    factor = _factors(actual, expected, tuple(range(actual.ndim))).item()
    is_small = np.abs(actual).max() <= SAME * np.abs(expected).max()
    if is_small:
        return "" if actual.any() else "all are 0"
    if np.count_nonzero(expected) < 2 or not _agree(actual, factor * expected):
        return ""
    return f"each is {factor:.6g} times the expected number"


def _one_distance(actual: Array, expected: Array) -> str:
    distance = (actual - expected).mean()
    if not _agree(actual - expected, np.full_like(actual, distance)):
        return ""
    return f"each is off by {distance:.6g}"


def _exchanged(actual: Array, expected: Array) -> str:
    is_square = actual.ndim > 1 and actual.shape[-1] == actual.shape[-2]
    if is_square and _agree(actual.swapaxes(-1, -2), expected):
        return "the expected array, with the last two axes swapped"
    return ""


def _reordered(actual: Array, expected: Array) -> str:
    for axis, size in enumerate(actual.shape):
        if not 2 <= size <= MOST:
            continue
        mine, theirs = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (actual, expected))
        order = [int(np.abs(theirs - row).max(axis=1).argmin()) for row in mine]
        if _agree(mine, theirs[order]):
            return f"the expected array, with the indices of axis {axis} in the order {order}"
    return ""


def _own_factor(actual: Array, expected: Array) -> str:
    for kept, summed in _axes(actual, expected):
        if _agree(actual, _factors(actual, expected, summed) * expected):
            return f"each index of {kept} has its own factor"
    return ""


def _own_distance(actual: Array, expected: Array) -> str:
    off = actual - expected
    for kept, summed in _axes(actual, expected):
        if _agree(off, np.broadcast_to(off.mean(axis=summed, keepdims=True), off.shape)):
            return f"each index of {kept} is off by its own number"
    return ""


def _axes(actual: Array, expected: Array) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the words for one axis, or all but the last, and the other axes, of several indices.

    Numbers are off at more than one of these indices.
    """
    shape, is_off = actual.shape, ~np.isclose(actual, expected, rtol=SAME, atol=0)
    alone = [(axis,) for axis in range(len(shape))]
    leading = [tuple(range(len(shape) - 1))] * (len(shape) > 2)
    for kept in [*alone, *leading]:
        others = tuple(axis for axis in range(len(shape)) if axis not in kept)
        if np.prod([shape[axis] for axis in others]) > 2 and is_off.any(axis=others).sum() > 1:
            name = f"axis {kept[0]}" if len(kept) == 1 else f"axes 0 to {kept[-1]}"
            yield name, others


def _moved(actual: Array, expected: Array) -> str:
    mine, theirs = np.sort(actual, axis=None), np.sort(expected, axis=None)
    return "the same numbers, in different places" if _agree(mine, theirs) else ""


def _where_alone(actual: Array, expected: Array) -> str:
    off = ~(np.isclose(actual, expected, rtol=SAME, atol=0, equal_nan=True))
    for axis, size in enumerate(actual.shape):
        others = tuple(i for i in range(actual.ndim) if i != axis)
        indices = np.flatnonzero(off.any(axis=others))
        if size > 1 and len(indices) == 1 and off.sum() > 1:
            return f"all of them at index {indices[0]} of axis {axis}"
    return ""
