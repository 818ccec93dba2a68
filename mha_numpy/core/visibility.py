"""Who sees whom: everything that can hide a cell, combined; and selecting what is visible."""

import numpy as np

from mha_numpy.core.checks import check_flag
from mha_numpy.core.dtypes import Array
from mha_numpy.core.masks import (
    Window,
    causal_mask,
    check_mask,
    check_offset,
    combine_masks,
    window_mask,
)


def visible_cells(
    scores_shape: tuple[int, ...],
    axes: str,
    *,
    mask: Array | None,
    bias: Array | None,
    is_causal: bool,
    q_offset: int | Array,
    window: Window | None,
) -> Array | None:
    """Combine all that can hide a cell; None where nothing does. Broadcasts to the scores."""
    rank, (T_q, T_k) = len(scores_shape), scores_shape[-2:]
    offset = check_offset(q_offset, scores_shape[0] if rank > 2 else 0)

    masks = [] if mask is None else [check_mask("mask", mask, scores_shape, axes)]
    if bias is not None and np.isneginf(bias.real).any():
        masks.append(~np.isneginf(bias.real))
    if window is not None:
        masks.append(window_mask(T_q, T_k, window=window, q_offset=offset))
    if check_flag("is_causal", is_causal):
        masks.append(causal_mask(T_q, T_k, q_offset=offset))
    # an offset per sequence comes as (B, 1, T_q, T_k): without a head axis at rank 3
    visible = combine_masks(*(m[:, 0] if m.ndim > rank else m for m in masks))
    # every axis there, for backward swaps the last two
    return (
        None if visible is None else visible.reshape((1,) * (rank - visible.ndim) + visible.shape)
    )


def only_visible(cells: Array, visible: Array | None) -> Array:
    """Select the visible cells, 0 elsewhere: a product with 0 would let NaN and inf through."""
    return cells if visible is None else np.where(visible, cells, 0)
