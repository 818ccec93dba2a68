"""Experiments: what people say of attention, tried by training small models."""

from mha_numpy.models.experiments.catalogue import EXPERIMENTS, find_experiment
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding, run_experiment
from mha_numpy.models.experiments.result import Estimate, Result, load_result

__all__ = [
    "EXPERIMENTS", "Chart", "Estimate", "Experiment", "Finding", "Result", "find_experiment",
    "load_result", "run_experiment",
]  # fmt: skip
