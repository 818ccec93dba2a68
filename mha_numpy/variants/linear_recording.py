"""What a trace of linear attention notes: the recurrence, token by token."""

from typing import Any

from mha_numpy.core.pair import Records, Values
from mha_numpy.dtypes import Array


def record_recurrence(values: Values) -> Records:
    """Yield the steps of forward."""
    return ()


def record_recurrence_backward(*given: Any) -> None:
    """Record the way back."""
