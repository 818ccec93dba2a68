"""Dropout of attention weights: after the softmax or before it, with its factor or without."""

from functools import partial
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention, cross_entropy_forward
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import RECIPES, AdamW, Batch, fit, share_right, warm_up_cosine

CHARACTERS, T, STEPS, EVERY, RATE = 2000, 24, 300, 25, 1e-2
AFTER, NO_FACTOR, BEFORE = "after softmax", "after softmax, no factor", "before softmax"
PLACES, SHARES = (AFTER, NO_FACTOR, BEFORE), (0.0, 0.1, 0.3, 0.5)
NONE, SLOWLY = "none", ", a third of the learning rate"


def arm_of(place: str, p: float) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("before softmax", 0.3), arm_of("before softmax", 0)
    ('before softmax, p = 0.3', 'none')
    """
    return f"{place}, p = {p:g}" if p else NONE


ARMS = {arm_of(place, p): (place, p, RATE) for place in PLACES for p in SHARES}
ARMS |= {arm_of(AFTER, p) + SLOWLY: (AFTER, p, RATE / 3) for p in (0.0, 0.5)}


def options_of(place: str, p: float, keep: Array) -> dict[str, Array]:
    """Return the options of attention that drop a weight wherever `keep` is False."""
    if place == BEFORE:
        return {"mask": keep}  # the scores are hidden, so softmax shares out the rest
    return {"dropout_mask": keep.astype(np.float32) / np.float32(1 - p if place == AFTER else 1)}


def drop_weights(layer: MultiHeadAttention, place: str, p: float, rng: int) -> None:
    """Let a layer drop a share p of its weights while it trains: a new mask in each forward."""
    generator, forward = np.random.default_rng(rng), layer.forward

    def attend(query: Array, *others: Array, **options: Any) -> Any:
        if layer.training and p:
            B, T, _ = query.shape
            keep = generator.random((B, layer.num_heads, T, T)) >= p
            options |= options_of(place, p, keep)
        return forward(query, *others, **options)

    layer.forward = attend  # type: ignore[assignment, method-assign]


def _run(arm: str, seed: int) -> Measured:
    place, p, rate = ARMS[arm]
    task = RECIPES["text"].make_task()
    task.num_tokens, rng = T, np.random.default_rng(1000 + seed)
    start = rng.integers(len(task.trained_on) - CHARACTERS)
    task.trained_on = task.trained_on[start : start + CHARACTERS]
    trained_on, held_out = task.draw_batch(rng, 64), task.draw_held_out(rng, 128)
    model = AttentionOnlyLM(len(task.vocabulary), T, rng=seed).astype(np.float32)
    for layer in model.attentions:
        drop_weights(layer, place, p, rng=seed)

    def loss(batch: Batch) -> float:
        return float(cross_entropy_forward(model(*batch.inputs), batch.targets)[0])

    def measure(_: AttentionOnlyLM, step: int) -> dict[str, float]:
        return {"trained on": loss(trained_on), "held out": loss(held_out)}

    history = fit(
        model, partial(task.draw_batch, size=12), steps=STEPS,
        optimizer=AdamW(model, rate, weight_decay=0.0),
        schedule=warm_up_cosine(STEPS, STEPS // 10), max_norm=1.0, rng=seed,
        measure=measure, measure_every=EVERY, progress=False,
    )  # fmt: skip
    on_training, on_held_out = (history.curve(name)[1] for name in ("trained on", "held out"))
    right = share_right(model(*held_out.inputs), held_out.targets)
    shrunk = np.full(1, 1 - p, np.float32)
    for layer in model.attentions:
        layer.forward = partial(layer.forward, dropout_mask=shrunk)  # type: ignore[method-assign]
    return {
        "training loss": on_training[-1],
        "held-out loss": on_held_out[-1],
        "gap": on_held_out[-1] - on_training[-1],
        "lowest held-out loss": on_held_out.min(),
        "right": right,
        "held-out loss, rows times 1 - p": loss(held_out),
        "while it trains": on_held_out[1:].tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    END, LOWEST, SHRUNK = "held-out loss", "lowest held-out loss", "held-out loss, rows times 1 - p"
    dropped, no_factor, before = (arm_of(place, 0.5) for place in PLACES)
    some = arm_of(AFTER, 0.3)

    def mean(measure: str, arm: str) -> float:
        return result.mean(measure, arm)

    def is_lower(measure: str, arm: str, other: str) -> bool:
        """Say whether it is so with every seed, which both arms share."""
        return bool((result.values(measure, arm) < result.values(measure, other)).all())

    gaps = [mean("gap", arm_of(AFTER, p)) for p in SHARES]
    first, *others = (f"{gap:.2f}" for gap in gaps)
    return [
        Finding(
            f"The gap is {first} nats without dropout, and {', '.join(others)} with p = 0.1, 0.3, "
            "0.5 after the softmax. With p = 0.5 it shrinks from both ends: the training loss "
            f"rises from {mean('training loss', NONE):.2f} to "
            f"{mean('training loss', dropped):.2f}, and the held-out loss falls from "
            f"{mean(END, NONE):.2f} to {mean(END, dropped):.2f}. But it does not close.",
            gaps == sorted(gaps, reverse=True)
            and is_lower("training loss", NONE, dropped)
            and is_lower(END, dropped, NONE)
            and result.estimate("gap", dropped).low > 0,
        ),
        Finding(
            "Half of that is slower learning, which needs no dropout: a third of the learning "
            f"rate leaves a gap of {mean('gap', NONE + SLOWLY):.2f}. What is left is smaller. The "
            "lowest held-out loss on the way is "
            f"{mean(LOWEST, NONE):.2f} without dropout and {mean(LOWEST, dropped):.2f} with "
            f"p = 0.5; with a third of the rate {mean(LOWEST, NONE + SLOWLY):.2f} and "
            f"{mean(LOWEST, dropped + SLOWLY):.2f}. Dropout is lower with every seed.",
            is_lower(LOWEST, dropped, NONE)
            and is_lower(LOWEST, dropped + SLOWLY, NONE + SLOWLY)
            and 0.4 < (gaps[0] - mean("gap", NONE + SLOWLY)) / (gaps[0] - gaps[-1]) < 0.8,
        ),
        Finding(
            "It hardly guesses better: without dropout "
            f"{mean('right', NONE):.1%} of the next characters are right, and "
            f"{mean('right', dropped):.1%} with p = 0.5. What it loses is false confidence.",
            abs(mean("right", NONE) - mean("right", dropped)) < 0.02,
        ),
        Finding(
            f"Without the factor, the held-out loss with p = 0.5 is {mean(END, no_factor):.2f}, "
            "because evaluation uses rows twice as large as training did on average. Multiplied "
            f"by 1 - p, the same model has {mean(SHRUNK, no_factor):.2f}, as with the factor "
            f"({mean(END, dropped):.2f}).",
            is_lower(END, dropped, no_factor)
            and abs(mean(SHRUNK, no_factor) - mean(END, dropped)) < 0.05,
        ),
        Finding(
            "Smaller rows make any of these models less sure of itself. With p = 0.3 and the "
            f"factor, where nothing has to be undone, they lower the loss from {mean(END, some):.2f} "
            f"to {mean(SHRUNK, some):.2f}.",
            bool((result.values(SHRUNK, some) < result.values(END, some)).all()),
        ),
        Finding(
            "Hiding scores before the softmax helps less: with p = 0.5 the held-out loss is "
            f"{mean(END, before):.2f}, not {mean(END, dropped):.2f}. Why, this does not show.",
            is_lower(END, dropped, before) and is_lower(END, before, NONE),
        ),
    ]


def _over_shares(title: str, measure: str) -> Chart:
    lines = {place: [arm_of(place, p) for p in SHARES] for place in PLACES}
    return Chart(title, measure, SHARES, lines, "p, share of weights dropped", "nats a character")


DROPOUT = Experiment(
    "dropout",
    "Dropout of weights",
    "Dropout of the attention weights prevents overfitting.",
    "D; Srivastava et al. 2014",
    f"A model of two attention layers learns to predict the next character from {CHARACTERS:,} "
    f"characters of a novel, so few that it can learn them by heart, in {STEPS} steps of AdamW. "
    "Where they come from in the text is drawn from the seed. While it trains, it drops a share p "
    "of the attention weights and nothing else: after the softmax, with the kept weights "
    "multiplied by 1 / (1 - p) or not, or before it, by hiding their scores, so that every row "
    "that keeps a key sums to 1. All losses are measured without dropout, and once more with the "
    "weights multiplied by 1 - p, which is what the missing factor would have undone.",
    tuple(ARMS),
    {
        "training loss": "nats a character, on pieces of the text it has learned from",
        "held-out loss": "nats a character, on pieces of a text it has never seen",
        "gap": "held-out loss minus training loss, in nats a character",
        "lowest held-out loss": f"nats a character, the lowest of those after every {EVERY} steps",
        "right": "share of right next characters in the held-out text",
        "held-out loss, rows times 1 - p": "the same losses, with all weights times 1 - p",
        "while it trains": f"held-out loss after every {EVERY} steps, in nats a character",
    },
    _run,
    (
        _over_shares("Gap at the end, by the share dropped", "gap"),
        _over_shares("Held-out loss at the end, by the share dropped", "held-out loss"),
        _over_shares("The same with rows times 1 - p", "held-out loss, rows times 1 - p"),
        Chart(
            "Held-out loss while it trains, dropped after softmax", "while it trains",
            range(EVERY, STEPS + 1, EVERY),
            {f"p = {p:g}": arm_of(AFTER, p) for p in SHARES},
            "step", "nats a character",
        ),
    ),
    _findings,
)  # fmt: skip
