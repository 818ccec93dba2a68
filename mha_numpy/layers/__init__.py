"""Layers that own their params and collect their gradients."""

from mha_numpy.core.rms_norm import (
    RMSNormCache,
    RMSNormGrads,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_jvp,
)
from mha_numpy.foreign import explain_missing
from mha_numpy.layers.activations import (
    Activation,
    GegluCache,
    GegluGrads,
    GeluCache,
    GeluGrads,
    ReluCache,
    ReluGrads,
    Softcap,
    SoftcapCache,
    SoftcapGrads,
    SwigluCache,
    SwigluGrads,
    geglu_backward,
    geglu_forward,
    geglu_jvp,
    gelu_backward,
    gelu_forward,
    gelu_jvp,
    relu_backward,
    relu_forward,
    relu_jvp,
    softcap_backward,
    softcap_forward,
    softcap_jvp,
    swiglu_backward,
    swiglu_forward,
    swiglu_jvp,
)
from mha_numpy.layers.attention import MultiHeadAttention
from mha_numpy.layers.cross_entropy import (
    CrossEntropyCache,
    CrossEntropyGrads,
    cross_entropy_backward,
    cross_entropy_forward,
    cross_entropy_jvp,
)
from mha_numpy.layers.dropout import (
    Dropout,
    DropoutCache,
    DropoutGrads,
    dropout_backward,
    dropout_forward,
    dropout_jvp,
)
from mha_numpy.layers.embedding import (
    Embedding,
    EmbeddingCache,
    EmbeddingGrads,
    LearnedPositions,
    LearnedPositionsCache,
    LearnedPositionsGrads,
    Unembedding,
    embedding_backward,
    embedding_forward,
    embedding_jvp,
    learned_positions_backward,
    learned_positions_forward,
    learned_positions_jvp,
)
from mha_numpy.layers.experts import (
    ExpertOptions,
    MixtureOfExperts,
    MixtureOfExpertsCache,
    MixtureOfExpertsGrads,
    mixture_of_experts_backward,
    mixture_of_experts_forward,
    mixture_of_experts_jvp,
)
from mha_numpy.layers.feed_forward import (
    FeedForward,
    FeedForwardCache,
    FeedForwardGrads,
    FeedForwardParams,
    feed_forward_backward,
    feed_forward_forward,
    feed_forward_jvp,
)
from mha_numpy.layers.gated_delta import DeltaOptions, DeltaState, GatedDeltaNet
from mha_numpy.layers.latent_attention import LatentAttention, LatentOptions
from mha_numpy.layers.layer import Layer
from mha_numpy.layers.linear import Linear
from mha_numpy.layers.norms import (
    LayerNorm,
    LayerNormCache,
    LayerNormGrads,
    RMSNorm,
    layer_norm_backward,
    layer_norm_forward,
    layer_norm_jvp,
)
from mha_numpy.layers.residual import Residual
from mha_numpy.layers.sequential import Sequential
from mha_numpy.layers.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    TransformerBlock,
)

__all__ = [
    "Activation", "CrossEntropyCache", "CrossEntropyGrads", "DecoderBlock", "DeltaOptions",
    "DeltaState", "Dropout", "DropoutCache", "DropoutGrads", "Embedding", "EmbeddingCache",
    "EmbeddingGrads", "EncoderBlock", "EncoderDecoderBlock", "ExpertOptions", "FeedForward",
    "FeedForwardCache", "FeedForwardGrads", "FeedForwardParams", "GatedDeltaNet", "GegluCache",
    "GegluGrads", "GeluCache", "GeluGrads", "LatentAttention", "LatentOptions", "Layer",
    "LayerNorm", "LayerNormCache", "LayerNormGrads", "LearnedPositions",
    "LearnedPositionsCache", "LearnedPositionsGrads", "Linear", "MixtureOfExperts",
    "MixtureOfExpertsCache", "MixtureOfExpertsGrads", "MultiHeadAttention", "RMSNorm",
    "RMSNormCache", "RMSNormGrads", "ReluCache", "ReluGrads", "Residual", "Sequential",
    "Softcap", "SoftcapCache", "SoftcapGrads", "SwigluCache", "SwigluGrads", "TransformerBlock",
    "Unembedding", "cross_entropy_backward", "cross_entropy_forward", "cross_entropy_jvp",
    "dropout_backward", "dropout_forward", "dropout_jvp", "embedding_backward",
    "embedding_forward", "embedding_jvp", "feed_forward_backward", "feed_forward_forward",
    "feed_forward_jvp", "geglu_backward", "geglu_forward", "geglu_jvp", "gelu_backward",
    "gelu_forward", "gelu_jvp", "layer_norm_backward", "layer_norm_forward", "layer_norm_jvp",
    "learned_positions_backward", "learned_positions_forward", "learned_positions_jvp",
    "mixture_of_experts_backward", "mixture_of_experts_forward", "mixture_of_experts_jvp",
    "relu_backward", "relu_forward", "relu_jvp", "rms_norm_backward", "rms_norm_forward",
    "rms_norm_jvp", "softcap_backward", "softcap_forward", "softcap_jvp", "swiglu_backward",
    "swiglu_forward", "swiglu_jvp",
]  # fmt: skip

explain_missing(__name__)
