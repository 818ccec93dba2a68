"""Training: batches, optimizers, schedules, and `fit`, which uses them."""

from mha_numpy.train.batch import IGNORED, Batch
from mha_numpy.train.checkpoint import load_checkpoint, save_checkpoint
from mha_numpy.train.clipping import clip_gradients, gradient_norm
from mha_numpy.train.fit import fit, loss_and_gradients
from mha_numpy.train.history import History
from mha_numpy.train.optimizers import SGD, Adam, AdamW, Optimizer, adam_step, sgd_step
from mha_numpy.train.schedules import constant, warm_up_cosine

__all__ = [
    "IGNORED", "SGD", "Adam", "AdamW", "Batch", "History", "Optimizer", "adam_step",
    "clip_gradients", "constant", "fit", "gradient_norm", "load_checkpoint",
    "loss_and_gradients", "save_checkpoint", "sgd_step", "warm_up_cosine",
]  # fmt: skip
