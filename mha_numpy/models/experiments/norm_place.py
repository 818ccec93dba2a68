"""The layer norm's place: before or after, with warm-up or without."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import Layer
from mha_numpy.models import TransformerLM
from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.train import AdamW, constant, fit, gradient_norm, loss_and_gradients, warm_up_cosine
from mha_numpy.models.train.recipes import RECIPES

LAYERS, STEPS, LATE = 6, 300, 200


def _norms(model: TransformerLM) -> list[float]:
    """Return the norm of each layer's gradient."""
    return [float(gradient_norm(block)) for block in model.blocks]


def _run(arm: str, seed: int) -> dict[str, float | list[float]]:
    place, start = arm.split(", ")
    task = RECIPES["text"].make_task()
    task.num_tokens = 32
    model = TransformerLM(
        len(task.vocabulary), 32,
        embed_dim=32, num_heads=4, num_layers=LAYERS, norm_first=place == "before", rng=seed,
    ).astype(np.float32)  # fmt: skip
    draw = partial(task.draw_batch, size=16)
    loss_and_gradients(model, draw(np.random.default_rng(seed)))
    measured: dict[str, float | list[float]] = {"norms at the start": _norms(model)}

    def measure(model: TransformerLM, step: int) -> dict[str, float]:
        if step == LATE:
            loss_and_gradients(model, draw(np.random.default_rng(seed)))
            measured[f"norms after {LATE} steps"] = _norms(model)
        return {}

    history = fit(
        model, draw, steps=STEPS, optimizer=AdamW(model, 1e-2), max_norm=None, rng=seed,
        schedule=warm_up_cosine(STEPS, 100 if start == "warm-up" else 0),
        measure=measure, measure_every=LATE, progress=False,
    )  # fmt: skip
    measured["loss at the end"] = float(np.mean(history.losses[-20:]))
    return measured


NORM_PLACE = Experiment(
    "norm-place",
    "The norm before or after",
    "With the norm after the residual sum, training needs a warm-up; with the norm before, it does "
    "not.",
    "D, E; Xiong et al. 2020",
    tuple(f"{place}, {start}" for place in ("before", "after") for start in ("warm-up", "none")),
    {
        "norms at the start": "norm of each layer's gradient",
        f"norms after {LATE} steps": "the same",
        "loss at the end": f"nats a character, mean of the last 20 of {STEPS} steps",
    },
    _run,
)
