"""Attention weights with their tokens: one heatmap for each head, in the head's colour."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mha_numpy.checks import check_integer
from mha_numpy.core.masks import check_mask
from mha_numpy.draw.colors import (
    BROKEN,
    GREY,
    HIDDEN,
    INK,
    MUTED,
    fade,
    hatch_cells,
    head_color,
    text_on,
)
from mha_numpy.draw.labels import (
    LABEL_PITCH,
    MARGIN,
    check_labels,
    content_at,
    decimal,
    start_picture,
    widest,
    wrap_heading,
)
from mha_numpy.draw.save import Picture
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError

MAX_NUMBERS = 12  # rows or columns with a number in each cell

# lengths in inches
SMALLEST_SQUARE = 0.08  # smaller cells are drawn without gaps
GUTTER = 0.36
MAX_WIDTH = 9.2  # of all heatmaps side by side
CELL, HEATMAP = 0.3, 3.3  # at most
MANY, HEATMAP_OF_MANY = 8, 2.15  # so many heads stand four in a line
TITLE, AXIS_NAME, TICK = 0.26, 0.23, 0.1
TITLE_SIZE = 9  # in points
SCALE_WIDTH, SCALE = 2.4, 0.42


def weights_by_head(
    weights: Array,
    query_labels: Sequence[str],
    key_labels: Sequence[str] | None = None,
    *,
    visible: Array | None = None,
    sequence: int = 0,
    head_names: Sequence[str] | None = None,
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

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the heads and last the
        scale.

    Raises
    ------
    ShapeError, DTypeError, MaskError
        An array has not the shape or the kind that is written above.
    ConfigError
        There are not T_q and T_k labels, or not H names; `sequence` is not in the batch; or a
        weight is not between 0 and 1.

    Notes
    -----
    All heads share one scale: white is 0, the head's full colour is 1. Up to 12 by 12 cells have
    their numbers. A row that may attend to nothing, by `visible` or because all its weights are 0,
    says so. Where not all labels fit, every
    second, third, ... is written, and the picture says so.

    Examples
    --------
    >>> picture = weights_by_head(np.full((2, 3, 3), 1 / 3), ["the", "tired", "animal"])
    >>> [ax.get_title() for ax in picture.axes[:2]]
    ['head 0', 'head 1']
    >>> [label.get_text() for label in picture.axes[0].get_xticklabels()]
    ['the', 'tired', 'animal']
    """
    weights, seen, batch = _check_weights(weights, visible, sequence)
    H, T_q, T_k = weights.shape
    rows, keys = _check_labels(query_labels, key_labels, T_q, T_k)
    names = [f"head {h}" for h in range(H)] if head_names is None else list(map(str, head_names))
    if len(names) != H:
        raise ConfigError(f"head_names: expected H={H} of them; got {len(names)}")
    is_small = H >= MANY and max(T_q, T_k) > MAX_NUMBERS
    cell = min(CELL, (HEATMAP_OF_MANY if is_small else HEATMAP) / max(T_q, T_k))
    every = math.ceil(LABEL_PITCH / cell)
    size = min(8.0, 72 * cell * every / 1.25)  # of the labels, in points
    left = AXIS_NAME + TICK + widest(rows[::every], size)
    below = AXIS_NAME + TICK + widest(keys[::every], size)
    panel_width = left + max(T_k * cell, widest(names, TITLE_SIZE, weight="bold"))
    panel_height = TITLE + T_q * cell + below

    in_line = max(1, int((MAX_WIDTH + GUTTER) / (panel_width + GUTTER)))
    lines = math.ceil(H / in_line)
    across = math.ceil(H / lines)
    heading = f"Attention weights of {H} head" + "s" * (H > 1)
    if batch > 1:
        heading += f", sequence {sequence} of a batch of {batch}"
    notes = ["Each row is a query; its weights sum to 1 over the keys that it may attend to."]
    if every > 1:
        notes.append(f"Labels: one token of every {every}.")
    strips = 0.06 * min(H, 8)
    content = max(across * panel_width + (across - 1) * GUTTER, 4.6)
    lines_of_heading = wrap_heading(heading, content)
    top = content_at(lines_of_heading, notes)
    width = content + 2 * MARGIN
    height = top + lines * (panel_height + GUTTER) + strips + SCALE + MARGIN - 0.1

    picture, inches = start_picture(width, height, lines_of_heading, notes)
    picture.set_label(_alt_text(heading, weights, keys, names))
    for head in range(H):
        line, column = divmod(head, across)
        x = MARGIN + column * (panel_width + GUTTER) + left
        y = top + line * (panel_height + GUTTER) + TITLE
        ax = picture.add_axes(
            (x / width, 1 - (y + T_q * cell) / height, T_k * cell / width, T_q * cell / height),
            label=f"head {head}",
        )
        _paint(ax, weights[head], None if seen is None else seen[head], head, names[head], cell)
        style = {"fontsize": size, "color": INK, "parse_math": False}
        ax.set_xticks(np.arange(0, T_k, every) + 0.5, keys[::every], rotation=90, **style)
        ax.set_yticks(np.arange(0, T_q, every) + 0.5, rows[::every], **style)

    y = top + lines * (panel_height + GUTTER) - 0.1
    scale = picture.add_axes(
        (MARGIN / width, 1 - (y + 0.16 + strips) / height, SCALE_WIDTH / width, strips / height),
        label="scale",
    )
    _paint_scale(scale, min(H, 8))
    if seen is not None and not seen.all():
        corner = (MARGIN + SCALE_WIDTH + 0.3, y + 0.08 + strips / 2)
        picture.add_artist(
            Rectangle(
                corner, 0.16, 0.16, transform=inches, facecolor="none", edgecolor=GREY,
                hatch=HIDDEN, linewidth=0,
            )
        )  # fmt: skip
        picture.text(
            corner[0] + 0.22, corner[1] + 0.08, "hidden: may not attend", transform=inches,
            va="center", fontsize=8, color=INK,
        )  # fmt: skip
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


