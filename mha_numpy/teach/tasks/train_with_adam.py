"""A training loop with Adam and dropout."""

from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Arrays, Hints, Inputs, Mistake, Reaction, Task
from mha_numpy.teach.tasks.adam_step import adam_step
from mha_numpy.teach.tasks.cross_entropy import cross_entropy
from mha_numpy.teach.tasks.cross_entropy_backward import cross_entropy_backward
from mha_numpy.teach.tasks.embedding_backward import embedding_backward
from mha_numpy.teach.tasks.linear_backward import through_linear
from mha_numpy.teach.tasks.train_steps import draw_steps, shift


class TrainWithAdam(NamedTuple):
    """Params after some steps of Adam, and the loss on the held-out sequences."""

    table: Array  # (V, D)
    w: Array  # (D, V)
    loss: Array


def train_with_adam(
    tokens: Array,
    held_out: Array,
    keep: Array,
    p: float,
    table: Array,
    w: Array,
    learning_rate: float,
) -> TrainWithAdam:
    """Train a small model with Adam and dropout, and evaluate it on held-out sequences.

    The model reads one token and guesses the next: ``logits = dropout(table[token]) @ w``. In each
    batch it reads every token of a sequence except the last, and has to guess every one except the
    first. The loss is the mean over all these tokens of ``-log softmax(logits)[target]``. Dropout
    is ``x * keep[n] / (1 - p)`` in step n, and only in training. Take one step of Adam for each
    batch, with beta_1 = 0.9, beta_2 = 0.99 and eps = 0.001. Do not change the arrays passed in.

    Parameters
    ----------
    tokens : (N, B, T + 1) int
        N batches of B sequences; ids from 0 to V - 1.
    held_out : (B, T + 1) int
        Sequences that the model is evaluated on, after the last step.
    keep : (N, B, T, D) bool
        True where a feature is kept in training.
    p : float
        The share of features that is dropped.
    table : (V, D)
    w : (D, V)
    learning_rate : float

    Returns
    -------
    table, w : arrays of these shapes
        The params after N steps.
    loss : a number
        The loss on the held-out sequences, with these params and without dropout.
    """
    table_mean, table_square = np.zeros_like(table), np.zeros_like(table)
    w_mean, w_square = np.zeros_like(w), np.zeros_like(w)
    move = partial(adam_step, learning_rate=learning_rate, beta_1=0.9, beta_2=0.99, eps=0.001)
    for t, (batch, kept) in enumerate(zip(tokens, keep, strict=True), start=1):
        inputs, targets = shift(batch)
        x = drop(table[inputs], kept, p)
        d_logits = cross_entropy_backward(1.0, x @ w, targets, -100)
        d_x, d_w, _ = through_linear(d_logits, x, w)
        d_table = embedding_backward(drop(d_x, kept, p), inputs, len(table))
        table, table_mean, table_square = move(table, d_table, table_mean, table_square, t)
        w, w_mean, w_square = move(w, d_w, w_mean, w_square, t)
    inputs, targets = shift(held_out)
    return TrainWithAdam(table, w, cross_entropy(table[inputs] @ w, targets, -100))


def drop(x: Array, kept: Array, p: float) -> Array:
    """Keep some numbers, enlarged, and drop the others; the same forward and backward."""
    return x * kept / (1 - p)


def _draw_with_adam(rng: np.random.Generator) -> list[Inputs]:
    """Draw the same, with held-out sequences, and the kept features: at first, all of them."""
    probes = []
    for inputs, p in zip(draw_steps(rng), (0.25, 0.5, 0.4), strict=True):
        tokens, table, w, _, _ = inputs.values()
        N, B, T = tokens.shape
        keep = rng.random((N, B, T - 1, table.shape[-1])) >= p
        keep[0] = True
        held_out = rng.integers(0, len(table) - 1, (B, T))
        probes.append(
            {"tokens": tokens, "held_out": held_out, "keep": keep, "p": p, "table": table, "w": w,
             "learning_rate": 0.1}
        )  # fmt: skip
    return probes


def _held_out_changed(inputs: Inputs) -> Inputs:
    return {**inputs, "held_out": (inputs["held_out"] + 1) % len(inputs["table"])}


def _trained(_: Inputs, arrays: Arrays) -> np.ndarray:
    """Return all params in a row."""
    return np.concatenate([arrays["table"].ravel(), arrays["w"].ravel()])


LOOP = "enumerate(zip(tokens, keep, strict=True), start=1):\n"

EVALUATED = "cross_entropy(table[inputs] @ w, targets, -100)"

