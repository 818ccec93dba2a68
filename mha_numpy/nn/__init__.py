"""Layers that own their params and collect their gradients."""

from mha_numpy.nn.attention import MultiHeadAttention
from mha_numpy.nn.layer import Layer

__all__ = ["Layer", "MultiHeadAttention"]
