"""Experiments: what people say of attention, tried by training small models."""

from mha_numpy.models.experiments.captions import CAPTIONS
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding, run_experiment
from mha_numpy.models.experiments.heads import HEADS
from mha_numpy.models.experiments.result import Estimate, Result, load_result
from mha_numpy.models.experiments.scale import SCALE

EXPERIMENTS = {each.name: each for each in (CAPTIONS, HEADS, SCALE)}

__all__ = [
    "EXPERIMENTS", "Chart", "Estimate", "Experiment", "Finding", "Result", "load_result",
    "run_experiment",
]  # fmt: skip
