"""Attention as it is used today, as pairs of functions on arrays: linear attention."""

from mha_numpy.foreign import explain_missing
from mha_numpy.variants.linear_attention import (
    LinearAttentionCache,
    LinearAttentionGrads,
    linear_attention_backward,
    linear_attention_forward,
)

__all__ = [
    "LinearAttentionCache", "LinearAttentionGrads", "linear_attention_backward",
    "linear_attention_forward",
]  # fmt: skip

explain_missing(__name__)