def _check_labels(
    query_labels: Sequence[str], key_labels: Sequence[str] | None, T_q: int, T_k: int
) -> tuple[list[str], list[str]]:
    """Return printable labels of the rows and of the columns."""
    rows = check_labels("query_labels", query_labels)
    if len(rows) != T_q:
        raise ConfigError(f"query_labels: expected T_q={T_q} of them; got {len(rows)}")
    if key_labels is None:
        if T_k != T_q:
            raise ConfigError(
                f"key_labels: expected T_k={T_k} of them; got none, and the {T_q} query_labels "
                "do not fit"
            )
        return rows, rows
    keys = check_labels("key_labels", key_labels)
    if len(keys) != T_k:
        raise ConfigError(f"key_labels: expected T_k={T_k} of them; got {len(keys)}")
    return rows, keys


def _alt_text(heading: str, weights: Array, keys: list[str], names: list[str]) -> str:
    """Return the picture in words."""
    told = []
    for name, share in zip(names, np.nan_to_num(weights).mean(axis=1), strict=True):
        told.append(f"{name} gives most weight to {keys[share.argmax()]} ({share.max():.2f})")
    return f"{heading}. One heatmap for each; on average over the queries, {'; '.join(told)}."


def _paint(ax: Axes, weights: Array, seen: Array | None, head: int, name: str, cell: float) -> None:
    """Draw one head's heatmap."""
    T_q, T_k = weights.shape
    colormap = fade(head_color(head))
    has_lines = cell >= SMALLEST_SQUARE
    cells = ax.pcolormesh(
        np.ma.masked_invalid(weights), cmap=colormap, vmin=0, vmax=1,
        edgecolors="#E2E2E2" if has_lines else "none", linewidth=min(0.5, 3 * cell),
    )  # fmt: skip
    cells.set_rasterized(weights.size > 1000)  # an SVG stays small
    blind = np.asarray((weights == 0).all(axis=1) if seen is None else ~seen.any(axis=1))
    hidden = np.broadcast_to(blind[:, None], weights.shape) if seen is None else np.invert(seen)
    hatch_cells(ax, hidden, HIDDEN)
    hatch_cells(ax, np.isnan(weights), BROKEN)
    if max(T_q, T_k) <= MAX_NUMBERS:
        for (row, column), weight in np.ndenumerate(weights):
            if np.isnan(weight) or (hidden[row, column] and weight == 0):
                continue
            ax.text(
                column + 0.5, row + 0.5, decimal(weight), ha="center", va="center_baseline",
                fontsize=6 * cell / CELL, color=text_on(colormap(weight)),
            )  # fmt: skip
    _mark_blind(ax, blind, T_k, cell)
    ax.set(xlim=(0, T_k), ylim=(T_q, 0))
    ax.set_title(
        name, fontsize=TITLE_SIZE, fontweight="bold", color=INK, pad=5, parse_math=False,
    )  # fmt: skip
    ax.set_xlabel("keys", fontsize=8, color=MUTED, labelpad=2)
    ax.set_ylabel("queries", fontsize=8, color=MUTED, labelpad=4)
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.spines[:].set(edgecolor=head_color(head), linewidth=1.2)


def _mark_blind(ax: Axes, blind: Array, T_k: int, cell: float) -> None:
    """Write over rows that may attend to nothing, once for neighbours."""
    edges = np.diff(np.pad(blind.astype(np.int8), 1))
    for first, past in zip(*(np.nonzero(edges == sign)[0] for sign in (1, -1)), strict=True):
        ax.text(
            T_k / 2, (first + past) / 2, "sees nothing" if T_k * cell > 0.75 else "∅",
            ha="center", va="center", color=INK,
            fontsize=min(6.5, 72 * cell * (past - first) / 1.3),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _paint_scale(ax: Axes, heads: int) -> None:
    """Draw what 0 to 1 looks like, in a strip for each head."""
    shades = np.linspace(0, 1, 256)
    ax.imshow(
        np.stack([fade(head_color(head))(shades)[:, :3] for head in range(heads)]),
        aspect="auto", extent=(0, 1, heads, 0), interpolation="nearest",
    )  # fmt: skip
    ax.set_yticks([])
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"], fontsize=7, color=INK)
    ax.set_title("weight", fontsize=8, color=MUTED, loc="left", pad=3)
    ax.tick_params(length=2, color=GREY, pad=2)
    ax.spines[:].set(edgecolor=GREY, linewidth=0.6)
