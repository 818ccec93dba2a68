"""What an experiment measured: every run, and the mean of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures.line_chart import line_chart
from mha_numpy.show.pictures.save import Picture

if TYPE_CHECKING:
    from mha_numpy.models.experiments import Result


def experiment_chart(name: str, number: int = 0, *, result: Result | None = None) -> Picture:
    """Draw a chart of an experiment, with a thin line for each run and a bold one for their mean.

    Parameters
    ----------
    name : str
        Such as "heads"; `mha-numpy experiment` lists them.
    number : int
        Which of its charts.
    result : Result, optional
        Of your own runs; default: the published one.

    Returns
    -------
    Picture

    Examples
    --------
    >>> experiment_chart("scale").title
    'Loss at the end, by learning rate'
    """
    from mha_numpy.models.experiments import find_experiment, load_result  # which no other needs

    charts = find_experiment(name).charts
    number = check_count("number", number, least=0)
    if number >= len(charts):
        raise ConfigError(f"number: expected 0 to {len(charts) - 1} for {name!r}; got {number}")
    chart, result = charts[number], result or load_result(name)
    return line_chart(
        chart.x, chart.runs_of(result), title=chart.title,
        x_label=chart.x_label, y_label=chart.y_label, log_x=chart.log_x, log_y=chart.log_y,
    )  # fmt: skip
