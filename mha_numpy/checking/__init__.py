"""Checks for any callables and arrays, including a student's: gradients, results, traces."""

from mha_numpy.checking.compare import ComparedArray, Comparison, agrees, compare
from mha_numpy.checking.gradients import gradcheck
from mha_numpy.checking.report import ArrayReport, GradcheckReport

__all__ = [
    "ArrayReport", "ComparedArray", "Comparison", "GradcheckReport", "agrees", "compare",
    "gradcheck",
]  # fmt: skip
