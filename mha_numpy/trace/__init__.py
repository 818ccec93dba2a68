"""Record every step of a computation: what each array is, and whether it is a view or a copy."""

from mha_numpy.trace.recorder import Trace, trace
from mha_numpy.trace.step import Step

__all__ = ["Step", "Trace", "trace"]
