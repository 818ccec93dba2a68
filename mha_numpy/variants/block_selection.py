"""Attention to a few blocks of keys: each query picks those that fit it best.

The choice is a mask, and attention does the rest. The choice has no gradient: a small change of
queries or keys leaves it as it is, until it jumps.
"""

from typing import Any, NamedTuple, Unpack

import numpy as np

from mha_numpy.checks import check_count, check_type
from mha_numpy.core.attention import (
    AttentionCache,
    AttentionGrads,
    attention_backward,
    attention_forward,
)
from mha_numpy.core.attention_jvp import AttentionTangents, attention_jvp
from mha_numpy.core.grouped import shared_matmul
from mha_numpy.core.options import (
    AttentionInputs,
    AttentionOptions,
    check_attention_inputs,
    takes_attention_options,
)
from mha_numpy.dtypes import Array
from mha_numpy.steps import constant, is_watched, step


def block_selection_steps(inputs: AttentionInputs, block: int, top_k: int) -> tuple[Array, Array]:
    """Return how well each block fits each query, and which blocks it chooses."""
    q, k, visible = inputs.q, inputs.k, inputs.visible
    starts = np.arange(0, k.shape[-2], block)  # (N,)
    lengths = np.diff(starts, append=k.shape[-2])[:, None]  # the last block may be shorter

    # 1. the mean key of each block
    block_means = np.add.reduceat(k, starts, axis=-2) / lengths  # (B, H_kv, N, d_k)

    # 2. match: how well does each query fit each block?
    block_scores = shared_matmul(q, block_means.swapaxes(-1, -2))  # (B, H, T_q, N)

    # 3. choose the best, a query's own block first, from the blocks that have a key that it sees
    own = np.broadcast_to(_own_blocks(inputs, block), block_scores.shape)
    candidates = np.ones(block_scores.shape, bool)
    if visible is not None:
        visible = np.broadcast_to(visible, inputs.cells_shape)
        candidates = np.logical_or.reduceat(visible, starts, axis=-1)
    # of equal blocks the earlier one comes first, and NaN last
    order = np.lexsort((-block_scores.real, ~own, ~candidates), axis=-1)
    chosen = (np.argsort(order, axis=-1) < top_k) & candidates  # (B, H, T_q, N)
    if is_watched():
        _record(inputs, block, top_k, own, candidates, block_means, block_scores, chosen)
    return block_scores, chosen


def _own_blocks(inputs: AttentionInputs, block: int) -> Array:
    """Return whether a block is the one of the query itself: broadcasts to (B, H, T_q, N)."""
    *_, T_q, T_k = inputs.cells_shape
    offset = inputs.q_offset  # one, or one of each sequence
    offset = offset.reshape(offset.shape + (1,) * (inputs.q.ndim - 1) * offset.ndim)
    own: Array = (np.arange(T_q)[:, None] + offset) // block == np.arange(-(-T_k // block))
    return own


def _cells(chosen: Array, block: int, T_k: int) -> Array:
    """Give each key the choice of its block: (..., T_q, N) -> (..., T_q, T_k)."""
    return chosen.repeat(block, axis=-1)[..., :T_k]


class BlockSelectionCache(NamedTuple):
    """The cache of attention, and the choice, through which no gradient flows."""

    attention: AttentionCache
    block_scores: Array  # (B, H, T_q, N)
    chosen: Array  # (B, H, T_q, N), bool


@takes_attention_options
def block_selection_forward(
    q: Array, k: Array, v: Array, *, block: int, top_k: int, **options: Unpack[AttentionOptions]
) -> tuple[Array, BlockSelectionCache]:
    """Attend only to the blocks of keys that fit a query best, its own block among them.

    A block's score is ``q . mean(k of the block)``; softmax and mix take the keys of the chosen
    blocks only.

    Parameters
    ----------
    q : (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k) float array
    k : (B, H_kv, T_k, d_k) float array, or of lower rank like `q`
    v : (B, H_kv, T_k, d_v) float array, or of lower rank like `q`
    block : int
        Keys in a block; the last block may have fewer.
    top_k : int
        Blocks that a query attends to, its own included: block ``(i + q_offset) // block``.
    {names}
        As `attention_forward` explains them. A causal model passes ``is_causal=True``, which also
        hides the later keys of the query's own block. A block of which a query sees no key is
        never chosen.

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank like `q`
    cache : BlockSelectionCache
        With ``cache.chosen``, bool of shape (B, H, T_q, N).

    Notes
    -----
    Of blocks with equal scores the earlier one is chosen; a block whose score is NaN comes last.
    A block's mean is that of all its keys, also of those that a mask hides. Each query head chooses
    by itself, even where heads share keys.
    This reference computes all cells and hides most of them. A kernel that reads only the chosen
    blocks needs T_q top_k block cells instead of T_q T_k, and T_q N scores of blocks.
    Sources: Lu et al. 2025, *MoBA*, eq. 2 to 6; Yuan et al. 2025, *Native sparse attention*,
    section 3.3, whose heads of a group choose together, by the weights of a compressed attention.
    Derivation: ``docs/block-selection.md``.

    Examples
    --------
    >>> k = np.array([[2.0], [2.0], [3.0], [3.0], [1.0], [1.0]])
    >>> q = np.ones((6, 1))
    >>> out, cache = block_selection_forward(q, k, k, block=2, top_k=2, is_causal=True)
    >>> cache.chosen.astype(int)  # by each query, from three blocks
    array([[1, 0, 0],
           [1, 0, 0],
           [1, 1, 0],
           [1, 1, 0],
           [0, 1, 1],
           [0, 1, 1]])
    """
    block, top_k = check_count("block", block), check_count("top_k", top_k)
    given = {name: value for name, value in options.items() if name != "backend"}
    inputs = check_attention_inputs(q, k, v, given)
    block_scores, chosen = block_selection_steps(inputs, block, top_k)

    # 4. attend to the keys of the chosen blocks
    cells = _cells(chosen, block, inputs.k.shape[-2])
    mask = cells if inputs.mask is None else cells & inputs.mask
    both = "" if inputs.mask is None else " & given_mask"
    step("mask", mask, inputs.axes.cells, CELLS + both)
    options["mask"] = mask
    out, attention = attention_forward(q, k, v, **options)
    return out, BlockSelectionCache(attention, block_scores, chosen)


