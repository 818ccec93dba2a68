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
from mha_numpy.core.attention_jvp import AttentionTangents, attention_jvp
from mha_numpy.core.attention_second_order import (
    AttentionDoubleGrads,
    attention_backward_jvp,
    attention_double_backward,
)
from mha_numpy.core.caches import (
    BlockPool,
    Int8Bounds,
    Int8KVCache,
    PagedKVCache,
    RollingKVCache,
    accepted_path,
    dequantise,
    int8_bounds,
    pad_batch,
    quantise,
    tree_mask,
    tree_positions,
)
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.core.linear import (
    LinearCache,
    LinearGrads,
    linear_backward,
    linear_forward,
    linear_jvp,
)
from mha_numpy.core.mask_report import explain_mask
from mha_numpy.core.masks import (
    causal_mask,
    combine_masks,
    document_ids,
    document_mask,
    padding_mask,
    window_mask,
)
from mha_numpy.core.merge import (
    MergeCache,
    MergeGrads,
    MergeTangents,
    merge_backward,
    merge_forward,
    merge_jvp,
)
from mha_numpy.core.multihead import (
    MultiHeadCache,
    MultiHeadGrads,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    multi_head_attention_jvp,
)
from mha_numpy.core.multihead_params import FullMultiHeadParams, MultiHeadParams
from mha_numpy.core.options import AttentionOptions
from mha_numpy.core.positions import (
    alibi_bias,
    document_positions,
    positions_from_mask,
    sinusoidal_positions,
)
from mha_numpy.core.qk_norm import QKNormOptions
from mha_numpy.core.relative_bias import (
    RelativeBiasCache,
    RelativeBiasGrads,
    relative_bias_backward,
    relative_bias_forward,
    relative_bias_jvp,
)
from mha_numpy.core.rms_norm import (
    RMSNormCache,
    RMSNormGrads,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_jvp,
)
from mha_numpy.core.rope import (
    RopeCache,
    RopeGrads,
    RopeOptions,
    rope_backward,
    rope_forward,
    rope_jvp,
)
from mha_numpy.core.rope_scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ProportionalScaling,
    YarnScaling,
    rope_frequencies,
    yarn_mscale,
)
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.softmax import (
    SoftmaxCache,
    SoftmaxGrads,
    softmax_backward,
    softmax_forward,
    softmax_jvp,
)
from mha_numpy.foreign import explain_missing
from mha_numpy.steps import constant, step

__all__ = [
    "AttentionCache", "AttentionDoubleGrads", "AttentionGrads", "AttentionOptions",
    "AttentionStages", "AttentionTangents", "BlockPool", "DynamicScaling",
    "FullMultiHeadParams", "Int8Bounds", "Int8KVCache", "KVCache", "LinearCache", "LinearGrads",
    "LinearScaling", "Llama3Scaling", "LongRopeScaling", "MergeCache", "MergeGrads",
    "MergeTangents", "MultiHeadCache", "MultiHeadGrads", "MultiHeadParams", "PagedKVCache",
    "ProportionalScaling", "QKNormOptions", "RMSNormCache", "RMSNormGrads", "RelativeBiasCache",
    "RelativeBiasGrads", "RollingKVCache", "RopeCache", "RopeGrads", "RopeOptions",
    "SoftmaxCache", "SoftmaxGrads", "YarnScaling", "accepted_path", "alibi_bias",
    "attention_backward", "attention_backward_jvp", "attention_double_backward",
    "attention_forward", "attention_jvp", "attention_stages", "causal_mask", "combine_masks",
    "constant", "dequantise", "document_ids", "document_mask", "document_positions",
    "explain_mask", "int8_bounds", "linear_backward", "linear_forward", "linear_jvp",
    "merge_backward", "merge_forward", "merge_heads", "merge_jvp",
    "multi_head_attention_backward", "multi_head_attention_decode",
    "multi_head_attention_forward", "multi_head_attention_jvp", "pad_batch", "padding_mask",
    "positions_from_mask", "quantise", "relative_bias_backward", "relative_bias_forward",
    "relative_bias_jvp", "rms_norm_backward", "rms_norm_forward", "rms_norm_jvp",
    "rope_backward", "rope_forward", "rope_frequencies", "rope_jvp",
    "scaled_dot_product_attention", "sinusoidal_positions", "softmax_backward",
    "softmax_forward", "softmax_jvp", "split_heads", "step", "tree_mask", "tree_positions",
    "window_mask", "yarn_mscale",
]  # fmt: skip

explain_missing(__name__)
