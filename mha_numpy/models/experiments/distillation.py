"""Distillation: a student with half of the heads learns from a teacher's probabilities."""

import numpy as np

from mha_numpy.core import softmax_forward
from mha_numpy.dtypes import Array
from mha_numpy.models import TransformerLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import Batch

V, T, STEPS, RATE = 8, 16, 300, 1e-2
SEQUENCES = 256  # to train on
TEACHER, STUDENT = (32, 4), (16, 2)  # width, heads
SMOOTHING = 0.1

LABELS, SMOOTHED, LONGER = "labels", "smoothed labels", "labels, 3 times as long"
BY_TEACHER, TRUTH, ALONE = "teacher", "true probabilities", "the teacher itself"
ARMS = LABELS, SMOOTHED, LONGER, BY_TEACHER, TRUTH, ALONE


def draw_ids(table: Array, rng: np.random.Generator, size: int) -> Array:
    """Draw sequences of T letters, and one more: each depends on the two before it.

    The probabilities are ``table[before, last]``; the first letter is 0, and so is what would be
    before it.
    """
    ids = np.zeros((size, T + 2), int)
    for t in range(2, T + 2):
        probs = table[ids[:, t - 2], ids[:, t - 1]].cumsum(axis=-1)
        ids[:, t] = (rng.random((size, 1)) >= probs[:, :-1]).sum(axis=-1)
    return ids[:, 1:]


def true_probs(table: Array, ids: Array) -> Array:
    """Return the probabilities of the letter after each of (B, T) ids: (B, T, V)."""
    before = np.pad(ids, ((0, 0), (1, 0)))[:, :-1]
    return table[before, ids]


