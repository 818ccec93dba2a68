"""Show it any attention: `identify` says what a function computes, by calling it."""

from mha_numpy.identifying.datasheet import Datasheet, Named, Row
from mha_numpy.identifying.entry import identify

__all__ = ["Datasheet", "Named", "Row", "identify"]
