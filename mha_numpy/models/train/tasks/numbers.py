"""Numbers: translate English number words into German ones, where the units come before the tens.

German writes "fünf und vierzig" for forty-five: the words cross, and a translator has to read the
source in a different order from the one in which it writes.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mha_numpy.checks import check_integer
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.models.train.batch import IGNORED, Batch
from mha_numpy.models.translator import END, PADDING, START

MARKS = ("<padding>", "<start>", "<end>")  # of ids that are no words: PADDING, START, END

ENGLISH_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
ENGLISH_TENS = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
]  # fmt: skip
GERMAN_SMALL = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
]  # fmt: skip
GERMAN_TENS = [
    "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig",
]  # fmt: skip

ENGLISH = (*MARKS, *ENGLISH_SMALL, *ENGLISH_TENS, "hundred", "thousand")
GERMAN = (*MARKS, *GERMAN_SMALL, "ein", *GERMAN_TENS, "und", "hundert", "tausend")
LARGEST = 999_999
HELD_OUT = 89  # every 89th number is never trained on; 0 is, for no other number has its word


def english(n: int) -> list[str]:
    """Write a number from 0 to 999,999 in English words.

    Examples
    --------
    >>> english(245_017)
    ['two', 'hundred', 'forty', 'five', 'thousand', 'seventeen']
    """
    n = _check_number(n)
    if n < 20:
        return [ENGLISH_SMALL[n]]
    if n < 100:
        return [ENGLISH_TENS[n // 10 - 2], *_unless_zero(english, n % 10)]
    if n < 1000:
        return [*english(n // 100), "hundred", *_unless_zero(english, n % 100)]
    return [*english(n // 1000), "thousand", *_unless_zero(english, n % 1000)]


def german(n: int) -> list[str]:
    """Write a number from 0 to 999,999 in German words, split into their parts.

    Examples
    --------
    >>> german(245_017)
    ['zwei', 'hundert', 'fünf', 'und', 'vierzig', 'tausend', 'siebzehn']
    """
    n = _check_number(n)
    if n < 20:
        return [GERMAN_SMALL[n]]
    if n < 100:
        tens, units = GERMAN_TENS[n // 10 - 2], n % 10
        return [*_short_one(units), "und", tens] if units else [tens]
    if n < 1000:
        return [*_short_one(n // 100), "hundert", *_unless_zero(german, n % 100)]
    return [*_short_one(n // 1000), "tausend", *_unless_zero(german, n % 1000)]


def _short_one(n: int) -> list[str]:
    """Write a number before another word, where a final one is "ein"."""
    return ["ein" if word == "eins" else word for word in german(n)]


def _unless_zero(write: Callable[[int], list[str]], n: int) -> list[str]:
    return write(n) if n else []


def _check_number(n: int) -> int:
    if not 0 <= check_integer("n", n) <= LARGEST:
        raise ConfigError(f"n: expected 0 to {LARGEST:,}; got {n}")
    return n


class Numbers:
    """The model reads English number words and writes German ones.

    Half of the numbers are drawn uniformly from 0 to 999,999; for the other half the number of
    digits is drawn uniformly. In half of all, each digit turns to 0 with probability 1/2, so that
    round numbers are learned too.
    Every 89th number except 0 is held out: it is never drawn.

    Examples
    --------
    >>> task = Numbers()
    >>> (source, target), targets = task.batch_of([42])
    >>> task.words(source[0]), task.words(targets[0], GERMAN)
    (['forty', 'two'], ['zwei', 'und', 'vierzig', '<end>'])
    """

    source_vocab_size, target_vocab_size = len(ENGLISH), len(GERMAN)
    max_tokens = 12  # of "neun hundert neun und neunzig tausend ..." and its end

    def draw_batch(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw numbers that are not held out."""
        digits = rng.integers(1, 7, size)
        below = np.where(rng.random(size) < 0.5, LARGEST + 1, 10**digits)
        numbers = rng.integers(below)
        places = 10 ** np.arange(6)
        becomes_zero = (rng.random((size, 1)) < 0.5) & (rng.random((size, 6)) < 0.5)
        numbers -= (numbers[:, None] // places % 10 * places * becomes_zero).sum(axis=1)
        numbers[_is_held_out(numbers)] += 1
        return self.batch_of(numbers.tolist())

    def draw_held_out(self, rng: np.random.Generator, size: int) -> list[int]:
        """Draw different numbers that are held out."""
        drawn = 1 + rng.choice(LARGEST // HELD_OUT, size, replace=False)
        return (drawn * HELD_OUT).tolist()

    def batch_of(self, numbers: Sequence[int]) -> Batch:
        """Return the words of these numbers as ids."""
        source = _as_ids([english(n) for n in numbers], ENGLISH)
        target = _as_ids([[*german(n), MARKS[END]] for n in numbers], GERMAN)
        read = np.roll(target, 1, axis=1)
        read[:, 0] = START
        return Batch((source, read), np.where(target == PADDING, IGNORED, target))

    def crossing(self, weights: Array, numbers: Sequence[int]) -> tuple[float, float]:
        """Return how often the words that cross are read in the order in which they are written.

        Parameters
        ----------
        weights : (B, H, T_q, T_k) float array
            Of cross-attention, for ``batch_of(numbers)``.
        numbers : B ints

        Returns
        -------
        units, tens : float
            Of the numbers that end in tens and units, such as 245: the share in which the step
            that writes the units has more weight, summed over heads, on the source's units than
            on its tens; and the share in which the step that writes the tens has more weight on
            the tens.
        """
        units, tens = [], []
        for of_number, n in zip(weights.sum(axis=1), numbers, strict=True):  # (T_q, T_k)
            if n % 100 > 20 and n % 10:
                T_q, T_k = len(german(n)), len(english(n))
                units.append(of_number[T_q - 3, T_k - 1] > of_number[T_q - 3, T_k - 2])
                tens.append(of_number[T_q - 1, T_k - 2] > of_number[T_q - 1, T_k - 1])
        return float(np.mean(units)), float(np.mean(tens))

    def read(self, words: str) -> Array:
        """Return the ids (1, T_k) of English number words in a text."""
        split = words.lower().replace("-", " ").replace(",", " ").split()
        split = [word for word in split if word != "and"]
        unknown = [word for word in split if word not in ENGLISH or word in MARKS]
        if unknown or not 0 < len(split) <= self.max_tokens:
            got = unknown[0] if unknown else f"{len(split)} words"
            raise ConfigError(
                f"text: expected an English number in words, such as 'three hundred forty-two'; "
                f"got {got!r}"
            )
        return _as_ids([split], ENGLISH)

    def words(self, ids: Array, vocabulary: Sequence[str] = ENGLISH) -> list[str]:
        """Return the words that ids stand for, without padding."""
        return [vocabulary[i] for i in ids if i > PADDING]


def _is_held_out(numbers: Array) -> Array:
    return (numbers > 0) & (numbers % HELD_OUT == 0)


def _as_ids(sentences: list[list[str]], vocabulary: Sequence[str]) -> Array:
    """Return ids (B, T), padded on the right."""
    number_of = {word: i for i, word in enumerate(vocabulary)}
    ids = np.full((len(sentences), max(map(len, sentences))), PADDING)
    for row, words in zip(ids, sentences, strict=True):
        row[: len(words)] = [number_of[word] for word in words]
    return ids
