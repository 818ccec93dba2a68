"""Layers that own their params and collect their gradients."""

from typing import TYPE_CHECKING, Never

from mha_numpy.nn.attention import MultiHeadAttention
from mha_numpy.nn.blocks import DecoderBlock, EncoderBlock, EncoderDecoderBlock, TransformerBlock
from mha_numpy.nn.dropout import Dropout
from mha_numpy.nn.embedding import Embedding, LearnedPositions, Unembedding
from mha_numpy.nn.feed_forward import FeedForward
from mha_numpy.nn.foreign import missing_layer
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


if not TYPE_CHECKING:  # or a type checker would believe that every name is here

    def __getattr__(name: str) -> Never:
        """Raise the error of a layer that is not here."""
        raise missing_layer(name, __all__)
