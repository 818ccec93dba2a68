"""A training loop."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Reaction, Task
from mha_numpy.teach.tasks.cross_entropy import cross_entropy
from mha_numpy.teach.tasks.cross_entropy_backward import cross_entropy_backward
from mha_numpy.teach.tasks.embedding_backward import embedding_backward
from mha_numpy.teach.tasks.linear_backward import through_linear


def shift(batch: Array) -> tuple[Array, Array]:
    """Return the tokens (B, T) that a model reads, and those that it must guess, of (B, T + 1)."""
    return batch[:, :-1], batch[:, 1:]


class TrainSteps(NamedTuple):
    """Params after some steps of gradient descent, and the loss before each of them."""

    table: Array  # (V, D)
    w: Array  # (D, V)
    b: Array  # (V,)
    losses: Array  # (N,)


def train_steps(
    tokens: Array, table: Array, w: Array, b: Array, learning_rate: float
) -> TrainSteps:
    """Train a small model to guess the next token, and return its params and losses.

    The model reads one token and guesses the next: ``logits = table[token] @ w + b``. In each batch
    it reads every token of a sequence except the last, and has to guess every one except the first.
    The loss is the mean over all these tokens of ``-log softmax(logits)[target]``. Take one step of
    gradient descent for each batch: ``param = param - learning_rate * gradient``. Do not change the
    arrays passed in.

    Parameters
    ----------
    tokens : (N, B, T + 1) int
        N batches of B sequences; ids from 0 to V - 1.
    table : (V, D)
    w : (D, V)
    b : (V,)
    learning_rate : float

    Returns
    -------
    table, w, b : arrays of these shapes
        The params after N steps.
    losses : (N,)
        The loss of each batch, before its step.
    """
    losses = []
    for batch in tokens:
        inputs, targets = shift(batch)
        x = table[inputs]
        logits = x @ w + b
        losses.append(cross_entropy(logits, targets, -100))
        d_logits = cross_entropy_backward(1.0, logits, targets, -100)
        d_x, d_w, d_b = through_linear(d_logits, x, w)
        d_table = embedding_backward(d_x, inputs, len(table))
        table = table - learning_rate * d_table
        w = w - learning_rate * d_w
        b = b - learning_rate * d_b
    return TrainSteps(table, w, b, np.array(losses))


def draw_steps(rng: np.random.Generator) -> list[Inputs]:
    """Draw batches for three steps: all sizes different; V = D, and some logits far apart.

    The first batch has every token except the last of the vocabulary, which never occurs.
    The last are for two steps with a single sequence each.
    """
    probes = []
    for (B, T, V, D), spread in (((2, 4, 6, 5), 1), ((3, 3, 4, 4), 8)):
        tokens = rng.integers(0, V - 1, (3, B, T + 1))
        tokens[0, :, :-1] = (np.arange(B * T) % (V - 1)).reshape(B, T)
        table, w, b = rng.normal(size=(V, D)), spread * rng.normal(size=(D, V)), rng.normal(size=V)
        probes.append({"tokens": tokens, "table": table, "w": w, "b": b, "learning_rate": 0.3})
    tokens, params = rng.integers(0, 5, (2, 1, 3)), normal(rng, table=(5, 3), w=(3, 5), b=(5,))
    return [*probes, {"tokens": tokens, **params, "learning_rate": 0.1}]


def _last_batch_changed(inputs: Inputs) -> Inputs:
    tokens = inputs["tokens"].copy()
    tokens[-1] = (tokens[-1] + 1) % len(inputs["table"])
    return {**inputs, "tokens": tokens}


MOVES = {
    name: f"        {name} = {name} - learning_rate * d_{name}\n" for name in ("table", "w", "b")
}

STEP = "".join(MOVES.values())

BACKWARD = "d_x, d_w, d_b = through_linear(d_logits, x, w)"

BEGIN = "losses = []\n"

RECORD = "losses.append(cross_entropy(logits, targets, -100))\n"

MISTAKES: list[Mistake | Again] = [
    Mistake("targets not shifted", "the targets are the inputs, so the model learns to repeat what it reads",
            "targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, :-1], batch[:, :-1]"}),
    Mistake("targets shifted twice", "the targets are shifted twice, so the target of token t is token t + 2, not t + 1",
            "inputs = tokens[:, :-1], targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, :-2], batch[:, 2:]"}),
    Mistake("targets shifted backward", "the target of each token is the token before it, not the one after it",
            "inputs = tokens[:, :-1], targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, 1:], batch[:, :-1]"}),
    Mistake("targets wrapped around", "the targets wrap around, so the target of the last token is the first token",
            "targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch, np.roll(batch, -1, axis=1)"}),
    Mistake("gradients not zeroed", "gradients are added to those of earlier steps", "start every step with gradients of 0",
            {BEGIN: BEGIN + "    sums = dict.fromkeys(('table', 'w', 'b'), 0.0)\n",
             STEP: "        sums = {name: sums[name] + d for name, d in zip(sums, (d_table, d_w, d_b), strict=True)}\n"
                   "        table, w, b = (param - learning_rate * d for param, d in zip((table, w, b), sums.values(), strict=True))\n"}),
    Mistake("step before backward", "the step is taken before backward, so it uses the gradients of the batch before",
            "forward, backward, then the step",
            {BEGIN: BEGIN + "    d_table = d_w = d_b = 0.0\n", RECORD: RECORD + STEP, STEP: ""}),
    Mistake("w moved before d_x", "w is moved before d_x is computed, so d_x goes back through the new w",
            "all gradients first, then the step",
            {BACKWARD: BACKWARD + "\n        w = w - learning_rate * d_w\n        d_x = d_logits @ w.T",
             MOVES["w"]: ""}),
    *(Mistake(f"{name} never moves", f"{name} never changes: its step is left out",
              f"{name} = {name} - learning_rate * d_{name}", {MOVES[name]: ""}) for name in ("table", "w")),
    Mistake("one batch for all steps", "every step uses the first batch", "one batch for each step",
            {"for batch in tokens:": "for batch in tokens[:1].repeat(len(tokens), axis=0):"}),
    Mistake("each step from the first params", "each step starts from the first params, so the earlier steps are lost",
            "set the params up before the loop",
            {BEGIN: BEGIN + "    first = table, w, b\n", "x = table[inputs]\n": "table, w, b = first\n        x = table[inputs]\n"}),
    Mistake("loss after the step", "the loss is measured after the step instead of before", "the loss of the forward pass that the gradients belong to",
            {"        " + RECORD: "", MOVES["b"]: MOVES["b"] + "        losses.append(cross_entropy(table[inputs] @ w + b, targets, -100))\n"}),
    Mistake("gradients divided by B again", "the gradients are divided by the batch size, although the mean has already divided by it",
            "the loss takes the mean, once", {BEGIN: BEGIN + "    learning_rate = learning_rate / tokens.shape[1]\n"}),
    Again("steps uphill", {"table - learning_rate": "table + learning_rate", "w - learning_rate": "w + learning_rate", "b - learning_rate": "b + learning_rate"}),
    Again("learning rate left out", {"learning_rate * d_table": "d_table", "learning_rate * d_w": "d_w", "learning_rate * d_b": "d_b"}),
]  # fmt: skip

TASK = Task(
    train_steps,
    place=440,
    difficulty=3,
    minutes=30,
    needs=("embedding-backward", "linear-backward", "cross-entropy-backward"),
    hints=Hints(
        where="Each batch takes forward, loss, backward from the last line to the first, and a "
        "step. The next batch uses the params after this step.",
        question="A sequence is 7 1 4. Which tokens does the model read, and which must it guess "
        "after each? Which params does the loss of the second batch depend on?",
        mistake="gradients not zeroed",
        fix="for each batch of tokens:\n"
        "inputs, targets = batch[:, :-1], batch[:, 1:]\n"
        "and, once all gradients are computed:\n"
        "table = table - learning_rate * d_table\n"
        "and the same for w and b",
    ),
    returns="tuple[Array, Array, Array, Array]",
    draw=draw_steps,
    laws=[
        Law(
            "the sum of b stays the same, because each token's d_logits sum to 0",
            lambda inputs, arrays: np.asarray(arrays["b"].sum() - inputs["b"].sum()),
        )
    ],
    reactions=[
        Reaction(
            "changing the last batch changes no loss except its own",
            _last_batch_changed,
            lambda _, arrays: arrays["losses"][:-1],
        )
    ],
    mistakes=MISTAKES,
)
