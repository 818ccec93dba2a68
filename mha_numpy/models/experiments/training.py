"""How the models of the experiments are trained: all in one way."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mha_numpy.layers import Layer
from mha_numpy.models.train import AdamW, Batch, History, fit, warm_up_cosine


def train(
    model: Layer,
    draw_batch: Callable[[np.random.Generator], Batch],
    steps: int,
    seed: int,
    *,
    rate: float = 1e-2,
    **options: Any,
) -> History:
    """Train by AdamW: a tenth of the steps warms up, and a cosine leads to the end.

    Other options are those of `fit`.
    """
    settings: dict[str, Any] = {
        "optimizer": AdamW(model, rate), "schedule": warm_up_cosine(steps, steps // 10),
        "max_norm": 1.0, "rng": seed, "progress": False,
    }  # fmt: skip
    return fit(model, draw_batch, steps=steps, **settings | options)
