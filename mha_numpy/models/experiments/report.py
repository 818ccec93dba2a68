"""Experiments in tables: all of them, and what one of them gave."""

from collections.abc import Iterator
from textwrap import fill

import numpy as np

from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.experiments.result import Result
from mha_numpy.tables import Table

WIDTH = 80  # of prose


def overview(experiments: dict[str, Experiment], results: dict[str, Result]) -> Table:
    """Return all experiments, one per line."""
    rows = []
    for name, each in experiments.items():
        seconds = f"{results[name].seconds:.0f} s"
        rows.append([name, seconds, f'"{each.claim}" {each.answer}'])
    columns = ["name", "time", "what is claimed, and what became of it"]
    return Table("Experiments; the time is that of two cores", columns, rows)


def sections(
    experiment: Experiment, result: Result, published: Result | None = None
) -> Iterator[Table | str]:
    """Yield what was claimed, measured and found; beside it, what the docs say."""
    yield fill(f'"{experiment.claim}" ({experiment.said_by})', WIDTH)
    yield ""
    yield measured_table(experiment, result, published)
    yield ""
    findings = experiment.findings(result)
    for found in findings:
        yield fill(f"{'holds' if found.holds else 'DOES NOT HOLD'}: {found.text}", WIDTH)
    if all(found.holds for found in findings):
        yield ""
        yield fill(f"In short: {experiment.answer}", WIDTH)


def measured_table(
    experiment: Experiment, result: Result, published: Result | None = None
) -> Table:
    """Return every number that is not a curve: its mean, and where the mean lies, 95% sure."""
    given = [result] if published is None else [result, published]
    columns = ["arm", "measure", "mean, and its 95% interval", "in the docs"]
    rows = []
    for arm, measures in result.runs.items():
        for measure, values in measures.items():
            if np.ndim(values) == 1:
                rows.append([arm, measure, *(_estimate(each, measure, arm) for each in given)])
    title = f"{experiment.title}: {len(result.seeds)} seeds, {result.seconds:.0f} s"
    return Table(title, columns[: 2 + len(given)], rows)


def _estimate(result: Result, measure: str, arm: str) -> str:
    if measure not in result.runs.get(arm, ()):
        return ""  # the recipe has got a new arm
    mean, low, high = (f"{number:.3g}" for number in result.estimate(measure, arm))
    return f"{mean} ({low} to {high})"
