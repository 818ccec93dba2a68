"""How another library stores our params: rows of a table, read in both directions."""

import math
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array

BY_HEAD = {"by head": "H", "by key head": "H_k"}  # and how many heads there are


class Row(NamedTuple):
    """One array of theirs, and which params are in it.

    ``theirs = stored(concatenate(ours, axis=-1))``, where stored is "same", "transposed",
    "by head" or "by key head" (each head's columns of all, then transposed), "in turns" (the first
    column of each, then the second of each), "less 1" (a gain that is stored as what it has above
    1), "channels" (of a convolution, transposed), or the axes that the array is split into, such as
    "D H d_k" or "1 H*d_k".
    """

    theirs: str  # its name; {i} counts layers
    ours: str  # the name of a param, or of several that lie side by side
    stored: str = "same"
    beside: str = ""  # a param without which there is no such row, where layers differ in kind


class Layout(NamedTuple):
    """The layout of another library's layer or model in a file."""

    rows: tuple[Row, ...]
    prefix: str = ""  # of their names, in files that hold more than this model
    ignored: tuple[str, ...] = ()  # patterns of names that are no params here
    renamed: tuple[tuple[str, str], ...] = ()  # how names ended in older files, and do now


def under(theirs: str, ours: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of a part, with the names that it has in the whole."""
    return tuple(
        row._replace(
            theirs=theirs + row.theirs, ours=" ".join(ours + name for name in row.ours.split()),
            beside=row.beside and ours + row.beside,
        )
        for row in rows
    )  # fmt: skip


def to_theirs(
    params: Mapping[str, Array],
    layout: Layout,
    sizes: Mapping[str, int],
    join: Callable[[list[Array]], Array],
    *,
    gradients: bool = False,
) -> dict[str, Array]:
    """Return params, or their gradients, as the other library stores them."""

    def stored(row: Row) -> Array:
        arrays = [params[name] for name in row.ours.split()]
        if row.stored == "in turns":
            pairs = join([x[..., None] for x in arrays])
            return pairs.reshape(*pairs.shape[:-2], -1)
        if row.stored not in BY_HEAD:
            as_stored = "same" if gradients and row.stored == "less 1" else row.stored
            return _store(join(arrays), as_stored, sizes)
        by_head = join([x.reshape(len(x), sizes[BY_HEAD[row.stored]], -1) for x in arrays])
        return by_head.reshape(len(by_head), -1).T

    return {row.theirs: stored(row) for row in _rows_of(params, layout)}


def side_by_side(arrays: list[Array]) -> Array:
    """Return arrays side by side; a single one as it is."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)


def outline(arrays: list[Array]) -> Array:
    """Return a single zero in the shape of `side_by_side`: it takes no memory."""
    shape = (*arrays[0].shape[:-1], sum(array.shape[-1] for array in arrays))
    return np.broadcast_to(np.zeros((), arrays[0].dtype), shape)


def to_ours(
    theirs: Mapping[str, Array],
    layout: Layout,
    params: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> dict[str, Array]:
    """Return params of the shapes in `params`, from the other library's arrays by `plain_names`."""
    found: dict[str, Array] = {}
    for row in _rows_of(params, layout):
        names = row.ours.split()
        whole = theirs[row.theirs.removeprefix(layout.prefix)]
        heads = sizes[BY_HEAD[row.stored]] if row.stored in BY_HEAD else 1
        if row.stored == "transposed" or row.stored in BY_HEAD:
            whole = whole.T
        elif row.stored == "channels":
            whole = whole[:, 0].T
        elif row.stored == "less 1":
            dtype = np.promote_types(whole.dtype, params[row.ours].dtype)
            whole = whole.astype(dtype) + 1  # in the dtype of a narrow file it would be rounded
        elif row.stored == "in turns":
            n = len(names)
            whole = np.concatenate([whole[..., i::n] for i in range(n)], axis=-1)
        elif row.stored != "same":
            whole = whole.reshape(params[row.ours].shape)
        ends = np.cumsum([params[name].shape[-1] // heads for name in names])
        if heads > 1:
            whole = whole.reshape(len(whole), heads, -1)
        for name, part in zip(names, np.split(whole, ends[:-1], axis=-1), strict=True):
            found[name] = part.reshape(params[name].shape)
    return found


def plain_names(theirs: Mapping[str, Array], layout: Layout) -> dict[str, Array]:
    """Return their arrays by the names in the layout's rows; without those that are ignored."""
    found = {}
    for name, array in theirs.items():
        name = name.removeprefix(layout.prefix)
        for old, new in layout.renamed:
            name = name.removesuffix(old) + new if name.endswith(old) else name
        if not any(fnmatch(name, pattern) for pattern in layout.ignored):
            found[name] = array
    return found


def left_out(params: Mapping[str, Array], layout: Layout) -> list[str]:
    """Return the names of params that no row holds."""
    held = {name for row in _rows_of(params, layout) for name in row.ours.split()}
    return [name for name in params if name not in held]


def names_in(params: Mapping[str, Array], layout: Layout) -> set[str]:
    """Return the names under which the other library stores these params."""
    return {row.theirs for row in _rows_of(params, layout)}


def _rows_of(params: Mapping[str, Array], layout: Layout) -> Iterator[Row]:
    """Yield the rows whose params exist, once for each layer."""
    blocks = {name.split(".")[1] for name in params if name.startswith("blocks.")}
    for row in layout.rows:
        for i in range(len(blocks)) if "{i}" in row.ours else [0]:
            theirs, ours, stored, beside = (part.replace("{i}", str(i)) for part in row)
            if all(name in params for name in f"{ours} {beside}".split()):
                yield Row(theirs, ours, stored)


def _store(array: Array, stored: str, sizes: Mapping[str, int]) -> Array:
    """Return an array as it is stored; a view."""
    if stored == "channels":
        return array.T[:, None]
    if stored in ("same", "transposed", "less 1"):
        return array.T if stored == "transposed" else array - 1 if stored == "less 1" else array
    axes = [axis.split("*") for axis in stored.split()]
    return array.reshape([math.prod(sizes[factor] for factor in axis) for axis in axes])
