"""Texts as a pretrained model's tokens."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, FileError, one_line
from mha_numpy.models.config import SPECIAL, ModelConfig
from mha_numpy.models.weights.files import INSTALL

BLANKS = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})  # in tokens' names
LEAST_USED = 0.9  # of a model's vocabulary; the rest may only fill up its size


class Tokens(NamedTuple):
    """Texts, cut into tokens and padded to the longest."""

    ids: Array  # (B, T) int
    mask: Array  # (B, T) bool, True = a token
    names: list[list[str]]  # of each text's tokens, without padding


def as_tokens(ids: list[list[int]], names: list[list[str]]) -> Tokens:
    """Return tokens by their ids and names, padded on the right."""
    lengths = np.array(list(map(len, ids)))
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = list(chain(*ids))
    return Tokens(padded, mask, names)


class Tokenizer:
    """Cuts text into the tokens of a tokenizer.json, with the package tokenizers."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Rules
        except ImportError as reason:
            raise ConfigError(f"tokenizers is not installed; {INSTALL}") from reason
        try:
            self.rules: Any = Rules.from_file(str(path))
        except Exception as reason:  # a type of the library's own
            why = one_line(reason)
            raise FileError(f"{path}: expected a tokenizer.json; got {why}") from reason
        self.path = path
        self.rules.no_truncation()
        self.rules.no_padding()

    def __call__(self, texts: str | Sequence[str]) -> Tokens:
        """Cut a text, or several, into tokens."""
        found = self.rules.encode_batch([texts] if isinstance(texts, str) else list(texts))
        return as_tokens([each.ids for each in found], [each.tokens for each in found])

    def text(self, ids: Sequence[int] | Array) -> str:
        """Return the text of tokens."""
        return self.rules.decode([int(token) for token in ids])

    def check(self, config: ModelConfig, vocab_size: int) -> None:
        """Raise a FileError unless these are the tokens of the config's model."""
        size, special = self.rules.get_vocab_size(), config.read(SPECIAL)
        ids = (*special["bos"], *special["eos"])
        absent = [i for i in ids if not 0 <= i < vocab_size or self.rules.id_to_token(i) is None]
        if absent or not LEAST_USED * vocab_size <= size <= vocab_size:
            what = f", without number {absent[0]}" if absent else ""
            raise FileError(
                f"{self.path}: expected the tokens of this model, {vocab_size} of them; "
                f"got {size}{what}: it is a different model's"
            )
