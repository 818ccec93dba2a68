"""What an experiment measured: every run, their mean, and how sure it is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

Measured: TypeAlias = Mapping[str, Any]  # what one run measured: numbers and curves, by name

# Student's t: 95% of all lie within, for 1, 2, ... degrees of freedom
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
    2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
DIGITS = 4  # of a number in a file


class Estimate(NamedTuple):
    """The mean of several runs, with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """All runs of an experiment.

    Examples
    --------
    >>> runs = {"one head": {"right": [0.5, 0.7]}, "two heads": {"right": [1.0, 1.0]}}
    >>> result = Result("heads", seeds=(0, 1), runs=runs, seconds=8.5)
    >>> result.values("right", "one head")
    array([0.5, 0.7])
    >>> result.estimate("right", "two heads")
    Estimate(mean=1.0, low=1.0, high=1.0)
    """

    experiment: str
    seeds: tuple[int, ...]
    runs: Mapping[str, Mapping[str, Sequence[Any]]]  # of each arm and measure, a value per seed
    seconds: float

    def values(self, measure: str, arm: str) -> Array:
        """Return what was measured: (seeds,), or (seeds, points) of a curve."""
        known = self.runs.get(arm)
        if known is None or measure not in known:
            name, got, names = (
                ("arm", arm, self.runs) if known is None else ("measure", measure, known)
            )
            raise ConfigError(f"{name}: expected one of {', '.join(names)}; got {describe(got)}")
        return np.array(known[measure], float)

    def estimate(self, measure: str, arm: str) -> Estimate:
        """Return the mean over seeds, and the interval in which the true mean lies, 95% sure.

        It takes runs for normally distributed, so it is rough where they crowd at one end.
        """
        values = self.values(measure, arm)
        return _around(values, sqrt(1 / len(values)))

    def mean(self, measure: str, arm: str) -> float:
        """Return the mean over seeds."""
        return float(self.values(measure, arm).mean())

    def is_less(self, measure: str, arm: str, other: str) -> bool:
        """Say whether an arm's mean is surely less than another's: their intervals do not meet."""
        return self.estimate(measure, arm).high < self.estimate(measure, other).low

    def is_less_in_each_seed(self, measure: str, arm: str, other: str) -> bool:
        """Say whether an arm gives less than another with every seed."""
        return bool((self.values(measure, arm) < self.values(measure, other)).all())

    def next_run(self, measure: str, arm: str) -> Estimate:
        """Return the mean, and the interval in which one more run lies, 95% sure."""
        values = self.values(measure, arm)
        return _around(values, sqrt(1 + 1 / len(values)))

    def save(self, path: str | Path) -> None:
        """Write a small JSON file, a line for each arm and measure."""
        arms = []
        for arm, measures in self.runs.items():
            lines = [f"   {json.dumps(m)}: {json.dumps(_short(v))}" for m, v in measures.items()]
            arms.append(f"  {json.dumps(arm)}: {{\n" + ",\n".join(lines) + "\n  }")
        head = {"experiment": self.experiment, "seconds": self.seconds, "seeds": self.seeds}
        text = json.dumps(head)[:-1] + ', "runs": {\n' + ",\n".join(arms) + "\n}}\n"
        Path(path).write_text(text, encoding="utf-8")


def load_result(name: str) -> Result:
    """Return what an experiment gave when it was last run, from the file that comes with it.

    Examples
    --------
    >>> load_result("scale").seeds
    (0, 1, 2, 3, 4)
    """
    file = resources.files("mha_numpy.models.experiments") / "results" / f"{name}.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    return Result(found["experiment"], tuple(found["seeds"]), found["runs"], found["seconds"])


def _short(values: Sequence[Any]) -> Any:
    if np.ndim(values):
        return [_short(value) for value in values]
    return float(f"{values:.{DIGITS}g}")


def _around(values: Array, factor: float) -> Estimate:
    if len(values) < 2:
        raise ConfigError(f"seeds: expected at least 2 for an interval; got {len(values)}")
    t = T_95[min(len(values) - 2, len(T_95) - 1)]
    mean, half = float(values.mean()), float(t * values.std(ddof=1) * factor)
    return Estimate(mean, mean - half, mean + half)
