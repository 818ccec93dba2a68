"""A mask in plain text: who may attend to whom, and which rows may attend to nothing."""

import math
from collections.abc import Sequence

import numpy as np

from mha_numpy.core.masks import check_kind
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, MaskError

MAX_GRIDS, MAX_CELLS, MAX_NAMES = 8, 40, 8


def explain_mask(mask: Array, *, query_labels: Sequence[str] | None = None) -> str:
    """Draw a mask as a small grid and name the rows that may attend to nothing.

    Parameters
    ----------
    mask : (T_q, T_k), (B, T_q, T_k) or (B, H, T_q, T_k) bool array
        True = may attend. An axis of size 1 stands for all, as in a broadcast.
    query_labels : T_q strings, optional
        Names for the rows, such as tokens; default 0, 1, 2, ...

    Returns
    -------
    str
        One grid for each leading index, ``#`` = may attend, ``.`` = hidden; at most 8 grids of 40
        by 40 cells are drawn, but all rows are counted.

    Examples
    --------
    >>> from mha_numpy.core import causal_mask
    >>> print(explain_mask(causal_mask(3, q_offset=-1)))
    mask (3, 3), True = may attend: 3 of 9 cells
      0 . . .   <- sees nothing
      1 # . .
      2 # # .
    1 of 3 rows may attend to nothing: 0
    """
    mask = check_kind("mask", mask)
    if mask.ndim not in (2, 3, 4):
        raise MaskError(f"mask: expected (T_q, T_k) with up to two axes before; got {mask.shape}")
    T_q = mask.shape[-2]
    labels = (
        [str(i) for i in range(T_q)]
        if query_labels is None
        else [str(label) for label in query_labels]
    )
    if len(labels) != T_q:
        raise ConfigError(f"query_labels: expected T_q={T_q} of them; got {len(labels)}")

    lines = [f"mask {mask.shape}, True = may attend: {mask.sum()} of {mask.size} cells"]
    grids = list(np.ndindex(mask.shape[:-2]))
    for index in grids[:MAX_GRIDS]:
        if index:
            lines.append(" ".join(f"{axis}={i}" for axis, i in zip("bh", index, strict=False)))
        lines += _grid(mask[index], labels)
    if len(grids) > MAX_GRIDS:
        lines.append(f"... and {len(grids) - MAX_GRIDS} more grids")
    return "\n".join([*lines, _blind_rows(mask, labels)])


def _grid(cells: Array, labels: list[str]) -> list[str]:
    width = max(map(len, labels), default=0)
    lines = []
    for label, row in list(zip(labels, cells, strict=True))[:MAX_CELLS]:
        drawn = " ".join("#" if cell else "." for cell in row[:MAX_CELLS])
        more = " ..." if row.size > MAX_CELLS else ""
        lines.append(f"  {label:>{width}} {drawn}{more}{'' if row.any() else '   <- sees nothing'}")
    if len(labels) > MAX_CELLS:
        lines.append(f"  ... and {len(labels) - MAX_CELLS} more rows")
    return lines


def _blind_rows(mask: Array, labels: list[str]) -> str:
    blind = np.argwhere(~mask.any(axis=-1))  # (number, rank - 1): leading index and query
    total = math.prod(mask.shape[:-1])
    if not len(blind):
        return f"every one of {total} rows may attend to something"
    names = [
        "".join(f"{axis}={i} " for axis, i in zip("bh", lead, strict=False)) + labels[row]
        for *lead, row in blind[:MAX_NAMES]
    ]
    more = ", ..." if len(blind) > MAX_NAMES else ""
    return f"{len(blind)} of {total} rows may attend to nothing: {', '.join(names)}{more}"
