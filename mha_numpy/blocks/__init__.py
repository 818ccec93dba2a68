"""What stands around attention in a transformer: each forward beside its hand-written backward."""

from mha_numpy.blocks.cross_entropy import (
    CrossEntropyCache,
    CrossEntropyGrads,
    cross_entropy_backward,
    cross_entropy_forward,
)
from mha_numpy.blocks.dropout import (
    DropoutCache,
    DropoutGrads,
    dropout_backward,
    dropout_forward,
)
from mha_numpy.blocks.embedding import (
    EmbeddingCache,
    EmbeddingGrads,
    embedding_backward,
    embedding_forward,
)
from mha_numpy.blocks.feed_forward import (
    FeedForwardCache,
    FeedForwardGrads,
    FeedForwardParams,
    feed_forward_backward,
    feed_forward_forward,
)
from mha_numpy.blocks.gelu import (
    GeluCache,
    GeluGrads,
    gelu_backward,
    gelu_forward,
)
from mha_numpy.blocks.layer_norm import (
    LayerNormCache,
    LayerNormGrads,
    layer_norm_backward,
    layer_norm_forward,
)
from mha_numpy.blocks.learned_positions import (
    LearnedPositionsCache,
    LearnedPositionsGrads,
    learned_positions_backward,
    learned_positions_forward,
)
from mha_numpy.blocks.relu import (
    ReluCache,
    ReluGrads,
    relu_backward,
    relu_forward,
)
from mha_numpy.blocks.rms_norm import (
    RMSNormCache,
    RMSNormGrads,
    rms_norm_backward,
    rms_norm_forward,
)
from mha_numpy.blocks.swiglu import (
    SwigluCache,
    SwigluGrads,
    swiglu_backward,
    swiglu_forward,
)

__all__ = [
    "CrossEntropyCache", "CrossEntropyGrads", "DropoutCache", "DropoutGrads", "EmbeddingCache",
    "EmbeddingGrads", "FeedForwardCache", "FeedForwardGrads", "FeedForwardParams", "GeluCache",
    "GeluGrads", "LayerNormCache", "LayerNormGrads", "LearnedPositionsCache",
    "LearnedPositionsGrads", "RMSNormCache", "RMSNormGrads", "ReluCache", "ReluGrads",
    "SwigluCache", "SwigluGrads", "cross_entropy_backward", "cross_entropy_forward",
    "dropout_backward", "dropout_forward", "embedding_backward", "embedding_forward",
    "feed_forward_backward", "feed_forward_forward", "gelu_backward", "gelu_forward",
    "layer_norm_backward", "layer_norm_forward", "learned_positions_backward",
    "learned_positions_forward", "relu_backward", "relu_forward", "rms_norm_backward",
    "rms_norm_forward", "swiglu_backward", "swiglu_forward",
]  # fmt: skip
