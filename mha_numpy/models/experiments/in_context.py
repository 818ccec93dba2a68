"""Learning in context: the loss at each place, with one layer or two, and with the circuit cut."""

from collections.abc import Callable
from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import cut_heads, head_patterns, mean_heads
from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.train import IGNORED, AdamW, Batch, fit, share_right, warm_up_cosine

V, T, STEPS = 16, 24, 400


def draw_repeated(rng: np.random.Generator, size: int) -> Batch:
    """Draw T / 2 letters, all different, and the same again; ask for every next letter."""
    half = np.stack([rng.permutation(V)[: T // 2] for _ in range(size)])
    ids = np.concatenate([half, half, half[:, :1]], axis=1)
    return Batch((ids[:, :T],), ids[:, 1:])


def draw_pairs(rng: np.random.Generator, size: int) -> Batch:
    """Draw T / 2 pairs of a key and a value, whose keys come again; ask for the values.

    Keys are the first V / 2 tokens, values the others. Which value belongs to a key is drawn anew
    for each sequence, so that only the sequence can tell.
    """
    belongs = V // 2 + rng.integers(V // 2, size=(size, V // 2))
    keys = rng.integers(V // 2, size=(size, T // 2))
    values = np.take_along_axis(belongs, keys, axis=1)
    ids = np.stack([keys, values], axis=-1).reshape(size, T)
    targets = np.where(np.arange(T) % 2 == 0, np.roll(ids, -1, axis=1), IGNORED)
    return Batch((ids,), targets)


TASKS: dict[str, Callable[[np.random.Generator, int], Batch]] = {
    "the same again": draw_repeated, "keys and values": draw_pairs,
}  # fmt: skip


def _losses(model: AttentionOnlyLM, batch: Batch) -> Array:
    """Return the mean loss at each place where something is asked, in nats."""
    _, cache = cross_entropy_forward(model(*batch.inputs), batch.targets, ignore_index=IGNORED)
    return cache.losses.sum(axis=0)[cache.counted[0]] / len(batch.targets)


def _run(arm: str, seed: int) -> dict[str, float | list[float]]:
    task, layers = arm.split(", ")
    num_layers = int(layers.split()[0])
    draw = TASKS[task]
    model = AttentionOnlyLM(
        V, T, embed_dim=32, num_heads=2, num_layers=num_layers, rng=seed
    ).astype(np.float32)
    fit(
        model, partial(draw, size=64), steps=STEPS, optimizer=AdamW(model, 5e-3),
        schedule=warm_up_cosine(STEPS, 40), max_norm=1.0, rng=seed, progress=False,
    )  # fmt: skip
    batch = draw(np.random.default_rng(1000 + seed), 512)
    late = np.where(np.arange(T) > T // 2, batch.targets, IGNORED)
    measured = {
        "loss": _losses(model, batch).tolist(),
        "right in the second half": share_right(model(*batch.inputs), late),
    }
    # the head that looks most at the token before, cut by its mean
    first = model.attentions[0]
    head = int(head_patterns(first.weights, batch.inputs[0])["previous"].argmax())
    with cut_heads(first, head, means=mean_heads(first)):
        measured["loss with the head cut"] = _losses(model, batch).tolist()
        measured["right with the head cut"] = share_right(model(*batch.inputs), late)
    return measured


IN_CONTEXT = Experiment(
    "in-context",
    "Learning in context",
    "A model learns from what it reads, without a change of its params; the circuit for it has two "
    "heads in two layers.",
    "C; Olsson et al. 2022",
    tuple(f"{task}, {n} layer{'s' * (n > 1)}" for task in TASKS for n in (1, 2)),
    {
        "loss": "nats at each place that is asked",
        "loss with the head cut": "the same, without the head that looks most at the token before",
        "right in the second half": "share of right answers in the second half",
        "right with the head cut": "the same, without that head",
    },
    _run,
)
