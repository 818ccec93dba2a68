"""Dropout of attention weights: after the softmax or before it, with its factor or without."""

from functools import partial
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention, cross_entropy_forward
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import RECIPES, AdamW, Batch, share_right

CHARACTERS, T, STEPS, EVERY, RATE = 2000, 24, 300, 25, 1e-2
AFTER, NO_FACTOR, BEFORE = "after softmax", "after softmax, no factor", "before softmax"
PLACES, SHARES = (AFTER, NO_FACTOR, BEFORE), (0.0, 0.1, 0.3, 0.5)
NONE, SLOWLY = "none", ", a third of the learning rate"
END, LOWEST, SHRUNK = "held-out loss", "lowest held-out loss", "held-out loss, rows times 1 - p"


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

    history = train(
        model, partial(task.draw_batch, size=12), STEPS, seed,
        optimizer=AdamW(model, rate, weight_decay=0.0), measure=measure, measure_every=EVERY,
    )  # fmt: skip
    on_training, on_held_out = (history.curve(name)[1] for name in ("trained on", "held out"))
    right = share_right(model(*held_out.inputs), held_out.targets)
    shrunk = np.full(1, 1 - p, np.float32)
    for layer in model.attentions:
        layer.forward = partial(layer.forward, dropout_mask=shrunk)  # type: ignore[method-assign]
    return {
        "training loss": on_training[-1],
        END: on_held_out[-1],
        "gap": on_held_out[-1] - on_training[-1],
        LOWEST: on_held_out.min(),
        "right": right,
        SHRUNK: loss(held_out),
        "while it trains": on_held_out[1:].tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    dropped, no_factor, before = (arm_of(place, 0.5) for place in PLACES)

    def said(measure: str, *arms: str) -> str:
        return " and ".join(f"{result.mean(measure, arm):.2f}" for arm in arms)

    def is_lower(arm: str, other: str, measure: str = END) -> bool:
        return result.is_less_in_each_seed(measure, arm, other)

    gaps = [result.mean("gap", arm_of(AFTER, p)) for p in SHARES]
    not_shrunk, shrunk = result.values(END, dropped), result.values(SHRUNK, no_factor)
    right, right_dropped = (result.mean("right", arm) for arm in (NONE, dropped))
    return [
        Finding(
            f"The gap falls from {gaps[0]:.2f} nats to {gaps[1]:.2f}, {gaps[2]:.2f} and "
            f"{gaps[3]:.2f}, with p = 0.1, 0.3 and 0.5 after the softmax. It shrinks from both "
            f"ends: without dropout and with p = 0.5, the training loss is "
            f"{said('training loss', NONE, dropped)}, and the held-out loss "
            f"{said(END, NONE, dropped)}. But the gap does not close.",
            gaps == sorted(gaps, reverse=True)
            and is_lower(NONE, dropped, "training loss")
            and is_lower(dropped, NONE)
            and result.estimate("gap", dropped).low > 0,
        ),
        Finding(
            "Learning less does part of it. Without dropout, a third of the learning rate leaves a "
            f"gap of {said('gap', NONE + SLOWLY)}. The lowest held-out losses on the way, with the "
            f"two rates, are {said(LOWEST, NONE, NONE + SLOWLY)} without dropout, and "
            f"{said(LOWEST, dropped, dropped + SLOWLY)} with p = 0.5, lower with every seed.",
            is_lower(NONE + SLOWLY, NONE, "gap")
            and is_lower(dropped, NONE, LOWEST)
            and is_lower(dropped + SLOWLY, NONE + SLOWLY, LOWEST),
            3,
        ),
        Finding(
            f"Up to p = 0.5 it guesses a little better: {right:.1%} of the next characters are "
            f"right without dropout, and {right_dropped:.1%} with p = 0.5, more with every seed. "
            "(A larger p is not tried here.) The loss also counts how sure the model is.",
            is_lower(NONE, dropped, "right") and right_dropped - right < 0.02,
            1,
        ),
        Finding(
            "A smaller gap can be worth nothing. Without the factor and with p = 0.5 it is "
            f"{said('gap', no_factor)}, but the held-out loss is {said(END, no_factor)}, as if "
            "nothing had been dropped. Yet the model has learned as much: with rows times 1 - p "
            f"that loss is {shrunk.mean():.2f}, and with the factor {not_shrunk.mean():.2f}.",
            is_lower(no_factor, NONE, "gap")
            and abs(result.mean(END, no_factor) - result.mean(END, NONE)) < 0.1
            and abs(shrunk - not_shrunk).max() < 0.05,
            2,
        ),
        Finding(
            f"Hiding scores before the softmax does less: with p = 0.5 the held-out loss is "
            f"{said(END, before)}. "
            "The result does not show why.",
            is_lower(dropped, before) and is_lower(before, NONE),
            1,
        ),
    ]


def _over_shares(title: str, measure: str, point: str = "") -> Chart:
    lines = {place: [arm_of(place, p) for p in SHARES] for place in PLACES}
    x_label, y_label = "p, share of weights dropped", "nats a character"
    return Chart(title, measure, SHARES, lines, x_label, y_label, point=point)


DROPOUT = Experiment(
    "dropout",
    "Dropout of weights",
    "Dropout of the attention weights prevents overfitting.",
    "D; Srivastava et al. 2014",
    "It halves the gap here, and lowers the held-out loss. It doesn't close the gap.",
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
        END: "nats a character, on pieces of a text it has never seen",
        "gap": "held-out loss minus training loss, in nats a character",
        LOWEST: f"nats a character, the lowest of those after every {EVERY} steps",
        "right": "share of right next characters in the held-out text",
        SHRUNK: "the held-out loss, with all weights times 1 - p",
        "while it trains": f"held-out loss after every {EVERY} steps, in nats a character",
    },
    _run,
    (
        _over_shares("Gap at the end, by the share dropped", "gap"),
        _over_shares("Held-out loss at the end, by the share dropped", END,
                     "It predicts new text a little better"),
        _over_shares("Held-out loss with rows times 1 - p, by the share dropped", SHRUNK,
                     "A smaller gap can be worth nothing"),
        Chart(
            "Held-out loss while it trains, dropped after softmax", "while it trains",
            range(EVERY, STEPS + 1, EVERY),
            {f"p = {p:g}": arm_of(AFTER, p) for p in SHARES},
            "step", "nats a character", point="Learning less does part of it",
        ),
    ),
    _findings,
)  # fmt: skip
