"""Distillation: a student with half of the heads learns from a teacher's probabilities."""

from functools import cache, partial
from typing import Any

import numpy as np

from mha_numpy.core import softmax_forward
from mha_numpy.dtypes import Array
from mha_numpy.models import TransformerLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import AdamW, Batch, fit, warm_up_cosine

V, T, STEPS, RATE = 8, 16, 300, 1e-2
SIZES = FEW, SOME, MANY = 64, 256, 1024  # sequences to train on
TEACHER, STUDENT = (32, 4), (16, 2)  # width, heads
SMOOTHING = 0.1

LABELS, SMOOTHED, LONGER = "labels", "smoothed labels", "labels, 3 times as long"
BY_TEACHER, BY_WARM, BY_BETTER = "teacher", "teacher, temperature 2", "teacher of more data"
TRUTH, ALONE = "true probabilities", "the teacher itself"
TAUGHT = {BY_TEACHER: (0, 1.0), BY_WARM: (0, 2.0), BY_BETTER: (MANY, 1.0)}  # its data, temperature


def arm_of(sequences: int, kind: str) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of(64, "labels")
    '64 sequences, labels'
    """
    return f"{sequences} sequences, {kind}"


ARMS = {arm_of(n, kind): (n, kind) for n in SIZES for kind in (LABELS, BY_TEACHER, ALONE)} | {
    arm_of(SOME, kind): (SOME, kind) for kind in (SMOOTHED, LONGER, BY_WARM, BY_BETTER, TRUTH)
}


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


def soft_cross_entropy(temperature: float) -> Any:
    """Return a loss against probabilities, forward and backward, for `fit`.

    With s = softmax(logits / temperature), it is ``temperature^2 * mean(-sum(targets * log s))``:
    at temperature 1 and with targets 0 and 1, the cross-entropy with labels. Its gradient is
    ``temperature * (s - targets) / n`` for n tokens. The square keeps it at about the same size,
    because each of the two differences shrinks with the temperature.

    Source: Hinton et al. 2015, *Distilling the knowledge in a neural network*, section 2.
    """

    def forward(logits: Array, targets: Array) -> tuple[Array, tuple[Array, Array]]:
        probs, _ = softmax_forward(logits / temperature)
        loss = -(targets * np.log(np.maximum(probs, 1e-30))).sum(axis=-1).mean()
        return temperature**2 * loss, (probs, targets)

    def backward(d_loss: Array, cache: tuple[Array, Array]) -> Array:
        probs, targets = cache
        return d_loss * temperature * (probs - targets) / targets[..., 0].size

    return forward, backward


def _train(
    size: tuple[int, int], seed: int, ids: Array, targets: Array, held_out: tuple[Array, Array], *,
    temperature: float = 1.0, steps: int = STEPS,
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

    history = fit(
        model, draw_batch, steps=steps, optimizer=AdamW(model, RATE), rng=seed,
        schedule=warm_up_cosine(steps, steps // 10), max_norm=1.0,
        loss=soft_cross_entropy(temperature), measure=measure, measure_every=steps // 15,
        progress=False,
    )  # fmt: skip
    return model, history.curve("excess")[1][1:]


def excess_loss(logits: Array, probs: Array) -> float:
    """Return how much more the model loses on average than the true probabilities: (B, T, V)."""
    said, _ = softmax_forward(logits)
    ratio = np.maximum(probs, 1e-30) / np.maximum(said, 1e-30)
    return float((probs * np.log(ratio)).sum(axis=-1).mean())


def draw_data(sequences: int, seed: int) -> tuple[Array, Array, Array, tuple[Array, Array]]:
    """Return ids, their labels, their true probabilities, and 256 held-out ids with theirs."""
    rng = np.random.default_rng(1000 + seed)
    table = rng.dirichlet(np.full(V, 0.3), size=(V, V))
    held_out = draw_ids(table, rng, 256)[:, :-1]
    ids = draw_ids(table, rng, sequences)
    labels = np.eye(V)[ids[:, 1:]]
    ids = ids[:, :-1]
    return ids, labels, true_probs(table, ids), (held_out, true_probs(table, held_out))


@cache
def _teacher(sequences: int, seed: int) -> tuple[TransformerLM, Array]:
    ids, labels, _, held_out = draw_data(sequences, seed)
    return _train(TEACHER, seed, ids, labels, held_out)


def _run(arm: str, seed: int) -> Measured:
    sequences, kind = ARMS[arm]
    ids, labels, truth, held_out = draw_data(sequences, seed)
    train = partial(_train, STUDENT, 100 + seed, ids, held_out=held_out)
    if kind == ALONE:
        _, excess = _teacher(sequences, seed)
    elif kind in TAUGHT:
        taught_on, temperature = TAUGHT[kind]
        teacher, _ = _teacher(taught_on or sequences, seed)
        targets, _ = softmax_forward(teacher(ids) / temperature)
        _, excess = train(targets, temperature=temperature)
    elif kind == LONGER:
        _, excess = train(labels, steps=3 * STEPS)
    else:
        smoothed = (1 - SMOOTHING) * labels + SMOOTHING / V
        targets = {LABELS: labels, SMOOTHED: smoothed, TRUTH: truth}[kind]
        _, excess = train(targets)
    return {
        "excess": excess[-1],
        "lowest": excess.min(),
        "while it trains": excess.tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    def excess(sequences: int, kind: str) -> str:
        return f"{result.mean('excess', arm_of(sequences, kind)):.3f}"

    def is_less(kind: str, other: str, sequences: int = SOME) -> bool:
        return result.is_less("excess", arm_of(sequences, kind), arm_of(sequences, other))

    lowest = {kind: result.mean("lowest", arm_of(FEW, kind)) for kind in (LABELS, BY_TEACHER)}
    return [
        Finding(
            f"With {SOME} sequences, the student ends {excess(SOME, LABELS)} nats above the truth "
            f"if it learns from labels, and {excess(SOME, BY_TEACHER)} if it learns from a teacher "
            f"that has seen the same labels; with {MANY} sequences, {excess(MANY, LABELS)} and "
            f"{excess(MANY, BY_TEACHER)}.",
            is_less(BY_TEACHER, LABELS) and is_less(BY_TEACHER, LABELS, MANY),
        ),
        Finding(
            f"With {FEW} sequences the teacher learns them by heart ({excess(FEW, ALONE)}), and "
            f"passes that on: {excess(FEW, BY_TEACHER)}, against {excess(FEW, LABELS)} with "
            f"labels. Stopped at the best moment, both would have had about the same, "
            f"{lowest[BY_TEACHER]:.2f} and {lowest[LABELS]:.2f}.",
            result.mean("excess", arm_of(FEW, BY_TEACHER))
            > result.mean("excess", arm_of(FEW, LABELS))
            and abs(lowest[BY_TEACHER] - lowest[LABELS]) < 0.05,
        ),
        Finding(
            f"What the teacher knows decides: one that has seen {MANY} sequences leaves "
            f"{excess(SOME, BY_BETTER)} to a student of {SOME}, and the true probabilities "
            f"{excess(SOME, TRUTH)}.",
            is_less(BY_BETTER, BY_TEACHER) and is_less(TRUTH, BY_BETTER),
        ),
    ]


DISTILLATION = Experiment(
    "distillation",
    "Learning from a teacher",
    "A smaller model learns better from a larger one's probabilities than from labels, because "
    "they say more.",
    "C; Hinton et al. 2015; Sanh et al. 2019",
    "The next letter depends on the last two by a random table, so it is uncertain, and what can "
    "be known is known. The teacher, a language model of one block, has 4 heads and width 32; the "
    "student has 2 heads and width 16. Both see the same sequences again and again, "
    f"with the same learning rate, {RATE}, for {STEPS} steps. The student's targets are the labels "
    "(the letters that came) or the teacher's probabilities for the same places; at temperature 2, "
    "both models' logits are halved first. For comparison: smoothed labels, three times as many "
    "steps, a teacher that has seen four times the sequences, and the true probabilities.",
    tuple(ARMS),
    {
        "excess": "nats a letter above the loss of the true probabilities, on new sequences",
        "lowest": "the lowest of 15 while it trains, chosen with hindsight",
        "while it trains": f"nats a letter, every {STEPS // 15} steps (three times that if longer)",
    },
    _run,
    (
        Chart(
            "Excess loss after training", "excess", SIZES,
            {kind: [arm_of(n, kind) for n in SIZES] for kind in (LABELS, BY_TEACHER, ALONE)},
            "sequences to train on", "nats", log_x=True, log_y=True,
        ),
        Chart(
            f"Excess loss while the student trains on {SOME} sequences", "while it trains",
            [STEPS // 15 * (i + 1) for i in range(15)],
            {kind: arm_of(SOME, kind) for kind in (LABELS, SMOOTHED, *TAUGHT, TRUTH)},
            "step", "nats", log_y=True,
        ),
    ),
    _findings,
)  # fmt: skip
