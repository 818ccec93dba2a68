"""A small model with dropout, and something for it to learn."""

import numpy as np

from mha_numpy.models import TransformerLM
from mha_numpy.models.train import AdamW, Batch, fit, warm_up_cosine

V, T = 7, 5


def make_model(rng=0, **options):
    sizes = {"embed_dim": 6, "num_heads": 2, "num_layers": 2}
    return TransformerLM(V, T, **sizes, dropout_p=0.2, rng=rng, **options)


def count_up(rng):
    """Draw sequences that count, from anywhere."""
    ids = (rng.integers(V, size=(4, 1)) + np.arange(T + 1)) % V
    return Batch((ids[:, :-1],), ids[:, 1:])


def bytes_of(model):
    return {name: param.tobytes() for name, param in model.named_params()}


def train(model, draw_batch=count_up, *, steps=12, optimizer=None, **options):
    """Train as a real run does, with all that has a state."""
    options = {"schedule": warm_up_cosine(max(steps, 5), warm_up=4), "max_norm": 1.0, **options}
    optimizer = optimizer or AdamW(model, 1e-2)
    options = {"rng": 3, "progress": False, **options}
    return fit(model, draw_batch, steps=steps, optimizer=optimizer, **options)
