"""An experiment: a claim, what is varied to try it, what is measured, and what that shows."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checks import check_count, check_integer
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.progress import progress

SEEDS = (0, 1, 2, 3, 4)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Chart(NamedTuple):
    """What a picture of the result shows: a measure, of some arms.

    A line goes through one number of each of its arms, or is the curve that its one arm measured.
    """

    title: str
    measure: str
    x: Sequence[float]
    lines: Mapping[str, str | Sequence[str]]  # by name: an arm with a curve, or an arm for each x
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    point: str = ""  # a heading; without one it belongs to the chart before it

    def runs_of(self, result: Result) -> dict[str, Array]:
        """Return what each line shows: (seeds, points)."""
        return {
            line: result.values(self.measure, arms) if isinstance(arms, str)
            else np.stack([result.values(self.measure, arm) for arm in arms], axis=-1)
            for line, arms in self.lines.items()
        }  # fmt: skip


class Finding(NamedTuple):
    """A sentence about the result, whose numbers come from it, and whether it is true of it."""

    text: str
    holds: bool
    chart: int | None = 0  # which one shows it, or most of it; None: a picture of its own page


@dataclass(frozen=True)
class Experiment:
    """What is claimed, how it is tried, and what is found.

    An arm is one way of doing it, such as a number of heads. `run` trains and measures it once,
    with everything drawn from one seed.
    """

    name: str
    title: str
    claim: str  # as people say it
    said_by: str  # the texts, by their letters in docs/coverage.md, or a paper
    answer: str  # in a sentence: the findings say it in numbers
    method: str  # what is done, in a paragraph
    arms: tuple[str, ...]  # what is varied
    measures: Mapping[str, str]  # what is measured, with its unit
    run: Callable[[str, int], Measured]  # of an arm and a seed
    charts: tuple[Chart, ...]
    findings: Callable[[Result], Sequence[Finding]]


@explained
def run_experiment(
    experiment: Experiment,
    *,
    seeds: Sequence[int] = SEEDS,
    arms: Sequence[str] | None = None,
    processes: int | None = None,
) -> Result:
    """Train and measure every arm with every seed.

    Parameters
    ----------
    experiment : Experiment
        One of `EXPERIMENTS`.
    seeds : sequence of ints
    arms : sequence of str, optional
        Default: all.
    processes : int, optional
        How many to use; default: one for each core. Each computes in one thread.

    Returns
    -------
    Result
        Its seconds are those of this machine.

    Notes
    -----
    The same seed gives the same numbers on the same machine. Processors round differently, so that
    a run elsewhere with that seed is as good as one with another seed.
    """
    arms = _check_arms(experiment, arms)
    seeds = tuple(check_integer("seeds", seed) for seed in seeds)
    processes = check_count("processes", processes or os.cpu_count() or 1)
    todo = [(arm, seed) for arm in arms for seed in seeds]
    start = perf_counter()
    done = dict[tuple[str, int], Measured]()
    runs = _run_all(experiment, todo, min(processes, len(todo)))
    for key, measured in progress(runs, len(todo), experiment.name):
        done[key] = measured
    by_arm = {
        arm: {name: [done[arm, seed][name] for seed in seeds] for name in experiment.measures}
        for arm in arms
    }
    return Result(experiment.name, seeds, by_arm, round(perf_counter() - start, 1))


def _check_arms(experiment: Experiment, arms: Sequence[str] | None) -> tuple[str, ...]:
    if arms is None:
        return experiment.arms
    for arm in arms:
        if arm not in experiment.arms:
            known = ", ".join(map(repr, experiment.arms))
            raise ConfigError(f"arms: expected some of {known}; got {describe(arm)}")
    return tuple(arms)


def _run_all(
    experiment: Experiment, todo: list[tuple[str, int]], processes: int
) -> Iterator[tuple[tuple[str, int], Measured]]:
    if processes == 1:
        for key in todo:
            yield key, experiment.run(*key)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed  # a browser's Python has none
    from multiprocessing import get_context

    with _one_thread_each(), ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting = {pool.submit(experiment.run, *key): key for key in todo}
        for each in as_completed(waiting):
            yield waiting[each], each.result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let child processes compute in one thread: small products only wait for one another."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
