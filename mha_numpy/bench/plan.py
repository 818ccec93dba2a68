"""benchmark(): the measurements one after the other, each with a name that can be asked for."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.figures import (
    MEMORY_SHAPES,
    compare,
    compile_time,
    error_ratios,
    import_time,
    peak,
    peak_memory,
    scaling,
)
from mha_numpy.bench.machine import describe_machine
from mha_numpy.bench.problems import SHAPES, SHORT, parse
from mha_numpy.bench.results import Cell, Fact, Results, Settings
from mha_numpy.bench.worker import MeasurementError
from mha_numpy.errors import ConfigError
from mha_numpy.progress import progress

Found = list[Cell] | list[Fact]


class Task(NamedTuple):
    """A measurement by its name, and by who is measured."""

    name: str
    who: str
    measure: Callable[[], Found]

    def run(self) -> Found:
        """Return what was found, or why nothing was."""
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
    Ours and the other live in a process each, and one is stopped while the other works: threads
    that wait for work would take cores from each other. First their results are compared. Then
    they take turns: one call, or as many as fill 20 ms, of which the median counts. Each pair of
    turns gives one ratio. Between the two the processor's peak is measured, in a third process.

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

    def task(name: str, who: str, measure: Callable[..., Found], *at: str) -> Task:
        label = CONTESTANTS[who].label if who in CONTESTANTS else who
        return Task(name, label, partial(measure, settings, *at))

    for shape in SHAPES:
        problem = parse(shape)
        if settings.quick and problem.operations(problem.cases()[0]) > SHORT:
            continue
        for other in others:
            if CONTESTANTS[other].adapter(problem):
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
