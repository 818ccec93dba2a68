"""Attention as it is used today, as pairs of functions on arrays: latent attention."""

from mha_numpy.foreign import explain_missing
from mha_numpy.variants.latent import (
    LatentAttentionCache,
    LatentAttentionGrads,
    latent_attention_backward,
    latent_attention_decode,
    latent_attention_forward,
)
from mha_numpy.variants.latent_params import LatentAttentionParams

__all__ = [
    "LatentAttentionCache", "LatentAttentionGrads", "LatentAttentionParams",
    "latent_attention_backward", "latent_attention_decode", "latent_attention_forward",
]  # fmt: skip

explain_missing(__name__)
