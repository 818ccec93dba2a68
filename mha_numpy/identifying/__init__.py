"""Show it any attention: `identify` says what a function computes, by calling it."""

from mha_numpy.identifying.entry import identify
from mha_numpy.identifying.reporting.datasheet import Named
from mha_numpy.identifying.reporting.rows import Row
from mha_numpy.identifying.reporting.sheet import Datasheet

__all__ = ["Datasheet", "Named", "Row", "identify"]
