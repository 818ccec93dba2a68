"""From text to an array: tokens, and a vector for each of them."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.core import sinusoidal_positions
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

JOINER = "\u200d"  # what follows it belongs to what is before it


def tokenize(text: str, *, name: str = "text") -> list[str]:
    """Split a text into words and punctuation marks.

    Parameters
    ----------
    text : str
    name : str
        What an error calls the text.

    Returns
    -------
    list of str
        An apostrophe inside a word belongs to the word, an accent or vowel sign to its letter.

    Examples
    --------
    >>> tokenize("The animal didn't cross, it was tired.")
    ['The', 'animal', "didn't", 'cross', ',', 'it', 'was', 'tired', '.']
    """
    composed = unicodedata.normalize("NFC", text)
    marks = {JOINER, *(c for c in composed if unicodedata.category(c).startswith("M"))}
    accents = re.escape("".join(sorted(marks)))
    also = rf"(?:{JOINER}+.?|[{accents}])"
    word = rf"\w(?:\w|{also})*"
    either = rf"{word}(?:['\u2019]{also}*{word})*|[^\w\s{accents}]{also}*"
    tokens: list[str] = re.findall(either, composed, re.DOTALL)
    if not tokens:
        raise ConfigError(f"{name}: expected at least one word; got {describe(text)}")
    return tokens


def embed(tokens: Sequence[str], D: int, *, seed: int = 0) -> Array:
    """Give each distinct token its own random vector, and add its position.

    Parameters
    ----------
    tokens : T strings
    D : int
        Width.
    seed : int
        The same seed and token give the same vector, in any sentence.

    Returns
    -------
    (T, D) float64 array
        A standard normal vector for each token, plus sinusoids.

    Examples
    --------
    >>> x = embed(["to", "be", "or", "to"], 8)
    >>> x.shape
    (4, 8)
    >>> np.allclose(x[0] - x[3], sinusoidal_positions(4, 8)[0] - sinusoidal_positions(4, 8)[3])
    True
    """
    D, seed = check_count("dim", D), check_count("seed", seed, least=0)
    vectors = [
        np.random.default_rng([seed, *token.encode(errors="surrogateescape")]).standard_normal(D)
        for token in tokens
    ]
    return np.array(vectors).reshape(len(tokens), D) + sinusoidal_positions(len(tokens), D)
