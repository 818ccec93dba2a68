"""The ONNX operator Attention (opsets 23 to 25) run on `mha_numpy.core`.

Names, layouts and dtypes are mapped; all that is computed is computed by core.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.core import (
    KVCache,
    attention_forward,
    attention_stages,
    combine_masks,
    merge_heads,
    padding_mask,
    split_heads,
)

STAGES = ("scores", "capped", "masked", "weights")  # by qk_matmul_output_mode
SOFTMAX_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "float32"}  # by TensorProto type


class Inputs(NamedTuple):
    """The operator's inputs, in the order of a node's."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    attn_mask: np.ndarray | None = None
    past_key: np.ndarray | None = None
    past_value: np.ndarray | None = None
    nonpad_kv_seqlen: np.ndarray | None = None


class Outputs(NamedTuple):
    """The operator's outputs, in the order of a node's; None for one that was not asked for."""

    Y: np.ndarray | None = None
    present_key: np.ndarray | None = None
    present_value: np.ndarray | None = None
    qk_matmul_output: np.ndarray | None = None


class Attributes(NamedTuple):
    """The operator's attributes, with their defaults."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


def run_attention(inputs, attributes, wanted):
    """Return the Outputs whose names are in `wanted`; inputs and attributes come by name."""
    given, options = Inputs(**inputs), Attributes(**attributes)
    Q, K, V, attn_mask, past_key, past_value, nonpad = _widened(given, options.softmax_precision)
    if Q.ndim == 3:
        Q = split_heads(Q, options.q_num_heads)
        K, V = split_heads(K, options.kv_num_heads), split_heads(V, options.kv_num_heads)

    kv_cache = KVCache()
    if past_key is not None:
        kv_cache.append(past_key, past_value)
    q_offset = kv_cache.length
    K, V = kv_cache.append(K, V)

    T_q, T_k = Q.shape[2], K.shape[2]
    mask, bias = _mask_or_bias(attn_mask, T_k)
    if nonpad is not None:
        mask = combine_masks(mask, padding_mask(nonpad, T_k))
        q_offset = nonpad - T_q
    heads, cache = attention_forward(
        Q, K, V, mask=mask, bias=bias, is_causal=bool(options.is_causal), q_offset=q_offset,
        window=(_bound(options.left_window_size), _bound(options.right_window_size)),
        softcap=options.softcap or None, scale=options.scale,
    )  # fmt: skip

    found = {"Y": merge_heads(heads) if given.Q.ndim == 3 else heads}
    found |= {"present_key": K, "present_value": V}
    if "qk_matmul_output" in wanted:
        stage = STAGES[options.qk_matmul_output_mode]
        found["qk_matmul_output"] = getattr(attention_stages(cache), stage)
    dtypes = {"present_key": given.K.dtype, "present_value": given.V.dtype}
    return Outputs(**{x: found[x].astype(dtypes.get(x, given.Q.dtype)) for x in wanted})


def _widened(given, softmax_precision):
    """Return the inputs with their floats widened, never narrowed, to the dtype to compute in.

    Core knows no bfloat16, and computes its softmax in the dtype of everything else.
    """
    dtype = np.dtype(SOFTMAX_DTYPES.get(softmax_precision, "float16"))
    return Inputs(*(_widen(array, dtype) for array in given))


def _widen(array, dtype):
    """Return floats in at least `dtype`, and anything else as it is."""
    if array is None or array.dtype.kind in "bi":
        return array
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array.astype(np.result_type(array, dtype), copy=False)


def _mask_or_bias(attn_mask, T_k):
    """Sort an attn_mask by its dtype; keys beyond its end are hidden."""
    if attn_mask is None:
        return None, None
    is_mask = attn_mask.dtype == bool
    missing = T_k - attn_mask.shape[-1]
    pad_width = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
    padded = np.pad(attn_mask, pad_width, constant_values=False if is_mask else -np.inf)
    return (padded, None) if is_mask else (None, padded)


def _bound(size):
    """Return one side of a window: -1 is unbounded."""
    return None if size == -1 else size
