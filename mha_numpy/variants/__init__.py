"""Attention as it is used today, forward and backward: latent, differential, linear, selected."""

from mha_numpy.foreign import explain_missing
from mha_numpy.variants.block_selection import (
    BlockSelectionCache,
    block_selection_backward,
    block_selection_forward,
    block_selection_jvp,
)
from mha_numpy.variants.causal_conv import (
    CausalConvCache,
    CausalConvGrads,
    CausalConvTangents,
    causal_conv_backward,
    causal_conv_forward,
    causal_conv_jvp,
)
from mha_numpy.variants.differential import (
    DifferentialCache,
    DifferentialGrads,
    DifferentialParams,
    differential_attention_backward,
    differential_attention_forward,
    differential_attention_jvp,
)
from mha_numpy.variants.latent import (
    LatentAttentionCache,
    LatentAttentionGrads,
    latent_attention_backward,
    latent_attention_decode,
    latent_attention_forward,
)
from mha_numpy.variants.latent_jvp import latent_attention_jvp
from mha_numpy.variants.latent_params import LatentAttentionParams
from mha_numpy.variants.linear_attention import (
    LinearAttentionCache,
    LinearAttentionGrads,
    LinearAttentionTangents,
    linear_attention_backward,
    linear_attention_forward,
    linear_attention_jvp,
)

__all__ = [
    "BlockSelectionCache", "CausalConvCache", "CausalConvGrads", "CausalConvTangents",
    "DifferentialCache", "DifferentialGrads", "DifferentialParams", "LatentAttentionCache",
    "LatentAttentionGrads", "LatentAttentionParams", "LinearAttentionCache",
    "LinearAttentionGrads", "LinearAttentionTangents", "block_selection_backward",
    "block_selection_forward", "block_selection_jvp", "causal_conv_backward", "causal_conv_forward",
    "causal_conv_jvp", "differential_attention_backward", "differential_attention_forward",
    "differential_attention_jvp", "latent_attention_backward", "latent_attention_decode",
    "latent_attention_forward", "latent_attention_jvp", "linear_attention_backward",
    "linear_attention_forward", "linear_attention_jvp",
]  # fmt: skip

explain_missing(__name__)
