"""Training: batches, optimizers, schedules, `fit`, which uses them, and five recipes."""

from mha_numpy.foreign import explain_missing
from mha_numpy.models.train.batch import IGNORED, Batch
from mha_numpy.models.train.checkpoint import load_checkpoint, save_checkpoint
from mha_numpy.models.train.fit import fit, loss_and_gradients
from mha_numpy.models.train.gradients import clip_gradients, gradient_norm
from mha_numpy.models.train.history import History
from mha_numpy.models.train.optimizers import SGD, Adam, AdamW, Optimizer, adam_step, sgd_step
from mha_numpy.models.train.options import ParamGroup
from mha_numpy.models.train.recipes import (
    RECIPES,
    Recipe,
    Trained,
    load_trained,
    share_right,
    train_recipe,
)
from mha_numpy.models.train.schedules import constant, warm_up_cosine

__all__ = [
    "IGNORED", "RECIPES", "SGD", "Adam", "AdamW", "Batch", "History", "Optimizer", "ParamGroup",
    "Recipe", "Trained", "adam_step", "clip_gradients", "constant", "fit", "gradient_norm",
    "load_checkpoint", "load_trained", "loss_and_gradients", "save_checkpoint", "sgd_step",
    "share_right", "train_recipe", "warm_up_cosine",
]  # fmt: skip

explain_missing(__name__)
