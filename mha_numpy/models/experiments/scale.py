"""Why scores are scaled: one head learns to reverse digits, with three scales."""

from functools import partial

import numpy as np

from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import AdamW, fit
from mha_numpy.models.train.tasks import Reverse

WIDTH, STEPS, BEFORE = 64, 120, 20
LEARNED = 0.1  # nats
EARLY = f"loss at {BEFORE}"
RATES = 1e-3, 3e-3, 1e-2
SCALES = {"no scale": 1.0, "1/sqrt(d_k)": WIDTH**-0.5, "1/d_k": 1 / WIDTH}
SMALL_START = "no scale, w_q / 8"  # its first scores are those of 1/sqrt(d_k)


def arm_of(scale: str, rate: float) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("no scale", 1e-3)
    'no scale, rate 0.001'
    """
    return f"{scale}, rate {rate:g}"


ARMS = {arm_of(scale, rate): (scale, rate) for scale in (*SCALES, SMALL_START) for rate in RATES}


def _run(arm: str, seed: int) -> Measured:
    scale, rate = ARMS[arm]
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
        optimizer=AdamW(model, rate), max_norm=1.0, rng=seed, progress=False,
    )  # fmt: skip
    losses = np.array(history.losses)
    return {
        EARLY: losses[BEFORE - 5 : BEFORE + 5].mean(),
        "loss at the end": losses[-10:].mean(),
        "loss": losses.reshape(-1, 5).mean(axis=1).tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    def failed(scale: str) -> int:
        ends = [result.values("loss at the end", arm_of(scale, rate)) for rate in RATES]
        return int((np.array(ends) > LEARNED).sum())

    def early(scale: str, rate: float) -> str:
        return f"{result.mean(EARLY, arm_of(scale, rate)):.2g}"

    none, root, whole = SCALES
    tried = len(RATES) * len(result.seeds)
    return [
        Finding(
            f"Without a scale, {failed(none)} of {tried} runs are still above {LEARNED} nats after "
            f"{STEPS} steps, some at every learning rate. With 1/sqrt(d_k) that happens in "
            f"{failed(root)} of {tried}.",
            failed(root) == 0
            and all(result.values("loss at the end", arm_of(none, rate)).max() > LEARNED
                    for rate in RATES),
        ),
        Finding(
            f"Much of it is the start. Without a scale, but with a w_q that starts 8 times "
            f"smaller, only {failed(SMALL_START)} of {tried} runs fail, all at the highest "
            "learning rate.",
            0 < failed(SMALL_START) < failed(none)
            and all(result.values("loss at the end", arm_of(SMALL_START, rate)).max() < LEARNED
                    for rate in RATES[:-1]),
        ),
        Finding(
            "But not all of it: without a scale, a step of w_q also moves the scores 8 times as "
            "far. At the highest learning rate the small start has "
            f"{early(SMALL_START, RATES[-1])} nats at step {BEFORE}, on average, and the scaled "
            f"head {early(root, RATES[-1])}.",
            result.is_less_in_each_seed(
                EARLY, arm_of(root, RATES[-1]), arm_of(SMALL_START, RATES[-1])
            ),
        ),
        Finding(
            f"At width {WIDTH}, dividing by d_k, 8 times more than by its root, is not worse after "
            f"{STEPS} steps: its loss is lower for each of these seeds and learning rates. (At "
            f"{RATES[0]:g} the two are close, so other seeds may differ, and at other widths it "
            "may be worse; only this one is tried.) It starts more slowly at the two "
            f"lower ones ({early(whole, RATES[1])} against {early(root, RATES[1])} nats at step "
            f"{BEFORE}, with {RATES[1]:g}). So the root is not the one right divisor; it makes "
            "scores of a size that is good to start with.",
            all(result.is_less_in_each_seed("loss at the end", arm_of(whole, rate),
                                            arm_of(root, rate)) for rate in RATES)
            and all(result.is_less_in_each_seed(EARLY, arm_of(root, rate), arm_of(whole, rate))
                    for rate in RATES[:-1]),
            1,
        ),
    ]  # fmt: skip


SCALE = Experiment(
    "scale",
    "Why the scale?",
    "Without the division by sqrt(d_k), softmax saturates, and training is slow or fails.",
    "B, C, D, E; Vaswani et al. 2017, section 3.2.1",
    "True, mostly because of the start. But the root of d_k is not the only divisor that works.",
    f"One head of width {WIDTH} learns to reverse 12 digits in {STEPS} steps of AdamW, with three "
    "learning rates. Only the scale differs. A fourth model does not scale its scores, but its "
    "w_q starts 8 times smaller, so that its first scores are those with 1/sqrt(d_k).",
    tuple(ARMS),
    {
        EARLY: f"nats, mean of 10 steps around step {BEFORE}",
        "loss at the end": f"nats, mean of the last 10 of {STEPS} steps",
        "loss": "nats, mean of 5 steps",
    },
    _run,
    (
        Chart(
            "Loss at the end, by learning rate", "loss at the end", RATES,
            {scale: [arm_of(scale, rate) for rate in RATES] for scale in (*SCALES, SMALL_START)},
            "learning rate", "nats", log_x=True, log_y=True,
        ),
        Chart(
            "Loss while it trains, with a learning rate of 0.003", "loss",
            [5 * i + 3 for i in range(STEPS // 5)],
            {scale: arm_of(scale, 3e-3) for scale in (*SCALES, SMALL_START)},
            "step", "nats", point="The root is not the only divisor that works",
        ),
    ),
    _findings,
)  # fmt: skip
