"""Who sees whom: everything that can hide a cell, combined; and selecting what is visible."""

import numpy as np

from mha_numpy.core.masks import Window, combine_masks, window_mask
from mha_numpy.dtypes import Array


def visible_cells(
    cells_shape: tuple[int, ...],
    *,
    mask: Array | None,
    bias: Array | None,
    window: Window | None,
    q_offset: Array,
) -> Array | None:
    """Combine all that can hide a cell; None where nothing does. Broadcasts to the scores."""
    rank, (T_q, T_k) = len(cells_shape), cells_shape[-2:]
    masks = [] if mask is None else [mask]
    if bias is not None and np.isneginf(bias.real).any():
        masks.append(~np.isneginf(bias.real))
    if window is not None:
        in_window = window_mask(T_q, T_k, window=window, q_offset=q_offset)
        # an offset per sequence gives (B, 1, T_q, T_k): at rank 3 there is no head axis
        masks.append(in_window[:, 0] if in_window.ndim > rank else in_window)
    visible = combine_masks(*masks)
    # every axis there, for backward swaps the last two
    return (
        None if visible is None else visible.reshape((1,) * (rank - visible.ndim) + visible.shape)
    )


def only_visible(cells: Array, visible: Array | None) -> Array:
    """Select the visible cells, 0 elsewhere: a product with 0 would let NaN and inf through."""
    return cells if visible is None else np.where(visible, cells, 0)
