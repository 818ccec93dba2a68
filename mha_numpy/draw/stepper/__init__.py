"""The stepper: every recorded array in turn, in a page that runs without a network."""

from mha_numpy.draw.stepper.training_page import training_page
from mha_numpy.draw.stepper.widget import Stepper, stepper

__all__ = ["Stepper", "stepper", "training_page"]
