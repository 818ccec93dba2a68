"""Extra keys: E keys and values that belong to no token; forward and backward.

They come after the keys of the tokens. Every query sees them, because mask, causality and window
do not apply to them. No bias is added to their scores, and RoPE does not rotate them, because they
have no position.
"""

from typing import Any

import numpy as np

from mha_numpy.checks import check_broadcast
from mha_numpy.core.attention_recording import (
    record_cells_of_tokens,
    record_cells_of_tokens_backward,
    record_extra_heads,
    record_extra_heads_backward,
)
from mha_numpy.core.options import AttentionInputs, AttentionOptions, check_attention_inputs
from mha_numpy.core.shapes import merge_heads, split_heads, sum_to_shape
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.steps import is_watched

OF_TOKENS = ("mask", "bias", "is_causal", "q_offset", "window")  # options that speak of T_k tokens


def append_heads_forward(heads: Array, extra: Array) -> tuple[Array, Array]:
    """Append to the keys or values of the tokens: (B, H_kv, T_k, d) -> (B, H_kv, T_k + E, d).

    Also return the extra ones in their heads.
    """
    # 1. split the extra ones into heads, the same for each of B sequences
    extra_heads = split_heads(extra[None], heads.shape[1]).repeat(len(heads), axis=0)
    # 2. append
    return np.concatenate([heads, extra_heads], axis=2), extra_heads


def append_heads_backward(d_appended: Array, T_k: int) -> tuple[Array, Array, Array]:
    """Split the gradient: of the tokens' heads, the extra heads, and the extra ones (E, H_kv*d)."""
    # 2. appended = concatenate([heads, extra_heads])
    d_heads, d_extra_heads = np.split(d_appended, [T_k], axis=2)
    # 1. extra_heads = split_heads(extra), in each sequence: the gradients add up
    d_extra = merge_heads(d_extra_heads).sum(axis=0)
    return d_heads, d_extra_heads, d_extra


def append_columns(cells: Array, T_k: int, E: int, filling: float) -> Array:
    """Fill E more columns of an array that broadcasts to (..., T_k)."""
    wider = np.full((*cells.shape[:-1], T_k + E), filling, cells.dtype)
    wider[..., :T_k] = cells
    return wider


def append_extra_keys_forward(
    q: Array, k: Array, v: Array, extra_k: Array, extra_v: Array, options: AttentionOptions
) -> tuple[Array, Array, AttentionOptions, AttentionInputs]:
    """Return k, v and options for T_k tokens and E extra keys, and the cache for backward.

    That is attention to the tokens only.
    """
    rest: Any = dict(options)
    tokens = check_attention_inputs(
        q, k, v, {name: rest.pop(name) for name in OF_TOKENS if name in rest}
    )
    (*rows, T_k), E = tokens.cells_shape, len(extra_k)
    if rest.get("dropout_mask") is not None:
        dropout_mask = as_float_array("dropout_mask", rest["dropout_mask"])
        check_broadcast("dropout_mask", dropout_mask, (*rows, T_k + E), "B H T_q T_k+E")

    # 1. append to keys and values
    k, k_extra = append_heads_forward(k, extra_k)
    v, v_extra = append_heads_forward(v, extra_v)
    if is_watched():
        record_extra_heads("k", extra_k, k_extra, k)
        record_extra_heads("v", extra_v, v_extra, v)

    # 2. let every query see the extra keys
    visible = tokens.visible
    if visible is not None:
        rest["mask"] = append_columns(visible, T_k, E, filling=True)

    # 3. add nothing to their scores
    if tokens.bias is not None:
        bias = tokens.bias.astype(tokens.dtype, copy=False)
        rest["bias"] = append_columns(bias, T_k, E, filling=0)
    if is_watched():
        record_cells_of_tokens(tokens, visible, rest.get("mask"), rest.get("bias"))
    return k, v, rest, tokens


def append_extra_keys_backward(
    d_k: Array, d_v: Array, d_bias: Array | None, tokens: AttentionInputs
) -> tuple[Array, Array, Array, Array, Array | None]:
    """Pull back to the tokens, the extra keys and the bias: d_k, d_v, d_extra_k, d_extra_v, d_bias.

    Each has the shape of its array as it was passed.
    """
    T_k = tokens.cells_shape[-1]

    # 3. bias = append_columns(bias, 0)
    if d_bias is not None and tokens.bias is not None:
        d_bias = sum_to_shape(d_bias[..., :T_k], tokens.bias.shape)
        if is_watched():
            record_cells_of_tokens_backward(tokens, d_bias)

    # 1. k, v = append_heads(k, extra_k), append_heads(v, extra_v)
    d_k, d_k_extra, d_extra_k = append_heads_backward(d_k, T_k)
    d_v, d_v_extra, d_extra_v = append_heads_backward(d_v, T_k)
    if is_watched():
        record_extra_heads_backward("k", d_k, d_k_extra, d_extra_k)
        record_extra_heads_backward("v", d_v, d_v_extra, d_extra_v)
    return d_k, d_v, d_extra_k, d_extra_v, d_bias
