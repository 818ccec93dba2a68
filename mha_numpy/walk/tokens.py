"""From text to an array: tokens, and a vector for each of them."""

import re
from collections.abc import Sequence

import numpy as np

from mha_numpy.core import sinusoidal_positions
from mha_numpy.core.dtypes import Array
from mha_numpy.core.shapes import check_count
from mha_numpy.errors import ConfigError, describe

WORD_OR_MARK = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


def tokenize(text: str, *, name: str = "text") -> list[str]:
    """Cut a text into words and punctuation marks.

    Parameters
    ----------
    text : str
    name : str
        What an error calls the text.

    Returns
    -------
    list of str
        An apostrophe inside a word belongs to the word.

    Raises
    ------
    ConfigError
        There is no token in the text.

    Examples
    --------
    >>> tokenize("The animal didn't cross, it was tired.")
    ['The', 'animal', "didn't", 'cross', ',', 'it', 'was', 'tired', '.']
    """
    tokens = WORD_OR_MARK.findall(text)
    if not tokens:
        raise ConfigError(f"{name}: expected at least one word; got {describe(text)}")
    return tokens


def embed(tokens: Sequence[str], D: int, *, seed: int = 0) -> Array:
    """Give each distinct token a random vector of its own, and add where it stands.

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

    Raises
    ------
    ConfigError
        `D` is not a positive integer, or `seed` not an integer >= 0.

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
        np.random.default_rng([seed, *token.encode()]).standard_normal(D) for token in tokens
    ]
    return np.array(vectors).reshape(len(tokens), D) + sinusoidal_positions(len(tokens), D)
