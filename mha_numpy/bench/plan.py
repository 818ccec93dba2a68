"""benchmark(): one measurement after another, each made by worker processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.machine import describe_machine
from mha_numpy.bench.measure import CLEAR_REFS
from mha_numpy.bench.problems import SHAPES, SHORT, Case, parse
from mha_numpy.bench.results import Cell, Fact, Results, Settings
from mha_numpy.bench.sweep import draw_calls
from mha_numpy.bench.timing import LEAST, ratio_of, take_turns
from mha_numpy.bench.worker import Ask, MeasurementError, worker
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.progress import progress

SCALING_SHAPE = "1,12,1024,64"
COMPILED_SHAPE = "1,2,16,16"
LONG, SHORTER = "1,2,16384,64", "1,2,4096,64"
# all scores of two heads at T = 16384 are 2 GB, and JAX and NumPy keep several such arrays
MEMORY_SHAPES = {
    "numba": LONG, "loops": LONG, "torch": LONG, "jax": SHORTER, "numpy": SHORTER,
}  # fmt: skip
ERROR_CASES = 100
GIGA = 10**9
IMPORT = "from time import perf_counter as t; start = t(); import {}; print(t() - start)"
Found = list[Cell] | list[Fact]


class Task(NamedTuple):
    """A measurement, with its name and its contestants."""

    name: str
    who: str
    measure: Callable[[], Found]

    def run(self) -> Found:
        """Return the figure, or the reason why there is none."""
        try:
            return self.measure()
        except MeasurementError as error:
            return [Fact(self.name, self.who, None, "", str(error))]


def benchmark(settings: Settings) -> Results:
    """Measure everything that the settings ask for.

    Parameters
    ----------
    settings : Settings

    Returns
    -------
    Results
        A measurement that failed is among the facts, with its reason.

    Notes
    -----
    Each of the two contestants has its own process, and one is stopped while the other works,
    because waiting threads would take cores from each other. First their results are compared. Then
    they take turns: one call, or enough calls to fill 20 ms, of which the median counts. Each pair
    of turns gives one ratio. Between the two, a third process measures the processor's peak.

    Examples
    --------
    >>> found = benchmark(Settings(ours="numpy", against=(), only="import"))
    >>> [(fact.what, fact.who, fact.unit) for fact in found.facts]
    [('import', 'mha_numpy', 's')]
    """
    tasks = list(plan(settings))
    chosen = [task for task in tasks if settings.only in task.name]
    if not chosen:
        names = " ".join(dict.fromkeys(f"'{task.name}'" for task in tasks))
        raise ConfigError(f"only: expected part of one of {names}; got {settings.only!r}")
    machine = describe_machine()
    found: list[Cell | Fact] = []
    for part in progress((task.run() for task in chosen), len(chosen), "measuring"):
        found += part
    cells = [x for x in found if isinstance(x, Cell)]
    facts = [x for x in found if isinstance(x, Fact)]
    return Results(settings, machine, cells, facts)


def plan(settings: Settings) -> Iterator[Task]:
    """Yield all measurements: comparisons shape by shape, then single figures."""
    ours, others = settings.ours, settings.others

    def task(name: str, who: str, measure: Callable[..., Found], *at: Any) -> Task:
        label = CONTESTANTS[who].label if who in CONTESTANTS else who
        return Task(name, label, partial(measure, settings, *at))

    if settings.sweep:
        for shape, case in draw_calls(settings.sweep, settings.seed):
            for other in others:
                if type(parse(shape)) in CONTESTANTS[other].adapters:
                    yield task(f"{shape} {case.name}", other, compare, shape, other, [case])
        return
    for shape in SHAPES:
        problem = parse(shape)
        if settings.quick and problem.operations(problem.cases()[0]) > SHORT:
            continue
        for other in others:
            if type(problem) in CONTESTANTS[other].adapters:
                yield task(shape, other, compare, shape, other)
    yield task("peak", "the processor", peak)
    modules = [x for other in others for x in CONTESTANTS[other].packages[:1]]
    for module in dict.fromkeys(["mha_numpy", *modules]):
        yield task("import", module, import_time, module)
    if settings.quick:
        return
    yield task("compile", ours, compile_time)
    for who in dict.fromkeys([ours, *others]):
        if who in MEMORY_SHAPES:
            yield task("memory", who, peak_memory, who)
    for who in dict.fromkeys([ours, *others]):
        if who in (ours, "torch"):
            yield task("scaling", who, scaling, who)
    for other in others:
        if other in ("torch", "numpy"):
            yield task("error", ours, error_ratios, other)


def compare(settings: Settings, shape: str, other: str, cases: Sequence[Case] = ()) -> list[Cell]:
    """Compare ours with another in some or all cases of a shape: first results, then times."""
    cells, threads = [], settings.threads
    with worker(threads) as ask_ours, worker(threads) as ask_other, worker(threads) as ask_peak:
        for case in cases or parse(shape).cases(masks=settings.mask):
            if case.backward and not CONTESTANTS[other].has_backward:
                continue
            ours = partial(ask_ours, who=settings.ours, shape=shape, case=case)
            theirs = partial(ask_other, who=other, shape=shape, case=case)
            apart = _difference_of_results(ours, theirs)
            turns = [partial(ours, "turn"), partial(ask_peak, "peak"), partial(theirs, "turn")]
            rounds = take_turns(turns, settings.budget)
            cells.append(cell_of(shape, case, other, rounds, apart))
    return cells


def cell_of(
    shape: str, case: Case, other: str, rounds: list[tuple[Any, ...]], apart: float | None
) -> Cell:
    """Return the cell for rounds of our seconds, the peak meanwhile, and the other's seconds."""
    ours, peaks, others = zip(*rounds, strict=True)
    ratio = ratio_of(list(zip(ours, others, strict=True)))
    ours_ms, other_ms = (1e3 * median(seconds) for seconds in (ours, others))
    cell = Cell(shape, case.name, other, ratio, ours_ms, other_ms, len(rounds), apart)
    if None in peaks:
        return cell
    rates = parse(shape).operations(case) / np.array([ours, others])
    ours_fraction, other_fraction = map(float, np.median(rates / peaks, axis=1))
    return cell._replace(
        peak=median(peaks) / GIGA, ours_fraction=ours_fraction, other_fraction=other_fraction
    )


