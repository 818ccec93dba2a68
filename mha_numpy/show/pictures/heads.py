"""Attention weights with their tokens: one heatmap for each head, in the head's colour."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from mha_numpy.checks import check_integer
from mha_numpy.core.masks import check_mask
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.cells import (
    MAX_NUMBERS,
    SCALE,
    fit_labels,
    label_cells,
    paint_cells,
    paint_scale,
)
from mha_numpy.show.pictures.colors import HIDDEN, MUTED, fade, head_color
from mha_numpy.show.pictures.labels import (
    check_labels,
    check_text,
    decimal,
    of_batch,
    sentences,
    widest,
    write,
    write_title,
)
from mha_numpy.show.pictures.layout import Box, flow, patch, start_page
from mha_numpy.show.pictures.save import Picture

TITLE_SIZE = 9  # in points

# lengths in inches
CELL, HEATMAP = 0.3, 3.3  # at most
MANY, HEATMAP_OF_MANY = 8, 1.85  # so many heads stand three or four in a line
TITLE, AXIS_NAME, TICK = 0.26, 0.23, 0.1


def weights_by_head(
    weights: Array,
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
    *,
    visible: Array | None = None,
    sequence: int = 0,
    head_names: Sequence[str] | None = None,
    query_name: str = "queries",
    key_name: str = "keys",
    note: str = "",
) -> Picture:
    """Draw who attends to whom: one heatmap for each head, queries down and keys across.

    Parameters
    ----------
    weights : (H, T_q, T_k) or (B, H, T_q, T_k) float array
        Attention weights, between 0 and 1.
    query_labels : T_q strings
        A token for each row.
    key_labels : T_k strings, optional
        A token for each column; default `query_labels`.
    visible : bool array that broadcasts to `weights`, optional
        True = may attend, as a mask. Hidden cells are hatched.
    sequence : int
        Which sequence of the batch.
    head_names : H strings, optional
        What stands above each heatmap; default "head 0", "head 1", ...
    query_name, key_name : str
        What stands at the axes.
    note : str
        A sentence under the heading, such as "Random params: nothing here is trained.".

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the heads and last the
        scale.

    Notes
    -----
    All heads share one scale: white is 0, the head's full colour is 1. Up to 12 by 12 cells have
    their numbers. A row that may attend to nothing, by `visible` or because all its weights are 0,
    is marked so. Where not all labels fit, every second, third, ... is written, and the picture
    says so.

    Examples
    --------
    >>> picture = weights_by_head(np.full((2, 3, 3), 1 / 3), ["the", "tired", "animal"])
    >>> [ax.get_title(loc="left") for ax in picture.axes[:2]]
    ['head 0', 'head 1']
    >>> [label.get_text() for label in picture.axes[0].get_xticklabels()]
    ['the', 'tired', 'animal']
    """
    weights, seen, batch = _check_weights(weights, visible, sequence)
    H, T_q, T_k = weights.shape
    rows = check_labels("query_labels", query_labels, T_q=T_q)
    if key_labels is None and T_k != T_q:
        raise ConfigError(
            f"key_labels: expected T_k={T_k} of them; got none, and the {T_q} query_labels "
            "do not fit"
        )
    keys = rows if key_labels is None else check_labels("key_labels", key_labels, T_k=T_k)
    query_name, key_name = check_text("query_name", query_name), check_text("key_name", key_name)
    names = [f"head {h}" for h in range(H)] if head_names is None else list(map(str, head_names))
    if len(names) != H:
        raise ConfigError(f"head_names: expected H={H} of them; got {len(names)}")
    is_small = H >= MANY and max(T_q, T_k) > MAX_NUMBERS
    cell = min(CELL, (HEATMAP_OF_MANY if is_small else HEATMAP) / max(T_q, T_k))
    row_labels, column_labels = fit_labels(rows, cell), fit_labels(keys, cell)
    box = Box(
        T_k * cell, T_q * cell, top=TITLE,
        left=AXIS_NAME + TICK + widest(row_labels.texts, row_labels.size),
        right=max(0.0, widest(names, TITLE_SIZE, weight="bold") - T_k * cell),
        below=AXIS_NAME + TICK + widest(column_labels.texts, column_labels.size),
    )  # fmt: skip
    scale = SCALE._replace(height=0.06 * min(H, 8), top=0.2)

    title = "Attention weights"
    if head_names is None:
        title += f" of {H} head" + "s" * (H > 1)
    title += of_batch(sequence, batch)
    notes = [check_text("note", note)]
    notes.append("Each row is a query; its weights sum to 1 over the keys that it may attend to.")
    every = max(row_labels.every, column_labels.every)
    if every > 1:
        notes.append(f"Labels: one token of every {every}.")
    legend = {}
    if seen is not None and not seen.all():
        legend["hidden: may not attend"] = patch(facecolor="none", hatch=HIDDEN)
    alt = _alt_text(title, notes[0], weights, keys, names)
    picture, axes = start_page([*flow([box] * H), [scale]], title, notes, alt=alt, legend=legend)
    for head, ax in enumerate(axes[:H]):
        write_title(ax, names[head], TITLE_SIZE, 5)
        _paint(ax, weights[head], None if seen is None else seen[head], head, cell)
        ax.set_xlabel(key_name, fontsize=8, color=MUTED, labelpad=2, parse_math=False)
        ax.set_ylabel(query_name, fontsize=8, color=MUTED, labelpad=4, parse_math=False)
        label_cells(ax, row_labels, column_labels, is_turned=True)
    shades = np.linspace(0, 1, 256)
    strips = np.stack([fade(head_color(head))(shades) for head in range(min(H, 8))])
    paint_scale(axes[H], strips, ["0", ".25", ".5", ".75", "1"])
    axes[H].set_title("weight", fontsize=8, color=MUTED, loc="left", pad=3)
    return picture


def _check_weights(
    weights: Array, visible: Array | None, sequence: int
) -> tuple[Array, Array | None, int]:
    """Return one sequence's (H, T_q, T_k) weights and visible cells, and the size of the batch."""
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
    if not 0 <= check_integer("sequence", sequence) < batch:
        raise ConfigError(
            f"sequence: expected an index into the batch, 0 <= sequence < B={batch}; got {sequence}"
        )
    if weights.ndim == 4:
        weights, visible = weights[sequence], None if visible is None else visible[sequence]
    known = weights[~np.isnan(weights)]
    if known.size and not -1e-3 <= known.min() <= known.max() <= 1 + 1e-3:
        raise ConfigError(
            f"weights: expected numbers between 0 and 1; got {known.min():.4g} to "
            f"{known.max():.4g}; scores become weights by softmax_forward"
        )
    return weights.astype(np.float64), visible, batch


