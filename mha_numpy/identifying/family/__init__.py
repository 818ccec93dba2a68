"""Attention in every form that people write: each convention and each mistake is a setting.

Ten stages compute it, from the inputs to the output. A setting has its usual value first.
"""

from mha_numpy.identifying.family import inputs, mixing, positions, scores, visible  # noqa: F401
from mha_numpy.identifying.family.problem import AXES as AXES
from mha_numpy.identifying.family.problem import Problem as Problem
from mha_numpy.identifying.family.problem import Sizes as Sizes
from mha_numpy.identifying.family.stages import SETTINGS as SETTINGS
from mha_numpy.identifying.family.stages import STAGES as STAGES
from mha_numpy.identifying.family.stages import USUAL as USUAL
from mha_numpy.identifying.family.stages import Settings as Settings
from mha_numpy.identifying.family.stages import evaluate as evaluate