def block_selection_backward(d_out: Array, cache: BlockSelectionCache) -> AttentionGrads:
    """Pull a gradient back through attention to the chosen blocks.

    The choice is a constant: no gradient flows through the scores of blocks, and a key that no
    query chose has gradient 0.

    Parameters
    ----------
    d_out : (B, H, T_q, d_v) float array, or of lower rank like the output
    cache : BlockSelectionCache

    Returns
    -------
    AttentionGrads
        As of `attention_backward`.

    Examples
    --------
    >>> k = np.array([[2.0], [2.0], [3.0], [3.0], [1.0], [1.0]])
    >>> out, cache = block_selection_forward(np.ones((1, 1)), k, k, block=2, top_k=2)
    >>> block_selection_backward(np.ones((1, 1)), cache).d_v.ravel().round(2)
    array([0.13, 0.13, 0.37, 0.37, 0.  , 0.  ])
    """
    check_type("cache", cache, BlockSelectionCache, "block_selection_forward")
    # 4. out = attention(q, k, v, mask), with a mask that is constant
    return attention_backward(d_out, cache.attention)


def block_selection_jvp(tangents: Any, cache: BlockSelectionCache) -> AttentionTangents:
    """Push tangents through attention to the chosen blocks; the choice does not move.

    Parameters
    ----------
    tangents : tuple or dict
    cache : BlockSelectionCache

    Returns
    -------
    AttentionTangents
        Both as of `attention_jvp`.

    Examples
    --------
    >>> k = np.array([[2.0], [2.0], [3.0], [3.0], [1.0], [1.0]])
    >>> out, cache = block_selection_forward(np.ones((1, 1)), k, k, block=2, top_k=2)
    >>> block_selection_jvp({"v": np.ones((6, 1))}, cache).out_dot.round(12)
    array([[1.]])
    """
    check_type("cache", cache, BlockSelectionCache, "block_selection_forward")
    # 4. out = attention(q, k, v, mask), with a mask that is constant
    return attention_jvp(tangents, cache.attention)


CELLS = "chosen.repeat(block, axis=-1)[..., np.arange(T_k)]"


def _record(
    inputs: AttentionInputs, block: int, top_k: int, own: Array, candidates: Array,
    block_means: Array, block_scores: Array, chosen: Array,
) -> None:  # fmt: skip
    """Record steps 1 to 3."""
    axes = inputs.axes
    starts, keys = np.arange(0, inputs.k.shape[-2], block)[:, None], np.arange(inputs.k.shape[-2])
    is_in = (keys >= starts) & (keys < starts + block)
    constant("block", block)
    constant("top_k", top_k)
    constant("own", own)
    constant("candidates", candidates)
    constant("shares", is_in / is_in.sum(axis=1, keepdims=True), "N T_k")
    if inputs.mask is not None:
        constant("given_mask", inputs.mask)
    step("q", inputs.q, axes.q)
    step("k", inputs.k, axes.k)
    of_group = ""
    if inputs.q.shape[:-2] != inputs.k.shape[:-2]:
        constant("G", inputs.q.shape[1] // inputs.k.shape[1])
        of_group = ".repeat(G, axis=1)"
    to_blocks = axes.k.replace("T_k", "N"), axes.cells.replace("T_k", "N")
    step("block_means", block_means, to_blocks[0], "shares @ k")
    transposed = f"block_means{of_group}.swapaxes(-1, -2)"
    step("block_scores", block_scores, to_blocks[1], f"q @ {transposed}")
    order = "np.lexsort((-block_scores, ~own, ~candidates), axis=-1)"
    rank = f"np.argsort({order}, axis=-1)"
    step("chosen", chosen, to_blocks[1], f"np.where(candidates, {rank} < top_k, False)")
