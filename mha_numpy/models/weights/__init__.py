"""Params as PyTorch, Keras, Flax and Hugging Face store them: a table each, for both directions."""

from mha_numpy.models.weights.convert import from_layout, to_layout
from mha_numpy.models.weights.files import read_safetensors, write_safetensors
from mha_numpy.models.weights.layout import Layout, Row
from mha_numpy.models.weights.layouts import LAYOUTS

__all__ = [
    "LAYOUTS", "Layout", "Row", "from_layout", "read_safetensors", "to_layout",
    "write_safetensors",
]  # fmt: skip
