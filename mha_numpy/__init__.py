"""Attention in NumPy to learn from: forward and hand-written backward, step by step, checked.

`attention_forward` and `attention_backward` compute attention for one head or many, grouped heads
too; `attention_stages` returns the arrays between input and output. `MultiHeadAttention` is a layer
with params; the functions below it are `multi_head_attention_forward`, `..._backward` and, for one
token after another, `..._decode`. Their parts (softmax, linear maps, RoPE, heads split and merged)
are here too. `causal_mask`, `padding_mask` and `window_mask` make masks, and `explain_mask` prints
one. `trace` records every step; `gradcheck` and `compare` check gradients and arrays of any code.
`identify` says what anybody's attention computes.

>>> import numpy as np
>>> from mha_numpy import attention_backward, attention_forward
>>> rng = np.random.default_rng(0)
>>> q, k, v = rng.normal(size=(2, 6, 5, 8)), *rng.normal(size=(2, 2, 3, 7, 8))
>>> out, cache = attention_forward(q, k, v)  # (B, H, T_q, d_v): six query heads on three key heads
>>> grads = attention_backward(rng.normal(size=out.shape), cache)
>>> out.shape, grads.d_q.shape, grads.d_k.shape
((2, 6, 5, 8), (2, 6, 5, 8), (2, 3, 7, 8))
"""

from typing import TYPE_CHECKING

from mha_numpy.backends import backend
from mha_numpy.checking import compare, gradcheck
from mha_numpy.checking.tracing import trace
from mha_numpy.core import (
    BlockPool,
    FullMultiHeadParams,
    Int8KVCache,
    KVCache,
    MultiHeadParams,
    PagedKVCache,
    QKNormOptions,
    RollingKVCache,
    RopeOptions,
    alibi_bias,
    attention_backward,
    attention_backward_jvp,
    attention_double_backward,
    attention_forward,
    attention_jvp,
    attention_stages,
    causal_mask,
    combine_masks,
    document_ids,
    document_mask,
    document_positions,
    explain_mask,
    linear_backward,
    linear_forward,
    linear_jvp,
    merge_backward,
    merge_forward,
    merge_heads,
    merge_jvp,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    multi_head_attention_jvp,
    padding_mask,
    positions_from_mask,
    rope_backward,
    rope_forward,
    rope_jvp,
    scaled_dot_product_attention,
    sinusoidal_positions,
    softmax_backward,
    softmax_forward,
    softmax_jvp,
    split_heads,
    tree_mask,
    tree_positions,
    window_mask,
)
from mha_numpy.errors import (
    BackendError,
    ConfigError,
    DTypeError,
    FileError,
    MaskError,
    MhaError,
    ShapeError,
    TrainingError,
)
from mha_numpy.foreign import explain_missing
from mha_numpy.layers import MultiHeadAttention

if TYPE_CHECKING:  # else imported once it is asked for: few who compute attention need it
    from mha_numpy.identifying import identify

__version__ = "0.1.0"

__all__ = [
    "BackendError", "BlockPool", "ConfigError", "DTypeError", "FileError",
    "FullMultiHeadParams", "Int8KVCache", "KVCache", "MaskError", "MhaError",
    "MultiHeadAttention", "MultiHeadParams", "PagedKVCache", "QKNormOptions", "RollingKVCache",
    "RopeOptions", "ShapeError", "TrainingError", "alibi_bias", "attention_backward",
    "attention_backward_jvp", "attention_double_backward", "attention_forward", "attention_jvp",
    "attention_stages", "backend", "causal_mask", "combine_masks", "compare", "document_ids",
    "document_mask", "document_positions", "explain_mask", "gradcheck", "identify",
    "linear_backward", "linear_forward", "linear_jvp", "merge_backward", "merge_forward",
    "merge_heads", "merge_jvp", "multi_head_attention_backward", "multi_head_attention_decode",
    "multi_head_attention_forward", "multi_head_attention_jvp", "padding_mask",
    "positions_from_mask", "rope_backward", "rope_forward", "rope_jvp",
    "scaled_dot_product_attention", "sinusoidal_positions", "softmax_backward",
    "softmax_forward", "softmax_jvp", "split_heads", "trace", "tree_mask", "tree_positions",
    "window_mask",
]  # fmt: skip

explain_missing(__name__, later={"identify": "mha_numpy.identifying"})
