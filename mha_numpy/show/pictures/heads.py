"""Attention weights with their tokens: one heatmap for each head, in the head's colour."""

from collections.abc import Sequence

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.core.masks import check_mask
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.grid import MAX_NUMBERS, Grid
from mha_numpy.show.pictures.labels import (
    check_labels,
    check_text,
    decimal,
    of_batch,
    printable,
    sentences,
)
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import width_of


def weights_by_head(
    weights: Array,
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
    *,
    visible: Array | None = None,
    head_names: Sequence[str] | None = None,
    heads: Sequence[int | None] | None = None,
    query_name: str = "queries",
    key_name: str = "keys",
    note: str = "",
) -> Picture:
    """Draw who attends to whom: one heatmap for each head, queries down and keys across.

    Parameters
    ----------
    weights : (H, T_q, T_k) or (B, H, T_q, T_k) float array
        Attention weights, between 0 and 1; of a batch, the first sequence is drawn.
    query_labels : T_q strings
        A token for each row.
    key_labels : T_k strings, optional
        A token for each column; default `query_labels`.
    visible : bool array that broadcasts to `weights`, optional
        True = may attend, as a mask. Hidden cells are hatched.
    head_names : H strings, optional
        What stands above each heatmap; default "head 0", "head 1", ...
    heads : H integers, optional
        Whose colour and mark each heatmap has; default 0, 1, ... Write [0, 0] if both are head 0,
        such as before and after training, and None for a mean of several: it is grey.
    query_name, key_name : str
        What stands at the axes.
    note : str
        A sentence under the heading, such as "Random params: nothing here is trained.".

    Returns
    -------
    Picture
        One panel for each head.

    Notes
    -----
    All heads share one scale: nothing is 0, full colour is 1. Up to 12 by 12 cells have their
    numbers. A row that may attend to nothing, by `visible` or because all its weights are 0, is
    marked so. Where not all labels fit, every second, third, ... is written.

    Examples
    --------
    >>> picture = weights_by_head(np.full((2, 3, 3), 1 / 3), ["the", "tired", "animal"])
    >>> [panel.title for panel in picture.panels]
    ['head 0', 'head 1']
    >>> picture.panels[1].desc
    'head 1 gives most weight to the (0.33).'
    """
    weights, seen, batch = _check_weights(weights, visible)
    H, T_q, T_k = weights.shape
    rows = check_labels("query_labels", query_labels, T_q=T_q)
    key_labels = query_labels if key_labels is None else key_labels
    keys = check_labels("key_labels", key_labels, T_k=T_k)
    query_name, key_name = check_text("query_name", query_name), check_text("key_name", key_name)
    names = [f"head {h}" for h in range(H)] if head_names is None else list(map(str, head_names))
    if len(names) != H:
        raise ConfigError(f"head_names: expected H={H} of them; got {len(names)}")
    marks: list[int | None] = list(range(H)) if heads is None else [
        None if head is None else check_count("heads", head, least=0) for head in heads
    ]  # fmt: skip
    if len(marks) != H:
        raise ConfigError(f"heads: expected H={H} of them; got {len(marks)}")
    title = "Attention weights"
    if head_names is None:
        title += f" of {H} head" + "s" * (H > 1)
    title += of_batch(0, batch)
    notes = [check_text("note", note)]
    notes.append(f"Rows: {query_name}. Columns: {key_name}. The weights of a row sum to 1.")
    if max(T_q, T_k) > MAX_NUMBERS:
        notes.append("The strongest colour is a weight of 1.")
    if seen is not None and not seen.all():
        notes.append("Hatched: hidden, may not attend.")
    told = [_in_words(*head, keys) for head in zip(names, weights, strict=True)]
    about = f"One panel for each head; on average over the rows, {'; '.join(told)}."
    grids = [
        _grid(
            marks[h], name, weights[h], None if seen is None else seen[h], rows, keys,
            f"{told[h]}.",
        )
        for h, name in enumerate(names)
    ]  # fmt: skip
    numbers = [number for grid in grids for number in grid.numbers]
    widest = max(numbers, key=lambda number: width_of(number, "n"), default="n")
    drawn = [grid._replace(widest=widest).draw() for grid in grids]
    panels, wide = zip(*drawn, strict=True)
    alt = f"{sentences(title, notes[0])} {about}"
    return Picture(panels, title=title, notes=notes, alt=alt, wide=wide)


def _check_weights(weights: Array, visible: Array | None) -> tuple[Array, Array | None, int]:
    """Return (H, T_q, T_k) weights and visible cells, and the size of the batch."""
    weights = as_float_array("weights", weights)
    axes = {3: "H T_q T_k", 4: "B H T_q T_k"}.get(weights.ndim)
    if axes is None or 0 in weights.shape:
        raise ShapeError(
            "weights: expected (H, T_q, T_k) or (B, H, T_q, T_k), no axis empty; "
            f"got {weights.shape}"
        )
    if visible is not None:
        visible = check_mask("visible", visible, weights.shape, axes)
        visible = np.broadcast_to(visible, weights.shape)
    batch = weights.shape[0] if weights.ndim == 4 else 1
    if weights.ndim == 4:
        weights, visible = weights[0], None if visible is None else visible[0]
    known = weights[~np.isnan(weights)]
    if known.size and not -1e-3 <= known.min() <= known.max() <= 1 + 1e-3:
        raise ConfigError(
            f"weights: expected numbers between 0 and 1; got {known.min():.4g} to "
            f"{known.max():.4g}; scores become weights by softmax_forward"
        )
    return weights.astype(np.float64), visible, batch


def _in_words(name: str, weights: Array, keys: list[str]) -> str:
    share = np.nan_to_num(weights).mean(axis=0)
    return f"{name} gives most weight to {keys[share.argmax()]} ({share.max():.2f})"


def _grid(
    head: int | None, name: str, weights: Array, seen: Array | None, rows: list[str],
    keys: list[str], desc: str,
) -> Grid:  # fmt: skip
    broken = np.isnan(weights)
    blind = np.asarray((weights == 0).all(axis=1) if seen is None else ~seen.any(axis=1))
    hidden = np.broadcast_to(blind[:, None], weights.shape) if seen is None else np.invert(seen)
    empty = broken | (hidden & (weights == 0))
    numbers: list[str] = []
    if max(weights.shape) <= MAX_NUMBERS:
        cells = zip(weights.flat, empty.flat, strict=True)
        numbers = [
            "" if nothing else "1" if weight == 1 else decimal(weight) for weight, nothing in cells
        ]
    hidden = hidden & (weights == 0)
    return Grid(
        printable(name, 40), desc, weights, head, numbers, rows, keys, hidden, broken, blind,
        is_marked=True,
    )  # fmt: skip
