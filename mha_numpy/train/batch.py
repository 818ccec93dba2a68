"""What one training step reads."""

from typing import NamedTuple

from mha_numpy.dtypes import Array

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
