import time

import pytest

from mha_numpy.bench import Ratio, ratio_of
from mha_numpy.bench.timing import LEAST, TURN, take_turn, take_turns, timed


def test_ratios_are_taken_pair_by_pair():
    # the machine slows down tenfold: no pair notices, a ratio of medians would
    assert ratio_of([(1, 3), (10, 30), (100, 300), (1000, 2000)]) == Ratio(3, 2.75, 3)


def test_timed():
    assert 0.01 <= timed(lambda: time.sleep(0.01)) < 0.1


class Clock:
    """A clock that moves only by the calls that it times."""

    def __init__(self, monkeypatch):
        self.now, self.calls = 0.0, 0
        monkeypatch.setattr("mha_numpy.bench.timing.perf_counter", lambda: self.now)

    def work(self, *seconds):
        """Return a call that takes these seconds one after the other, the last for ever."""

        def call():
            self.now += seconds[min(self.calls, len(seconds) - 1)]
            self.calls += 1

        return call


def test_a_long_turn_is_one_call(monkeypatch):
    clock = Clock(monkeypatch)
    assert take_turn(clock.work(TURN * 3)) == TURN * 3
    assert clock.calls == 1


def test_a_short_turn_is_many_calls_and_the_first_does_not_count(monkeypatch):
    clock = Clock(monkeypatch)
    short = TURN / 16
    assert take_turn(clock.work(TURN / 2, short)) == pytest.approx(short)
    assert clock.calls == 17


def test_a_turn_can_be_shorter(monkeypatch):
    clock = Clock(monkeypatch)
    take_turn(clock.work(TURN / 8, TURN / 16), TURN / 4)
    assert clock.calls == 5


def test_turns_alternate_and_fill_the_budget(monkeypatch):
    clock, order = Clock(monkeypatch), []

    def turn(name, seconds):
        def take():
            order.append(name)
            clock.now += seconds
            return seconds

        return take

    rounds = take_turns([turn("ours", 1.0), turn("peak", 0.5), turn("other", 2.5)], 27.5)
    assert rounds == [(1.0, 0.5, 2.5)] * 7
    there = ["ours", "peak", "other"]
    assert order == [*there, *there[::-1]] * 3 + there


@pytest.mark.parametrize("budget", [0.0, 1e-9])
def test_there_are_some_rounds_whatever_the_budget(budget):
    assert len(take_turns([lambda: 1.0, lambda: 2.0], budget)) == LEAST
