"""Clocks: one contestant's turn, two contestants in turns, and the ratios of their times."""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

LEAST = 5  # pairs in a measurement, with any budget
TURN = 0.02  # seconds: a turn is one call, or as many as fill this time

Pair = tuple[float, float]  # seconds of ours, of the other


class Ratio(NamedTuple):
    """How many times longer the other takes: the median of many pairs, and the quartiles."""

    median: float
    low: float
    high: float


def ratio_of(pairs: Sequence[Pair]) -> Ratio:
    """Divide the other's time by ours, pair by pair; above 1, ours is faster.

    Parameters
    ----------
    pairs : (ours, other) times
        Each pair measured within a moment, so that both met the same machine.

    Returns
    -------
    Ratio
        Median and quartiles of the ratios.

    Examples
    --------
    >>> ratio_of([(1.0, 2.0), (1.0, 1.5), (2.0, 2.0)])
    Ratio(median=1.5, low=1.25, high=1.75)
    """
    ours, other = np.array(pairs).T
    low, middle, high = np.percentile(other / ours, [25, 50, 75])
    return Ratio(float(middle), float(low), float(high))


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of one call, without the time to free its result."""
    start = perf_counter()
    result = call()
    seconds = perf_counter() - start
    del result
    return seconds


def take_turn(call: Callable[[], Any], length: float = TURN) -> float:
    """Return the seconds of a call: of one long call, or the median of many short ones."""
    first = timed(call)
    if first >= length:
        return first
    times = [timed(call)]  # the first was a cold one
    while sum(times) < length:
        times.append(timed(call))
    return median(times)


def take_turns(turns: Sequence[Callable[[], Any]], budget: float) -> list[tuple[Any, ...]]:
    """Let all measure themselves in turns for some seconds, there and back: a b c, c b a, a b c.

    Return their measurements, in the order of `turns`. There are at least `LEAST` rounds with any
    budget.
    """
    rounds: list[tuple[Any, ...]] = []
    start = perf_counter()
    while len(rounds) < LEAST or perf_counter() - start < budget:
        step = -1 if len(rounds) % 2 else 1
        rounds.append(tuple(turn() for turn in turns[::step])[::step])
    return rounds
