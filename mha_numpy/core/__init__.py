"""Attention as pure functions on arrays: each forward next to its hand-written backward."""

from mha_numpy.core.attention import (
    AttentionCache,
    AttentionGrads,
    AttentionStages,
    attention_backward,
    attention_forward,
    attention_stages,
    scaled_dot_product_attention,
)
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.core.linear import LinearCache, LinearGrads, linear_backward, linear_forward
from mha_numpy.core.mask_report import explain_mask
from mha_numpy.core.masks import causal_mask, combine_masks, padding_mask, window_mask
from mha_numpy.core.merge import MergeCache, MergeGrads, merge_backward, merge_forward
from mha_numpy.core.multihead import (
    MultiHeadCache,
    MultiHeadGrads,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
)
from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.core.options import AttentionOptions
from mha_numpy.core.positions import alibi_bias, sinusoidal_positions
from mha_numpy.core.qk_norm import QKNormOptions
from mha_numpy.core.relative_bias import (
    RelativeBiasCache,
    RelativeBiasGrads,
    relative_bias_backward,
    relative_bias_forward,
)
from mha_numpy.core.rms_norm import (
    RMSNormCache,
    RMSNormGrads,
    rms_norm_backward,
    rms_norm_forward,
)
from mha_numpy.core.rope import RopeCache, RopeGrads, RopeOptions, rope_backward, rope_forward
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.softmax import SoftmaxCache, SoftmaxGrads, softmax_backward, softmax_forward
from mha_numpy.foreign import explain_missing
from mha_numpy.steps import constant, step

__all__ = [
    "AttentionCache", "AttentionGrads", "AttentionOptions", "AttentionStages", "KVCache",
    "LinearCache", "LinearGrads", "MergeCache", "MergeGrads", "MultiHeadCache", "MultiHeadGrads",
    "MultiHeadParams", "QKNormOptions", "RMSNormCache", "RMSNormGrads", "RelativeBiasCache",
    "RelativeBiasGrads", "RopeCache", "RopeGrads", "RopeOptions", "SoftmaxCache", "SoftmaxGrads",
    "alibi_bias", "attention_backward", "attention_forward", "attention_stages", "causal_mask",
    "combine_masks", "constant", "explain_mask", "linear_backward", "linear_forward",
    "merge_backward", "merge_forward", "merge_heads", "multi_head_attention_backward",
    "multi_head_attention_decode", "multi_head_attention_forward", "padding_mask",
    "relative_bias_backward", "relative_bias_forward", "rms_norm_backward", "rms_norm_forward",
    "rope_backward", "rope_forward", "scaled_dot_product_attention", "sinusoidal_positions",
    "softmax_backward", "softmax_forward", "split_heads", "step", "window_mask",
]  # fmt: skip

explain_missing(__name__)
