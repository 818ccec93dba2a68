"""Attention in NumPy to learn from: forward and hand-written backward, step by step, checked."""

from mha_numpy.checking import compare, gradcheck
from mha_numpy.core import (
    KVCache,
    MultiHeadParams,
    RopeOptions,
    alibi_bias,
    attention_backward,
    attention_forward,
    attention_stages,
    causal_mask,
    combine_masks,
    explain_mask,
    linear_backward,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    padding_mask,
    rope_backward,
    rope_forward,
    scaled_dot_product_attention,
    sinusoidal_positions,
    softmax_backward,
    softmax_forward,
    split_heads,
    window_mask,
)
from mha_numpy.errors import (
    BackendError,
    ConfigError,
    DTypeError,
    MaskError,
    MhaError,
    ShapeError,
)
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.tracing import trace

__version__ = "0.1.0"

__all__ = [
    "BackendError", "ConfigError", "DTypeError", "KVCache", "MaskError", "MhaError",
    "MultiHeadAttention", "MultiHeadParams", "RopeOptions", "ShapeError", "alibi_bias",
    "attention_backward", "attention_forward", "attention_stages", "causal_mask",
    "combine_masks", "compare", "explain_mask", "gradcheck", "linear_backward",
    "linear_forward", "merge_heads", "multi_head_attention_backward",
    "multi_head_attention_decode", "multi_head_attention_forward", "padding_mask",
    "rope_backward", "rope_forward", "scaled_dot_product_attention", "sinusoidal_positions",
    "softmax_backward", "softmax_forward", "split_heads", "trace", "window_mask",
]  # fmt: skip
