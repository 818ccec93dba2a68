"""The input of one training step."""

from typing import Any, NamedTuple

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

IGNORED = -100  # a target of which nothing is asked


class Batch(NamedTuple):
    """Ids for a model, and the targets that it should predict.

    Examples
    --------
    >>> import numpy as np
    >>> ids = np.array([[3, 1, 4, 1, 5]])
    >>> Batch((ids[:, :-1],), ids[:, 1:])
    Batch(inputs=(array([[3, 1, 4, 1]]),), targets=array([[1, 4, 1, 5]]))
    """

    inputs: tuple[Array, ...]  # what model.forward takes
    targets: Array  # (...,) ids, the logits' shape without the last axis; IGNORED: not asked


def check_batch(name: str, batch: Any) -> None:
    """Raise a ConfigError unless `batch` is a Batch with a tuple of inputs."""
    if not isinstance(batch, Batch) or not isinstance(batch.inputs, (tuple, list)):
        got = (
            f"a Batch of {describe(batch.inputs)}" if isinstance(batch, Batch) else describe(batch)
        )
        raise ConfigError(f"{name}: expected a Batch, such as Batch((ids,), targets); got {got}")
