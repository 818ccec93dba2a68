"""Ticks of a chart's axes: round numbers, as many as there is room for."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from mha_numpy.draw.labels import MINUS, short_number, widest
from mha_numpy.dtypes import Array

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
PITCH = 0.18  # from one text to the next above it, in inches
TEXT_SIZE = 8  # in points


class Ticks(NamedTuple):
    """What an axis reaches from and to, and what is written where."""

    low: float
    high: float
    ticks: list[float]
    texts: list[str]


def choose_ticks(numbers: Array, length: float, *, is_log: bool, is_upward: bool) -> Ticks:
    """Choose limits, and as many ticks as a length in inches has room for."""
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.1, 1.0)
    is_whole = bool((numbers == np.round(numbers)).all())
    if is_log:
        base = 2.0 if (np.frexp(numbers)[0] == 0.5).all() else 10.0
        room = (high / low) ** 0.04 if low < high else base**0.8
        low, high = low / room, high * room
    else:
        has_ground = is_upward and 0 <= low <= high / 2
        low = 0.0 if has_ground else low
        room = 0.04 * (high - low) or 0.5 * abs(low) or 1.0
        low, high = low - room * (not has_ground), high + room
    for most in range(8 if is_upward else 12, 0, -1):
        if is_log:
            ticks, texts = _log_ticks(low, high, base, most)
        else:
            ticks = _even_ticks(low, high, most, is_whole=is_whole)
            texts = _plain_texts(ticks)
        places, ends = (
            np.log(np.array(n)) if is_log else np.array(n) for n in (ticks, [low, high])
        )
        nearest = np.diff(places).min(initial=np.inf) / np.ptp(ends) * length
        if nearest >= (PITCH if is_upward else widest(texts, TEXT_SIZE) + 0.12):
            return Ticks(low, high, ticks, texts)
    return Ticks(low, high, ticks[:1], texts[:1])


def _log_ticks(low: float, high: float, base: float, most: int) -> tuple[list[float], list[str]]:
    """Return powers of the base; with few of them also their multiples, or plain steps."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    exponents = range(first, last + 1, max(1, math.ceil((last - first + 1) / most)))
    ticks = [base**exponent for exponent in exponents]
    if len(ticks) >= 3 or (base == 2 and len(ticks) > 1):
        return ticks, _powers(int(base), exponents)
    for multiples in ((1, 2, 5), range(1, 10)):
        ticks = [m * 10.0**n for n in range(first - 1, last + 1) for m in multiples]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if 3 <= len(ticks) <= most:
            return ticks, [
                f"{tick:g}" if 1e-3 <= tick < 1e4 else short_number(tick) for tick in ticks
            ]
    ticks = _even_ticks(low, high, min(most, 5))
    return ticks, _plain_texts(ticks)


def _even_ticks(low: float, high: float, most: int, *, is_whole: bool = False) -> list[float]:
    """Return round numbers in even steps; the middle where matplotlib finds none."""
    locator = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], integer=is_whole)
    return [t for t in locator.tick_values(low, high) if low <= t <= high] or [(low + high) / 2]


def _powers(base: int, exponents: range) -> list[str]:
    """Return powers as numbers where all are short: 1024, 1/8, 0.001; or else as 10⁻⁹."""
    shortest, longest = (-7, 19) if base == 2 else (-3, 6)
    if not shortest <= exponents[0] <= exponents[-1] <= longest:
        return [f"{base}{str(exponent).translate(RAISED)}" for exponent in exponents]
    return [
        f"1/{2**-exponent}" if base == 2 and exponent < 0 else _plain_texts([base**exponent])[0]
        for exponent in exponents
    ]


def _plain_texts(ticks: Sequence[float]) -> list[str]:
    """Return numbers in as few digits, the same for all, as tell them apart."""
    largest = max(map(abs, ticks), default=0.0)
    step = min(map(abs, np.diff(ticks)), default=largest)
    scale = math.floor(math.log10(largest)) if largest else 0
    if -4 < scale < 7:
        scale = 0
    scaled = [tick / 10.0**scale for tick in ticks]
    close = step / 10.0**scale / 100
    digits = next((n for n in range(17) if all(abs(round(t, n) - t) <= close for t in scaled)), 17)
    comma = "," if largest >= 10_000 and not scale else ""
    texts = [f"{round(t, digits) + 0.0:{comma}.{digits}f}" for t in scaled]
    return [
        (text + f"e{scale}" * bool(scale and t)).replace("-", MINUS) if t else "0"
        for text, t in zip(texts, scaled, strict=True)
    ]
