"""Checks for any callables and arrays, a student's too: gradients, results, traces, rounding."""

from mha_numpy.checking.compare import ComparedArray, Comparison, agrees, compare
from mha_numpy.checking.error_bounds import error_bounds
from mha_numpy.checking.gradients import gradcheck
from mha_numpy.checking.replay import replay
from mha_numpy.checking.report import ArrayReport, GradcheckReport
from mha_numpy.checking.rounding import round_to

__all__ = [
    "ArrayReport", "ComparedArray", "Comparison", "GradcheckReport", "agrees", "compare",
    "error_bounds", "gradcheck", "replay", "round_to",
]  # fmt: skip
