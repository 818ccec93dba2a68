"""Reverse: write a sequence of digits backwards."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.models.train.batch import Batch


class Reverse:
    """The model reads a sequence of random digits and writes its reverse.

    Position t of the answer is digit ``T - 1 - t`` of the question: a head that has learned it
    looks along the antidiagonal.

    Examples
    --------
    >>> task = Reverse(num_tokens=4)
    >>> (ids,), targets = task.draw_batch(np.random.default_rng(0), 1)
    >>> ids, targets
    (array([[8, 6, 5, 2]]), array([[2, 5, 6, 8]]))
    """

    vocab_size = 10

    def __init__(self, num_tokens: int = 12) -> None:
        self.num_tokens = check_count("num_tokens", num_tokens)

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw sequences and their reverses."""
        ids = rng.integers(self.vocab_size, size=(size, self.num_tokens))
        return Batch((ids,), ids[:, ::-1])
