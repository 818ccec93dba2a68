"""Record every step of a computation: its array, and whether that is a view or a copy."""

from mha_numpy.checking.tracing.recorder import Trace, trace
from mha_numpy.checking.tracing.step import Step

__all__ = ["Step", "Trace", "trace"]
