"""Record every step of a computation: what each array is, and whether it is a view or a copy."""

from mha_numpy.trace.recorder import Step, Trace, trace

__all__ = ["Step", "Trace", "trace"]
