"""Frequencies of a rotation for texts longer than those of training."""

import math
from typing import Any, NamedTuple, get_args

import numpy as np

from mha_numpy.checks import check_count, check_flag, check_number
from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, describe


class LinearScaling(NamedTuple):
    """All waves are `factor` times as long, as if positions were divided by it.

    Source: Chen et al. 2023, *Extending Context Window of Large Language Models via Positional
    Interpolation*, eq. 4.
    """

    factor: float

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Return the frequencies divided by the factor, and an attention factor of 1."""
        return frequencies / self.factor, 1.0


class DynamicScaling(NamedTuple):
    """Another base, which grows with the text: the first pair is kept, the last slowed down most.

    Known as dynamic NTK. With ``s = 1 + factor (length / original_length - 1)``, or 1 if the text
    is not longer than `original_length`, the base is multiplied by ``s^(d / (d - 2))``, where d is
    `rotary_dim`. So the waves of pair i are ``s^(2 i / (d - 2))`` times as long.

    Source: Peng et al. 2024, *YaRN*, sections 3.1 and 3.3, and transformers for s.
    """

    factor: float
    original_length: float

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Slow down each pair as another base would, in a text of this length."""
        ratio = max(length, self.original_length) / self.original_length
        slower = 1 + self.factor * (ratio - 1)
        pair, last = np.arange(frequencies.size), max(frequencies.size - 1, 1)
        return frequencies * slower ** (-pair / last), 1.0


class YarnScaling(NamedTuple):
    """Short waves are kept, long waves are `factor` times as long, with a ramp between them.

    A pair that makes `beta_fast` or more turns within `original_length` is kept, one that makes
    `beta_slow` or fewer is slowed down fully. Between the two, the share that is kept falls
    linearly with the pair's number. With `truncate` the ramp begins and ends at whole pairs.

    Cosines and sines are multiplied by `attention_factor`; if it is None, by ``m(1)``, where
    ``m(t) = 0.1 t log(factor) + 1``, or by ``m(mscale) / m(mscale_all_dim)`` if both are given.

    Source: Peng et al. 2024, *YaRN*, section 3.4, and the authors' code, whose ramp this is. The
    ramp in section 3.2 of the paper is linear in the number of turns, as in `Llama3Scaling`.
    """

    factor: float
    original_length: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Keep the pairs before the ramp, and divide those after it."""
        pairs = frequencies.size

        def pair_that_turns(times: float) -> float:
            """Solve original_length * base^(-i / pairs) = 2 pi times for i, no whole number."""
            return pairs * math.log(self.original_length / (2 * math.pi * times), base)

        low, high = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)  # 2 pairs, as in the authors' code
        ramp = (np.arange(pairs) - low) / (high - low if high != low else 0.001)
        return _keep(1 - np.clip(ramp, 0, 1), frequencies, self.factor), self._attention_factor()

    def _attention_factor(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            above, below = (yarn_mscale(self.factor, t) for t in (self.mscale, self.mscale_all_dim))
            return above / below
        return yarn_mscale(self.factor)


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """Return ``0.1 mscale log(factor) + 1``, or 1 if nothing is made longer.

    DeepSeek also multiplies the scale of the scores by its square, for ``mscale_all_dim``.

    Examples
    --------
    >>> round(yarn_mscale(40.0), 4)
    1.3689
    """
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


class LongRopeScaling(NamedTuple):
    """Each pair has its own searched factor, one for short texts and one for long.

    Beyond `original_length` the factors are `long_factor`. Cosines and sines are multiplied by
    `attention_factor`; if it is None, by ``sqrt(1 + log(factor) / log(original_length))``.

    Source: Ding et al. 2024, *LongRoPE*, section 3, and the code of Phi-3.
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_length: float
    factor: float = 1.0
    attention_factor: float | None = None

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Divide each frequency by its own factor, in a text of this length."""
        longer = self.long_factor if length > self.original_length else self.short_factor
        attention_factor = self.attention_factor
        if attention_factor is None:
            grown = math.log(max(self.factor, 1)) / math.log(self.original_length)
            attention_factor = math.sqrt(1 + grown)
        return frequencies / np.asarray(longer), float(attention_factor)


class Llama3Scaling(NamedTuple):
    """Short waves are kept, long waves are `factor` times as long, smoothly in between.

    A pair that makes `high_freq_factor` or more turns within `original_length` is kept, one that
    makes `low_freq_factor` or fewer is slowed down fully. Between the two, the share that is kept
    is linear in the number of turns.

    Source: the code of Llama 3.1; Peng et al. 2024, *YaRN*, section 3.2 (NTK-by-parts).
    """

    factor: float
    original_length: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Keep a share of each frequency, by the turns within the original length."""
        low, high = self.low_freq_factor, self.high_freq_factor
        turns = self.original_length * frequencies / (2 * np.pi)
        return _keep(np.clip((turns - low) / (high - low), 0, 1), frequencies, self.factor), 1.0


