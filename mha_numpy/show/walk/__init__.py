"""The walk: real text through attention, every step shown, every gradient checked."""

from mha_numpy.show.walk.result import Walk
from mha_numpy.show.walk.steps import walk
from mha_numpy.show.walk.tokens import embed, tokenize

__all__ = ["Walk", "embed", "tokenize", "walk"]