def _alt_text(title: str, note: str, weights: Array, keys: list[str], names: list[str]) -> str:
    told = []
    for name, share in zip(names, np.nan_to_num(weights).mean(axis=1), strict=True):
        told.append(f"{name} gives most weight to {keys[share.argmax()]} ({share.max():.2f})")
    about = f"One heatmap for each head; on average over the queries, {'; '.join(told)}."
    return f"{sentences(title, note)} {about}"


def _paint(ax: Axes, weights: Array, seen: Array | None, head: int, cell: float) -> None:
    T_q, T_k = weights.shape
    broken = np.isnan(weights)
    blind = np.asarray((weights == 0).all(axis=1) if seen is None else ~seen.any(axis=1))
    hidden = np.broadcast_to(blind[:, None], weights.shape) if seen is None else np.invert(seen)
    empty = broken | (hidden & (weights == 0))
    cells = zip(weights.flat, empty.flat, strict=True) if max(T_q, T_k) <= MAX_NUMBERS else ()
    numbers = ["" if nothing else decimal(weight) for weight, nothing in cells]
    colors = fade(head_color(head))(np.nan_to_num(weights))
    paint_cells(ax, colors, numbers, hidden, broken, cell)
    _mark_blind(ax, blind, T_k, cell)
    ax.set_label(f"head {head}")
    ax.set(xlim=(0, T_k), ylim=(T_q, 0))
    ax.spines[:].set(edgecolor=head_color(head), linewidth=1.2)


def _mark_blind(ax: Axes, blind: Array, T_k: int, cell: float) -> None:
    """Write over rows that may attend to nothing, once for neighbours."""
    edges = np.diff(np.pad(blind.astype(np.int8), 1))
    for first, past in zip(*(np.nonzero(edges == sign)[0] for sign in (1, -1)), strict=True):
        text = "sees nothing" if T_k * cell > 0.75 else "∅"
        size = min(6.5, 72 * cell * (past - first) / 1.3)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        write(ax, T_k / 2, (first + past) / 2, text, size, "center center", bbox=box)
