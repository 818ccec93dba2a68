"""Induction: predict what followed the last time."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.models.train.batch import IGNORED, Batch


class Induction:
    """Segments of random tokens come back, and the model predicts the tokens that come back.

    A sequence is made of segments of 4 to 10 tokens; each occurs two or three times, with up to
    two other tokens before each occurrence. Tokens are drawn without being put back, so a token
    that occurs again belongs to a segment that has come back. The targets are all tokens of a
    second or third occurrence except its first, which cannot be predicted.

    Parameters
    ----------
    vocab_size, num_tokens : int
        V, and T, at most 1.5 V: the tokens of longer sequences would run out.

    Examples
    --------
    >>> task = Induction(vocab_size=32, num_tokens=48)
    >>> (ids,), targets = task.draw_batch(np.random.default_rng(0), 64)
    >>> ids.shape, bool((targets >= 0).mean() > 0.3)
    ((64, 48), True)
    """

    def __init__(self, vocab_size: int = 32, num_tokens: int = 48) -> None:
        self.vocab_size = check_count("vocab_size", vocab_size)
        self.num_tokens = check_count("num_tokens", num_tokens)
        if 2 * num_tokens > 3 * vocab_size:
            raise ConfigError(
                f"num_tokens: expected at most {3 * vocab_size // 2}, 1.5 times "
                f"vocab_size={vocab_size}, because no token is drawn twice; got {num_tokens}"
            )

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw sequences, and their targets: the next tokens of segments that come back."""
        drawn = [self._draw_sequence(rng) for _ in range(size)]
        ids, comes_back = (np.stack(part) for part in zip(*drawn, strict=True))
        targets = np.where(comes_back, ids, IGNORED)
        # the target of a token is the next one
        return Batch((ids[:, :-1],), targets[:, 1:])

    def _draw_sequence(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw T + 1 tokens, and whether each could be predicted from the earlier ones."""
        T = self.num_tokens + 1
        fresh = rng.permutation(self.vocab_size)
        parts: list[Array] = []
        known: list[Array] = []

        def add(tokens: Array, is_known: bool) -> None:
            parts.append(tokens)
            known.append(np.arange(len(tokens)) > 0 if is_known else np.zeros(len(tokens), bool))

        while sum(map(len, parts)) < T:
            length, times = rng.integers(4, 11), rng.integers(2, 4)
            segment, fresh = np.split(fresh, [length])
            if len(segment) == 0:
                return self._draw_sequence(rng)  # all tokens are used up, which is rare
            for i in range(times):
                between, fresh = np.split(fresh, [rng.integers(3)])
                add(between, is_known=False)
                add(segment, is_known=i > 0)
        return np.concatenate(parts)[:T], np.concatenate(known)[:T]