class ProportionalScaling(NamedTuple):
    """Only the first pairs turn, `share` of them, and the others stay, with frequency 0.

    Unlike a smaller `rotary_dim`, it pairs the same features as a full rotation, and the pairs
    that turn have the frequencies of a full rotation, divided by `factor`.

    Source: Gemma 4 in transformers.
    """

    share: float
    factor: float = 1.0

    def scale(self, frequencies: Array, base: float, length: float) -> tuple[Array, float]:
        """Let the first pairs turn, and stop the others."""
        turns = np.arange(frequencies.size) < int(self.share * frequencies.size)
        return np.where(turns, frequencies / self.factor, 0), 1.0


Scaling = (
    LinearScaling
    | DynamicScaling
    | YarnScaling
    | LongRopeScaling
    | Llama3Scaling
    | ProportionalScaling
)


def _keep(share: Array, frequencies: Array, factor: float) -> Array:
    """Keep a share of each frequency, and divide the rest by the factor."""
    return frequencies * (share + (1 - share) / factor)


def check_scaling(scaling: Any, rotary_dim: int, base: float) -> None:
    """Raise a ConfigError unless it is None, or a scaling that fits these frequencies."""
    if scaling is None:
        return
    kinds = get_args(Scaling)
    if not isinstance(scaling, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ConfigError(f"scaling: expected {names} or None; got {describe(scaling)}")
    for field, value in scaling._asdict().items():
        name = f"scaling.{field}"
        if field == "truncate":
            check_flag(name, value)
        elif field.startswith(("short", "long")):
            _check_factors(name, value, rotary_dim // 2)
        elif value is not None or field not in scaling._field_defaults:
            least = 2 if field == "original_length" else -math.inf
            check_number(name, value, positive=not field.startswith("mscale"), least=least)
    if isinstance(scaling, YarnScaling) and base == 1:
        raise ConfigError("base: expected a number other than 1 with YarnScaling; got 1")
    if isinstance(scaling, Llama3Scaling) and scaling.low_freq_factor >= scaling.high_freq_factor:
        raise ConfigError(
            f"scaling.low_freq_factor: expected less than high_freq_factor="
            f"{scaling.high_freq_factor}; got {scaling.low_freq_factor}"
        )


def _check_factors(name: str, value: Any, pairs: int) -> None:
    expected = f"{pairs} numbers > 0, one for each pair"
    factors = as_array(name, value, expected, ConfigError)
    if factors.dtype.kind not in "iuf" or factors.shape != (pairs,) or not (factors > 0).all():
        raise ConfigError(f"{name}: expected {expected}; got {describe(value)}")


def rope_frequencies(
    rotary_dim: int,
    *,
    base: float = 10000.0,
    scaling: Scaling | None = None,
    length: float | None = None,
) -> tuple[Array, float]:
    """Return how fast each pair of features turns, and a factor on cosines and sines.

    Pair i turns by ``base^(-2 i / rotary_dim)`` radians per position; its wavelength, the number
    of positions for one turn, is ``2 pi / frequency``. A scaling makes waves longer.

    Parameters
    ----------
    rotary_dim : int
        How many features are rotated; even.
    base : float
    scaling : Scaling, optional
        One of `LinearScaling`, `DynamicScaling`, `YarnScaling`, `LongRopeScaling`,
        `Llama3Scaling` and `ProportionalScaling`.
    length : float, optional
        Length of the text, for a scaling that depends on it; default: as short as in training.

    Returns
    -------
    frequencies : (rotary_dim / 2,) float64 array
    attention_factor : float
        1 except for YaRN and LongRoPE. Both q and k have it, so that scores have its square.

    Notes
    -----
    Source: Su et al. 2021, *RoFormer*, section 3.2; that of a scaling is in its docstring.
    Derivation: ``docs/rope.md``.

    Examples
    --------
    >>> rope_frequencies(6, base=1000)[0].round(6)
    array([1.  , 0.1 , 0.01])
    >>> rope_frequencies(6, base=1000, scaling=LinearScaling(4.0))[0].round(6)
    array([0.25  , 0.025 , 0.0025])
    """
    rotary_dim = check_count("rotary_dim", rotary_dim, least=0)
    if rotary_dim % 2:
        raise ConfigError(f"rotary_dim: expected an even number; got {rotary_dim}")
    base = check_number("base", base, positive=True)
    check_scaling(scaling, rotary_dim, base)
    pair = np.arange(rotary_dim // 2)
    frequencies = base ** (-2 * pair / max(rotary_dim, 1))  # (rotary_dim / 2,)
    length = 0.0 if length is None else check_number("length", length, least=0)
    return (frequencies, 1.0) if scaling is None else scaling.scale(frequencies, base, length)