def peak(settings: Settings) -> list[Fact]:
    """Measure the processor's multiply-adds a second, by one thread and by all."""
    counts = sorted({1, settings.threads})
    with ExitStack() as stack:
        turns = [partial(stack.enter_context(worker(threads)), "peak") for threads in counts]
        rounds = take_turns(turns, settings.budget)
    if None in rounds[0]:
        raise MeasurementError("skipped: numba cannot run here")
    facts = []
    for threads, rates in zip(counts, zip(*rounds, strict=True), strict=True):
        what = f"FMA peak of {threads} thread{'s' * (threads > 1)}"
        facts.append(Fact(what, "the processor", median(rates) / GIGA, "GFLOP/s"))
    return facts


def difference(actual: list[Array], expected: list[Array]) -> float | None:
    """Return the largest difference, relative to the largest number of its array if above 1.

    None stands for NaN.
    """
    found = [
        np.abs(ours - other).max() / max(1, np.abs(other).max())
        for ours, other in zip(actual, expected, strict=True)
    ]
    worst = float(np.max(found))
    return None if np.isnan(worst) else worst


def import_time(settings: Settings, module: str) -> list[Fact]:
    """Measure how long importing takes: the median of some new processes."""
    command = [sys.executable, "-c", IMPORT.format(module)]
    times = []
    for _ in range(LEAST):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MeasurementError(f"failed: {done.stderr.strip().splitlines()[-1]}")
        times.append(float(done.stdout.splitlines()[-1]))
    return [Fact("import", module, median(times), "s")]


def compile_time(settings: Settings) -> list[Fact]:
    """Measure the first call in float32, with nothing compiled and after: forward, and both."""
    ours = CONTESTANTS[settings.ours]
    if not ours.packages:
        raise MeasurementError("skipped: nothing is compiled")
    job = {"measure": "first_call", "who": settings.ours, "shape": COMPILED_SHAPE}
    facts = []
    for case in (Case(), Case(backward=True)):
        with TemporaryDirectory() as folder:
            for when in (", nothing compiled yet", " of a process, compiled before"):
                with worker(settings.threads, NUMBA_CACHE_DIR=folder) as ask:
                    seconds = ask(**job, case=case)
                facts.append(Fact(f"first {case.name}{when}", ours.label, seconds, "s"))
    return facts


def peak_memory(settings: Settings, who: str) -> list[Fact]:
    """Measure the memory that causal forward and backward need beyond their inputs."""
    if not os.access(CLEAR_REFS, os.W_OK):
        raise MeasurementError(f"skipped: there is no {CLEAR_REFS} here")
    shape = MEMORY_SHAPES[who]
    with worker(settings.threads) as ask:
        megabytes = ask("memory", who=who, shape=shape) / 1e6
    what = f"peak memory of fwd+bwd causal, {shape}"
    return [Fact(what, CONTESTANTS[who].label, megabytes, "MB")]


def scaling(settings: Settings, who: str) -> list[Fact]:
    """Measure how many times faster all threads are than one."""
    if settings.threads == 1:
        raise MeasurementError("skipped: there is only one thread")
    facts = []
    with worker(settings.threads) as ask_many, worker(1) as ask_one:
        for case in (Case(), Case(backward=True)):
            job = {"measure": "turn", "who": who, "shape": SCALING_SHAPE, "case": case}
            turns = [partial(ask, **job) for ask in (ask_many, ask_one)]
            ratio = ratio_of(take_turns(turns, settings.budget)).median
            what = f"speed of {settings.threads} threads over 1, {SCALING_SHAPE} {case.name}"
            facts.append(Fact(what, CONTESTANTS[who].label, ratio, "x"))
    return facts


def error_ratios(settings: Settings, other: str) -> list[Fact]:
    """Measure our rounding errors in float32 over another's, both against float64."""
    with worker(settings.threads) as ask:
        ratios = ask("errors", ours=settings.ours, other=other, count=ERROR_CASES)
    what = f"error over that of {CONTESTANTS[other].label}"
    return [
        Fact(f"{what}: {name}", CONTESTANTS[settings.ours].label, ratio, "x")
        for name, ratio in zip(("out", "d_q", "d_k", "d_v"), ratios, strict=True)
    ]


def _difference_of_results(ours: Ask, theirs: Ask) -> float | None:
    with TemporaryDirectory() as folder:
        files = [str(Path(folder, f"{name}.npz")) for name in ("ours", "theirs")]
        for ask, file in zip((ours, theirs), files, strict=True):
            ask("results", path=file)
        return difference(*(list(np.load(file).values()) for file in files))
