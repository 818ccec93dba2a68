"""Layers that own their params and collect their gradients."""

from mha_numpy.names import explain_missing
from mha_numpy.nn.attention import MultiHeadAttention
from mha_numpy.nn.blocks import DecoderBlock, EncoderBlock, EncoderDecoderBlock, TransformerBlock
from mha_numpy.nn.dropout import Dropout
from mha_numpy.nn.embedding import Embedding, LearnedPositions, Unembedding
from mha_numpy.nn.feed_forward import FeedForward
from mha_numpy.nn.layer import Layer
from mha_numpy.nn.linear import Linear
from mha_numpy.nn.norm import LayerNorm, RMSNorm
from mha_numpy.nn.residual import Residual
from mha_numpy.nn.sequential import Activation, Sequential

__all__ = [
    "Activation", "DecoderBlock", "Dropout", "Embedding", "EncoderBlock", "EncoderDecoderBlock",
    "FeedForward", "Layer", "LayerNorm", "LearnedPositions", "Linear", "MultiHeadAttention",
    "RMSNorm", "Residual", "Sequential", "TransformerBlock", "Unembedding",
]  # fmt: skip

explain_missing(__name__)
