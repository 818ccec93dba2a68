"""Masks: True = may attend. Building and combining them, and selecting what is visible."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_broadcast, check_count
from mha_numpy.dtypes import LARGEST, Array, as_array, as_integer_array
from mha_numpy.errors import ConfigError, MaskError, ShapeError, describe

Window = tuple[int | None, int | None]


def causal_mask(T_q: int, T_k: int | None = None, *, q_offset: int | Array = 0) -> Array:
    """Let query i see key j if and only if ``j <= i + q_offset``.

    Parameters
    ----------
    T_q, T_k : int
        Number of queries and of keys; `T_k` defaults to `T_q`.
    q_offset : int or (B,) int array
        Position of the first query among the keys. 0 aligns at the top left, as PyTorch, JAX
        and Keras do; ``T_k - T_q`` at the bottom right; with a KV cache it is the number of
        earlier keys.

    Returns
    -------
    (T_q, T_k) bool array, or (B, 1, T_q, T_k) for an offset per sequence.

    Examples
    --------
    >>> causal_mask(2, 4, q_offset=2).astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    return window_mask(T_q, T_k, window=(None, 0), q_offset=q_offset)


def window_mask(
    T_q: int, T_k: int | None = None, *, window: Window, q_offset: int | Array = 0
) -> Array:
    """Let query i see keys from ``i + q_offset - left`` to ``i + q_offset + right``, inclusive.

    Parameters
    ----------
    T_q, T_k : int
        Number of queries and of keys; `T_k` defaults to `T_q`.
    window : (left, right)
        Integers >= 0; None = unbounded on that side.
    q_offset : int or (B,) int array
        Position of the first query among the keys.

    Returns
    -------
    (T_q, T_k) bool array, or (B, 1, T_q, T_k) for an offset per sequence.

    Notes
    -----
    Source: Beltagy et al. 2020, *Longformer*, section 3.1.

    Examples
    --------
    >>> window_mask(4, window=(1, 0)).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    T_q = check_count("T_q", T_q, least=0)
    T_k = T_q if T_k is None else check_count("T_k", T_k, least=0)
    left, right = check_window(window)
    offset = check_offset(q_offset)
    query = np.arange(T_q)[:, None] + offset.reshape(offset.shape + (1,) * 3 * offset.ndim)
    key = np.arange(T_k)  # (T_k,) against queries (T_q, 1) or (B, 1, T_q, 1)
    not_before = True if left is None else key >= query - left
    not_after = True if right is None else key <= query + right
    return np.broadcast_to(not_before & not_after, (*query.shape[:-1], T_k)).copy()


def padding_mask(lengths: Array, T_k: int) -> Array:
    """Let every query see the first ``lengths[b]`` keys of sequence b, and not the padding.

    Parameters
    ----------
    lengths : (B,) int array
        Number of real tokens in each sequence, 0 to `T_k`.
    T_k : int
        Padded length.

    Returns
    -------
    (B, 1, 1, T_k) bool array: it broadcasts over heads and queries.

    Examples
    --------
    >>> padding_mask(np.array([3, 1]), 4)[:, 0, 0].astype(int)
    array([[1, 1, 1, 0],
           [1, 0, 0, 0]])
    """
    T_k = check_count("T_k", T_k, least=0)
    lengths = as_integer_array("lengths", lengths, "a (B,) array of integers")
    if lengths.ndim != 1:
        raise ConfigError(f"lengths: expected a (B,) array of integers; got {lengths.shape}")
    if lengths.size and (lengths.min() < 0 or lengths.max() > T_k):
        raise ConfigError(
            f"lengths: expected values from 0 to T_k={T_k}; got {lengths.min()} to {lengths.max()}"
        )
    return np.arange(T_k) < lengths[:, None, None, None]


def document_ids(lengths: Array, T: int | None = None) -> Array:
    """Return the number of each token's document, for documents packed one after the other.

    Parameters
    ----------
    lengths : (N,) int array
        Tokens of each document; ``np.diff(cu_seqlens)`` where running sums are given.
    T : int, optional
        Length of the packed sequence; tokens after the last document are padding, with id -1.

    Returns
    -------
    (T,) int array, for `document_mask` and `document_positions`. Stack several for a batch.

    Examples
    --------
    >>> document_ids(np.array([2, 3]), T=6)
    array([ 0,  0,  1,  1,  1, -1])
    """
    lengths = as_integer_array("lengths", lengths, "an (N,) array of integers")
    if lengths.ndim != 1 or (lengths < 0).any():
        raise ConfigError(f"lengths: expected (N,) integers >= 0; got {describe(lengths)}")
    total = int(lengths.sum())
    T = total if T is None else check_count("T", T, least=total)
    return np.repeat(np.append(np.arange(len(lengths)), -1), np.append(lengths, T - total))


def document_mask(ids: Array) -> Array:
    """Let every token see only the tokens of its document, and padding see nothing.

    Parameters
    ----------
    ids : (T,) or (B, T) int array
        The number of each token's document, as `document_ids` gives it; padding has -1.

    Returns
    -------
    (T, T) bool array, or (B, 1, T, T) for ids per sequence. Combine it with ``is_causal=True``,
    and let positions restart: see `document_positions`.

    Examples
    --------
    >>> document_mask(np.array([0, 0, 1, -1])).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 0]])
    """
    ids = as_integer_array("ids", ids, "a (T,) or (B, T) array of integers")
    if ids.ndim not in (1, 2):
        raise ConfigError(f"ids: expected (T,) or (B, T); got {ids.shape}")
    mask = (ids[..., :, None] == ids[..., None, :]) & (ids >= 0)[..., None]
    return mask if ids.ndim == 1 else mask[:, None]


def combine_masks(*masks: Array | None) -> Array | None:
    """Combine masks: a cell is visible if every mask shows it (AND); None hides nothing.

    Parameters
    ----------
    *masks : bool arrays that broadcast against each other, or None

    Returns
    -------
    bool array, or None if all are None.

    Examples
    --------
    >>> both = combine_masks(causal_mask(3), padding_mask(np.array([3, 2]), 3), None)
    >>> both.shape
    (2, 1, 3, 3)
    """
    combined: Array | None = None
    for number, mask in enumerate(masks):
        if mask is None:
            continue
        mask = check_kind(f"masks[{number}]", mask)
        try:
            combined = mask if combined is None else combined & mask
        except ValueError as error:
            raise MaskError(
                f"masks[{number}]: expected a shape that broadcasts with the masks before it; "
                f"got {mask.shape}"
            ) from error
    return combined


def visible_cells(
    cells_shape: tuple[int, ...],
    *,
    mask: Array | None,
    bias: Array | None,
    window: Window | None,
    q_offset: Array,
) -> Array | None:
    """Combine everything that can hide a cell; None if nothing does. Broadcasts to the scores."""
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


def check_mask(name: str, mask: Any, scores_shape: tuple[int, ...], axes: str) -> Array:
    """Return the mask as a bool array that broadcasts to the scores, or raise a MaskError.

    If B = H, a mask of rank 3 could mean either axis, so it is refused instead of guessed.
    """
    mask = check_kind(name, mask)
    try:
        check_broadcast(name, mask, scores_shape, axes, MaskError)
    except MaskError as error:
        raise MaskError(f"{error}{_advice(name, mask.shape, scores_shape)}") from None
    B, H = scores_shape[:2] if len(scores_shape) == 4 else (1, 1)
    if mask.ndim == 3 and mask.shape[0] == B == H > 1:
        raise MaskError(
            f"{name}: expected rank 4, because rank 3 has two readings if B = H = {B}; "
            f"got {mask.shape}; "
            f"write {name}[:, None] for one per sequence, {name}[None] for one per head"
        )
    return mask


def _advice(name: str, shape: tuple[int, ...], scores_shape: tuple[int, ...]) -> str:
    """Say what to write if a mask lacks axes, or if heads and tokens look swapped."""
    B, (*T_q, T_k) = scores_shape[0], scores_shape[-2:]
    ones = ", None" * (len(scores_shape) - len(shape))  # for the axes that it lacks
    if ones and shape == (B, T_k):
        return f"; for (B, T_k) write {name}[:{ones}, :]"
    if ones and shape == (B, *T_q, T_k):
        return f"; for (B, T_q, T_k) write {name}[:{ones}, :, :]"
    if len(scores_shape) == 4 and shape[-2:] == (scores_shape[1],) * 2:
        return "; if q, k and v are (B, T, H, d), write q.swapaxes(1, 2), and so for k and v"
    return ""


def check_kind(name: str, mask: Any) -> Array:
    """Return the mask as a bool array, or raise a MaskError that says what to write instead."""
    array = as_array(name, mask, "a bool array, True = may attend", MaskError)
    kind = array.dtype.kind
    if kind == "b":
        return array
    advice = ""
    if kind in "iu":
        advice = f"; if 1 means 'may attend' write {name} == 1, if 1 means 'blocked' {name} == 0"
    if kind == "f":
        advice = f"; numbers to be added to the scores are passed as bias={name}"
    raise MaskError(
        f"{name}: expected a bool array, True = may attend; got {describe(mask)}{advice}"
    )


def check_window(window: Any) -> Window:
    """Return the window as a pair, or raise a ConfigError."""
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ConfigError(f"window: expected (left, right) or None; got {describe(window)}")
    left, right = (
        None if _is_unbounded(side) else check_count("window", side, 0) for side in window
    )
    return left, right


def _is_unbounded(side: Any) -> bool:
    """Return whether one side of a window is unbounded: None, or as large as sys.maxsize."""
    return side is None or (isinstance(side, (int, np.integer)) and int(side) > LARGEST)


def check_offset(q_offset: Any, batch: tuple[int, ...] | None = None) -> Array:
    """Return the offset as an int64 array, () or (B,), or raise an error.

    `batch` is (B,) if it is known, () if there is no batch axis.
    """
    if type(q_offset) is int and abs(q_offset) <= LARGEST:
        return np.array(q_offset, np.int64)
    offset = as_integer_array("q_offset", q_offset, "an int or (B,) int array")
    if offset.ndim > 1:
        raise ConfigError(f"q_offset: expected an int or (B,) int array; got {offset.shape}")
    if offset.ndim and batch == ():
        raise ShapeError(
            f"q_offset: expected an int, because q has no batch axis; got {offset.shape}"
        )
    if offset.ndim and batch is not None and offset.shape != batch:
        raise ShapeError(f"q_offset: expected an int or (B={batch[0]},), as q; got {offset.shape}")
    return offset
