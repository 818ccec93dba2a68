"""Why scores are scaled: one head learns to reverse digits, with three scales."""

from functools import partial

import numpy as np

from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.train import AdamW, fit
from mha_numpy.models.train.tasks import Reverse

WIDTH, STEPS = 64, 120
SCALES = {"no scale": 1.0, "1/sqrt(d_k)": WIDTH**-0.5, "1/d_k": 1 / WIDTH}
RATES = (1e-3, 3e-3, 1e-2)
SMALL_START = "no scale, w_q / 8"  # its first scores are those of 1/sqrt(d_k)


def _run(arm: str, seed: int) -> dict[str, float | list[float]]:
    scale, rate = arm.rsplit(", rate ", 1)
    model = AttentionOnlyLM(
        Reverse.vocab_size, 12,
        embed_dim=WIDTH, num_heads=1, num_layers=1, is_causal=False, rng=seed,
    )  # fmt: skip
    head = model.attentions[0]
    if scale == SMALL_START:
        head.params["w_q"] /= np.sqrt(WIDTH)
    head.forward = partial(head.forward, scale=SCALES.get(scale, 1.0))  # type: ignore[method-assign]
    history = fit(
        model.astype(np.float32), partial(Reverse().draw_batch, size=32), steps=STEPS,
        optimizer=AdamW(model, float(rate)), max_norm=1.0, rng=seed, progress=False,
    )  # fmt: skip
    losses = np.array(history.losses)
    return {
        "loss at 60": float(losses[55:65].mean()), "loss at the end": float(losses[-10:].mean()),
        "loss": losses.reshape(-1, 5).mean(axis=1).tolist(),
    }  # fmt: skip


SCALE = Experiment(
    "scale",
    "Why the scale",
    "Without the division by sqrt(d_k), softmax saturates and training is slow or fails.",
    "B, C, D, E; Vaswani et al. 2017, section 3.2.1",
    tuple(f"{scale}, rate {rate:g}" for scale in (*SCALES, SMALL_START) for rate in RATES),
    {
        "loss at 60": "nats, mean of 10 steps around step 60",
        "loss at the end": f"nats, mean of the last 10 of {STEPS} steps",
        "loss": "nats, mean of 5 steps",
    },
    _run,
)