def soft_cross_entropy(logits: Array, targets: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return the mean of ``-sum(targets * log softmax(logits))``, and a cache for its backward.

    With targets of 0 and 1 it is the cross-entropy with labels. Source: Hinton et al. 2015,
    *Distilling the knowledge in a neural network*, section 2, at temperature 1.
    """
    probs, _ = softmax_forward(logits)
    loss = -(targets * np.log(np.maximum(probs, 1e-30))).sum(axis=-1).mean()
    return loss, (probs, targets)


def soft_cross_entropy_backward(d_loss: Array, cache: tuple[Array, Array]) -> Array:
    """Return ``d_logits = (softmax(logits) - targets) / n``, for n tokens."""
    probs, targets = cache
    return d_loss * (probs - targets) / targets[..., 0].size


def _train(
    size: tuple[int, int], seed: int, ids: Array, targets: Array, held_out: tuple[Array, Array],
    steps: int = STEPS,
) -> tuple[TransformerLM, Array]:  # fmt: skip
    """Return a model of this width and heads, and its excess loss while it trains.

    The same sequences come again and again, with one kind of targets.
    """
    model = TransformerLM(V, T, embed_dim=size[0], num_heads=size[1], num_layers=1, rng=seed)
    model.astype(np.float32)

    def draw_batch(rng: np.random.Generator) -> Batch:
        rows = rng.integers(len(ids), size=32)
        return Batch((ids[rows],), targets[rows].astype(np.float32))

    def measure(model: TransformerLM, step: int) -> dict[str, float]:
        return {"excess": excess_loss(model(held_out[0]), held_out[1])}

    history = train(
        model, draw_batch, steps, seed, rate=RATE,
        loss=(soft_cross_entropy, soft_cross_entropy_backward),
        measure=measure, measure_every=steps // 15,
    )  # fmt: skip
    return model, history.curve("excess")[1][1:]


def excess_loss(logits: Array, probs: Array) -> float:
    """Return how much more the model loses on average than the true probabilities: (B, T, V)."""
    said, _ = softmax_forward(logits)
    ratio = np.maximum(probs, 1e-30) / np.maximum(said, 1e-30)
    return float((probs * np.log(ratio)).sum(axis=-1).mean())


def _run(arm: str, seed: int) -> Measured:
    rng = np.random.default_rng(1000 + seed)
    table = rng.dirichlet(np.full(V, 0.3), size=(V, V))
    asked = draw_ids(table, rng, 256)[:, :-1]
    held_out = asked, true_probs(table, asked)
    ids = draw_ids(table, rng, SEQUENCES)
    labels, ids = np.eye(V)[ids[:, 1:]], ids[:, :-1]
    targets = {
        LABELS: labels,
        LONGER: labels,
        SMOOTHED: (1 - SMOOTHING) * labels + SMOOTHING / V,
        TRUTH: true_probs(table, ids),
    }.get(arm)
    steps = 3 * STEPS if arm == LONGER else STEPS
    if targets is None:
        teacher, excess = _train(TEACHER, seed, ids, labels, held_out)
        targets, _ = softmax_forward(teacher(ids))
    if arm != ALONE:
        _, excess = _train(STUDENT, 100 + seed, ids, targets, held_out, steps)
    return {
        "excess": excess[-1],
        "lowest": excess.min(),
        "while it trains": excess.tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    def excess(kind: str) -> str:
        return f"{result.mean('excess', kind):.3f}"

    def is_less(kind: str, other: str) -> bool:
        return result.is_less("excess", kind, other)

    return [
        Finding(
            f"A student that learns from labels ends {excess(LABELS)} nats a letter above the "
            f"truth, and one that learns from a teacher's probabilities {excess(BY_TEACHER)}, "
            "although the teacher has seen the same labels and nothing else.",
            is_less(BY_TEACHER, LABELS),
        ),
        Finding(
            f"The student does better than its teacher, which ends at {excess(ALONE)} and has been "
            f"at {result.mean('lowest', ALONE):.3f}: the teacher overfits, and the student of its "
            "probabilities does not yet.",
            result.is_less_in_each_seed("excess", BY_TEACHER, ALONE)
            and result.mean("lowest", ALONE) < result.mean("excess", ALONE),
        ),
        Finding(
            f"With three times as many steps, a student of labels ends at {excess(LONGER)}, "
            "because it overfits by then; at its best moment, known only with hindsight, it was "
            f"at {result.mean('lowest', LONGER):.3f}. Part of what the teacher gives is time, and "
            "a guard against overfitting.",
            is_less(BY_TEACHER, LONGER)
            and bool((result.values("lowest", LONGER) < result.values("excess", LABELS)).all()),
        ),
        Finding(
            f"Smoothed labels are soft too, but say nothing about the letters; a student of them "
            f"ends at {excess(SMOOTHED)}. Softness by itself does not explain the gain.",
            is_less(BY_TEACHER, SMOOTHED),
        ),
        Finding(
            f"The probabilities that the letters were drawn from are the best teacher: "
            f"{excess(TRUTH)} with the same sequences and steps. So most of the loss with "
            "labels is not due to the student's size.",
            is_less(TRUTH, BY_TEACHER)
            and result.mean("excess", TRUTH) < result.mean("excess", LABELS) / 2,
        ),
    ]


DISTILLATION = Experiment(
    "distillation",
    "Learning from a teacher",
    "A smaller model learns better from a larger one's probabilities than from labels, because "
    "they say more.",
    "C; Hinton et al. 2015; Sanh et al. 2019",
    "True here: with little data the student even beats its teacher.",
    "The next letter depends on the last two by a random table, so it is uncertain, and what can "
    "be known is known. The teacher, a language model of one block, has 4 heads and width 32; the "
    f"student has 2 heads and width 16. Both see the same {SEQUENCES} sequences again and again, "
    f"with the same learning rate, {RATE}, for {STEPS} steps. The student's targets are the labels "
    "(the letters that came) or the teacher's probabilities at the same places, at temperature "
    "1. For comparison: three times as many steps, labels of "
    "which a tenth is shared evenly among all letters, and the true probabilities.",
    ARMS,
    {
        "excess": "nats a letter above the loss of the true probabilities, on new sequences",
        "lowest": "the lowest of 15 while it trains, chosen with hindsight",
        "while it trains": f"nats a letter, every {STEPS // 15} steps (three times that if longer)",
    },
    _run,
    (
        Chart(
            "Excess loss while it trains", "while it trains",
            [STEPS // 15 * (i + 1) for i in range(15)],
            {kind: kind for kind in ARMS if kind != LONGER},
            "step", "nats", log_y=True,
        ),
    ),
    _findings,
)  # fmt: skip
