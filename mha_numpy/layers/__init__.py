"""Layers that own their params and collect their gradients."""

from mha_numpy.layers.attention import MultiHeadAttention
from mha_numpy.layers.cross_entropy import (
    CrossEntropyCache,
    CrossEntropyGrads,
    cross_entropy_backward,
    cross_entropy_forward,
)
from mha_numpy.layers.dropout import (
    DropoutCache,
    DropoutGrads,
    dropout_backward,
    dropout_forward,
)
from mha_numpy.layers.dropout_layer import Dropout
from mha_numpy.layers.embedding import (
    EmbeddingCache,
    EmbeddingGrads,
    embedding_backward,
    embedding_forward,
)
from mha_numpy.layers.embedding_layer import Embedding, LearnedPositions, Unembedding
from mha_numpy.layers.feed_forward import (
    FeedForwardCache,
    FeedForwardGrads,
    FeedForwardParams,
    feed_forward_backward,
    feed_forward_forward,
)
from mha_numpy.layers.feed_forward_layer import FeedForward
from mha_numpy.layers.gelu import (
    GeluCache,
    GeluGrads,
    gelu_backward,
    gelu_forward,
)
from mha_numpy.layers.layer import Layer
from mha_numpy.layers.layer_norm import (
    LayerNormCache,
    LayerNormGrads,
    layer_norm_backward,
    layer_norm_forward,
)
from mha_numpy.layers.learned_positions import (
    LearnedPositionsCache,
    LearnedPositionsGrads,
    learned_positions_backward,
    learned_positions_forward,
)
from mha_numpy.layers.linear import Linear
from mha_numpy.layers.norm import LayerNorm, RMSNorm
from mha_numpy.layers.relu import (
    ReluCache,
    ReluGrads,
    relu_backward,
    relu_forward,
)
from mha_numpy.layers.residual import Residual
from mha_numpy.layers.rms_norm import (
    RMSNormCache,
    RMSNormGrads,
    rms_norm_backward,
    rms_norm_forward,
)
from mha_numpy.layers.sequential import Activation, Sequential
from mha_numpy.layers.swiglu import (
    SwigluCache,
    SwigluGrads,
    swiglu_backward,
    swiglu_forward,
)
from mha_numpy.layers.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoderBlock,
    TransformerBlock,
)
from mha_numpy.names import explain_missing

__all__ = [
    "Activation", "CrossEntropyCache", "CrossEntropyGrads", "DecoderBlock", "Dropout",
    "DropoutCache", "DropoutGrads", "Embedding", "EmbeddingCache", "EmbeddingGrads",
    "EncoderBlock", "EncoderDecoderBlock", "FeedForward", "FeedForwardCache", "FeedForwardGrads",
    "FeedForwardParams", "GeluCache", "GeluGrads", "Layer", "LayerNorm", "LayerNormCache",
    "LayerNormGrads", "LearnedPositions", "LearnedPositionsCache", "LearnedPositionsGrads",
    "Linear", "MultiHeadAttention", "RMSNorm", "RMSNormCache", "RMSNormGrads", "ReluCache",
    "ReluGrads", "Residual", "Sequential", "SwigluCache", "SwigluGrads", "TransformerBlock",
    "Unembedding", "cross_entropy_backward", "cross_entropy_forward", "dropout_backward",
    "dropout_forward", "embedding_backward", "embedding_forward", "feed_forward_backward",
    "feed_forward_forward", "gelu_backward", "gelu_forward", "layer_norm_backward",
    "layer_norm_forward", "learned_positions_backward", "learned_positions_forward",
    "relu_backward", "relu_forward", "rms_norm_backward", "rms_norm_forward", "swiglu_backward",
    "swiglu_forward",
]  # fmt: skip

explain_missing(__name__)