MISTAKES = [
    Mistake("t starts at 0", "t is 0 in the first step, so the correction divides by 0", "count from 1",
            {LOOP: LOOP.replace("start=1", "start=0")}),
    Mistake("t counted for each param", "t grows with each param instead of each step", "all params of a step have the same t",
            {"table_mean, table_square, t)": "table_mean, table_square, 2 * t - 1)", "w_mean, w_square, t)": "w_mean, w_square, 2 * t)"}),
    Mistake("Adam reset in every step", "the running means start at 0 again in every step", "keep them from step to step",
            {LOOP: LOOP + "        table_mean = table_square = np.zeros_like(table)\n        w_mean = w_square = np.zeros_like(w)\n"}),
    Mistake("dropout at evaluation", "dropout is left on at evaluation", "no dropout in the loss of the held-out sequences",
            {EVALUATED: EVALUATED.replace("table[inputs]", "drop(table[inputs], keep[-1], p)")}),
    Mistake("scaled by 1 - p at evaluation", "features are divided by 1 - p in training and multiplied by it at evaluation", "no factor at evaluation",
            {EVALUATED: EVALUATED.replace("table[inputs]", "(1 - p) * table[inputs]")}),
    Mistake("dropout left out in training", "there is no dropout in training", "x * keep / (1 - p)", {"x * kept / (1 - p)": "x"}),
    Mistake("kept features not enlarged", "kept features are not divided by 1 - p", "x * keep / (1 - p)", {"x * kept / (1 - p)": "x * kept"}),
    Mistake("kept features divided by p", "kept features are divided by p, the share that was dropped", "x * keep / (1 - p)",
            {"x * kept / (1 - p)": "x * kept / p"}),
    Mistake("dropped features kept", "features to be dropped are kept, and the others are dropped", "keep is True where a feature stays",
            {"x * kept / (1 - p)": "x * ~kept / (1 - p)"}),
    Mistake("dropout not undone backward", "the gradient skips dropout on its way back", "d_x * keep / (1 - p)",
            {"drop(d_x, kept, p)": "d_x"}),
    Mistake("one dropout for all steps", "every step drops the same features", "keep[n] in step n",
            {LOOP: LOOP + "        kept = keep[0]\n"}),
    Mistake("training batch evaluated", "the loss is that of the last training batch", "measure on the held-out sequences",
            {"shift(held_out)": "shift(tokens[-1])"}),
    Mistake("first params evaluated", "the loss is that of the params before training", "measure with the trained params",
            {"    move = ": "    first_table, first_w = table, w\n    move = ",
             EVALUATED: EVALUATED.replace("table", "first_table").replace("@ w", "@ first_w")}),
    Mistake("d_w without dropout", "the gradient of w is taken with the rows of the table before dropout",
            "use the x that went through w",
            {"d_x, d_w, _ = through_linear(d_logits, x, w)": "d_x, _, _ = through_linear(d_logits, x, w)\n        _, d_w, _ = through_linear(d_logits, table[inputs], w)"}),
    Mistake("dropout twice in d_w", "dropout is applied to x once more in the gradient of w",
            "x was dropped already",
            {"d_x, d_w, _ = through_linear(d_logits, x, w)": "d_x, _, _ = through_linear(d_logits, x, w)\n        _, d_w, _ = through_linear(d_logits, drop(x, kept, p), w)"}),
    Mistake("eps of 1e-8", "eps is 1e-8, the usual one, instead of 0.001",
            "eps = 0.001",
            {"eps=0.001": "eps=1e-8"}),
    Mistake("beta_2 of 0.999", "beta_2 is 0.999, the usual one, instead of 0.99",
            "beta_2 = 0.99",
            {"beta_2=0.99": "beta_2=0.999"}),
]  # fmt: skip

TASK = Task(
    train_with_adam,
    place=450,
    difficulty=4,
    minutes=30,
    needs=("train-steps", "adam-step"),
    hints=Hints(
        where="Three things differ from the previous loop: what you keep for each param from step "
        "to step, where dropout comes in, forward and backward, and that evaluation has no "
        "dropout.",
        question="In step 3, how often has each param been moved? What is t for the table, and "
        "for w? And what is dropped when you evaluate the held-out sequences?",
        mistake="dropout not undone backward",
        fix="x = table[inputs] * keep[n] / (1 - p); ...; d_embedded = d_x * keep[n] / (1 - p)\n"
        "then adam_step for the table and for w, in which t starts at 1:\n"
        "t = n + 1\n"
        "at the end, without dropout:\n"
        "table[inputs] @ w",
    ),
    returns="tuple[Array, Array, Array]",
    draw=_draw_with_adam,
    reactions=[
        Reaction("changing the held-out sequences changes no param", _held_out_changed, _trained)
    ],
    mistakes=MISTAKES,
)
