"""Side-by-side benchmarks: our backends against each other and against the frameworks."""

from mha_numpy.bench.plan import benchmark
from mha_numpy.bench.results import Cell, Fact, Results, Settings
from mha_numpy.bench.timing import Ratio, ratio_of

__all__ = ["Cell", "Fact", "Ratio", "Results", "Settings", "benchmark", "ratio_of"]
