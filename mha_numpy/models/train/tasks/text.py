"""Text: predict the next character."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.models.train.batch import Batch


class Text:
    """The model reads pieces of a text and predicts the next character after each.

    Parameters
    ----------
    text : str
        Its characters make the vocabulary; its last tenth is held out.
    num_tokens : int
        Characters of a piece.

    Examples
    --------
    >>> task = Text("to be or not to be " * 20, num_tokens=8)
    >>> (ids,), targets = task.draw_batch(np.random.default_rng(0), 1)
    >>> task.decode(ids[0]), task.decode(targets[0])
    (' to be o', 'to be or')
    """

    def __init__(self, text: str, num_tokens: int = 64) -> None:
        self.num_tokens = check_count("num_tokens", num_tokens)
        if not isinstance(text, str):
            raise ConfigError(f"text: expected a str; got {describe(text)}")
        self.vocabulary = sorted(set(text))
        self._number_of = {character: i for i, character in enumerate(self.vocabulary)}
        ids = self.encode(text)
        cut = len(ids) - len(ids) // 10
        self.trained_on, self.held_out = ids[:cut], ids[cut:]
        if len(self.held_out) <= num_tokens:
            raise ConfigError(
                f"text: expected more than {10 * (num_tokens + 1):,} characters, because its last "
                f"tenth is held out and must have {num_tokens + 1}; got {len(text):,}"
            )

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw pieces of the text to train on."""
        return self._cut(self.trained_on, rng, size)

    def draw_held_out(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw pieces of the held-out text."""
        return self._cut(self.held_out, rng, size)

    def _cut(self, ids: Array, rng: np.random.Generator, size: int) -> Batch:
        starts = rng.integers(len(ids) - self.num_tokens, size=(size, 1))
        pieces = ids[starts + np.arange(self.num_tokens + 1)]
        return Batch((pieces[:, :-1],), pieces[:, 1:])

    def encode(self, text: str) -> Array:
        """Return the ids of characters."""
        unknown = [character for character in text if character not in self._number_of]
        if unknown:
            raise ConfigError(
                f"text: expected characters of the text that the model has learned; "
                f"got {unknown[0]!r}"
            )
        return np.array([self._number_of[character] for character in text], int)

    def decode(self, ids: Array) -> str:
        """Return the characters that ids stand for."""
        return "".join(self.vocabulary[i] for i in ids)
