"""A whole training step: forward, loss, backward, clipping, AdamW; by us and by PyTorch.

The models are `mha_numpy.models`, and the same in PyTorch written out below.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy import models
from mha_numpy.bench.problems import TrainingDrawn
from mha_numpy.dtypes import Array
from mha_numpy.nn import Layer
from mha_numpy.train import AdamW, Batch, clip_gradients, loss_and_gradients
