"""The figures, each found by worker processes."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.measure import CLEAR_REFS
from mha_numpy.bench.problems import Case, parse
from mha_numpy.bench.results import Cell, Fact, Settings
from mha_numpy.bench.timing import LEAST, ratio_of, take_turns
from mha_numpy.bench.worker import Ask, MeasurementError, worker
from mha_numpy.dtypes import Array

SCALING_SHAPE = "1,12,1024,64"
COMPILED_SHAPE = "1,2,16,16"
LONG, SHORTER = "1,2,16384,64", "1,2,4096,64"
# all scores of two heads at T = 16384 are 2 GB, and JAX and NumPy keep several such arrays
MEMORY_SHAPES = {
    "numba": LONG, "loops": LONG, "torch": LONG, "jax": SHORTER, "numpy": SHORTER,
}  # fmt: skip
ERROR_CASES = 100
IMPORT = "from time import perf_counter as t; start = t(); import {}; print(t() - start)"


def compare(settings: Settings, shape: str, other: str) -> list[Cell]:
    """Compare ours with another in all cases of a shape: first the results, then the times."""
    cells = []
    with worker(settings.threads) as ask_ours, worker(settings.threads) as ask_other:
        for case in parse(shape).cases(masks=settings.mask):
            if case.backward and not CONTESTANTS[other].has_backward:
                continue
            ours = partial(ask_ours, who=settings.ours, shape=shape, case=case)
            theirs = partial(ask_other, who=other, shape=shape, case=case)
            apart = _difference_of_results(ours, theirs)
            pairs = take_turns(partial(ours, "turn"), partial(theirs, "turn"), settings.budget)
            ours_ms, other_ms = (1e3 * median(times) for times in zip(*pairs, strict=True))
            cells.append(
                Cell(shape, case.name, other, ratio_of(pairs), ours_ms, other_ms, len(pairs), apart)
            )
    return cells


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
    """Measure the first forward and backward, in float32: with nothing compiled, and after."""
    ours = CONTESTANTS[settings.ours]
    if not ours.packages:
        raise MeasurementError("skipped: nothing is compiled")
    times = []
    with TemporaryDirectory() as folder:
        for _ in range(2):
            with worker(settings.threads, NUMBA_CACHE_DIR=folder) as ask:
                times.append(ask("first_call", who=settings.ours, shape=COMPILED_SHAPE))
    return [
        Fact("first fwd+bwd, nothing compiled yet", ours.label, times[0], "s"),
        Fact("first fwd+bwd of a process, compiled before", ours.label, times[1], "s"),
    ]


def peak_memory(settings: Settings, who: str) -> list[Fact]:
    """Measure what forward and backward, causal, need beyond their inputs."""
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
            pairs = take_turns(partial(ask_many, **job), partial(ask_one, **job), settings.budget)
            ratio = ratio_of(pairs).median
            what = f"speed of {settings.threads} threads over 1, {SCALING_SHAPE} {case.name}"
            facts.append(Fact(what, CONTESTANTS[who].label, ratio, "x"))
    return facts


def error_ratios(settings: Settings, other: str) -> list[Fact]:
    """Measure our rounding errors in float32 over another's, the truth being float64."""
    with worker(settings.threads) as ask:
        ratios = ask("errors", ours=settings.ours, other=other, count=ERROR_CASES)
    what = f"error over that of {CONTESTANTS[other].label}"
    return [
        Fact(f"{what}: {name}", CONTESTANTS[settings.ours].label, ratio, "x")
        for name, ratio in zip(("out", "d_q", "d_k", "d_v"), ratios, strict=True)
    ]


def _difference_of_results(ours: Ask, theirs: Ask) -> float | None:
    """Let both compute, and return how far they are apart."""
    with TemporaryDirectory() as folder:
        files = [str(Path(folder, f"{name}.npz")) for name in ("ours", "theirs")]
        for ask, file in zip((ours, theirs), files, strict=True):
            ask("results", path=file)
        return difference(*(list(np.load(file).values()) for file in files))
