"""Museum: losses that measured something else. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-shifted-twice",
    title="Find the bug: one shift too many",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Follow which target belongs to which input, from the batch to the loss.",
        question="A sequence is 7 1 4 8. Which token must the model guess when it reads 7? Follow "
        "it through both functions.",
        mistake="targets shifted twice",
        fix="in next_token_loss, leave the shift out:\nlogits, targets = logits, labels",
    ),
)
def train_steps(
    tokens: Array, table: Array, w: Array, b: Array, learning_rate: float
) -> tuple[Array, Array, Array, Array]:
    """Repair a training loop, in which two functions prepare the targets.

    In transformers the loss of a language model shifts its labels. JetMoe (until #37830), GIT
    (until #47395) and others had already shifted them before. Nothing fails and the loss falls, but
    the model learns to skip a token. The same bug is the reason why some guesses do not count.
    """

    def next_token_loss(logits: Array, labels: Array) -> tuple[float, Array]:
        """Return the loss, and the gradient of the logits."""
        d_logits = np.zeros_like(logits)
        logits, targets = logits[:, :-1], labels[:, 1:]
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        one_hot = np.eye(logits.shape[-1])[targets]
        d_logits[:, : targets.shape[1]] = (probs - one_hot) / targets.size
        return -np.log((probs * one_hot).sum(axis=-1)).mean(), d_logits

    losses = []
    for batch in tokens:
        inputs, labels = batch[:, :-1], batch[:, 1:]
        x = table[inputs]
        loss, d_logits = next_token_loss(x @ w + b, labels)
        losses.append(loss)
        d_table = np.zeros_like(table)
        np.add.at(d_table, inputs, d_logits @ w.T)
        d_w, d_b = np.einsum("btd,btv->dv", x, d_logits), d_logits.sum(axis=(0, 1))
        table = table - learning_rate * d_table
        w = w - learning_rate * d_w
        b = b - learning_rate * d_b
    return table, w, b, np.array(losses)


@exhibit(
    "museum-evaluated-with-dropout",
    title="Find the bug: a loss that was better than it looked",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look for the argument that says whether the model is in training, and its uses.",
        question="You evaluate the same model with p = 0 and with p = 0.5. Should its loss differ, "
        "and does it here?",
        mistake="dropout at evaluation",
        fix="if is_training: x = x * kept / (1 - p)",
    ),
)
def train_with_adam(
    tokens: Array,
    held_out: Array,
    keep: Array,
    p: float,
    table: Array,
    w: Array,
    learning_rate: float,
) -> tuple[Array, Array, Array]:
    """Repair a training loop with dropout, which returns the params and the held-out loss.

    nanoGPT passed p to PyTorch's scaled_dot_product_attention whether it was training or not, until
    #240 (2023). Unlike a layer, a function does not know whether it is in training. A user saw the
    loss of GPT-2 rise from 3.09 to 3.49 when only p changed (#245).
    """
    B, T = held_out.shape[0], held_out.shape[1] - 1
    means = [np.zeros_like(table), np.zeros_like(w)]
    squares = [np.zeros_like(table), np.zeros_like(w)]

    def forward(batch: Array, kept: Array, is_training: bool) -> tuple[Array, Array, Array]:
        """Return the loss, and in training the gradients of table and w."""
        inputs, targets = batch[:, :-1], batch[:, 1:]
        x = table[inputs]
        x = x * kept / (1 - p)
        logits = x @ w
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        one_hot = np.eye(len(table))[targets]
        loss = -np.log((probs * one_hot).sum(axis=-1)).mean()
        d_table, d_w = np.zeros_like(table), np.zeros_like(w)
        if is_training:
            d_logits = (probs - one_hot) / (B * T)
            np.add.at(d_table, inputs, d_logits @ w.T * kept / (1 - p))
            d_w += np.einsum("btd,btv->dv", x, d_logits)
        return loss, d_table, d_w

    for t, batch in enumerate(tokens, start=1):
        moved = []
        _, *gradients = forward(batch, keep[t - 1], is_training=True)
        for i, (param, gradient) in enumerate(zip((table, w), gradients, strict=True)):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.99 * squares[i] + 0.01 * gradient**2
            root = np.sqrt(squares[i] / (1 - 0.99**t))
            moved.append(param - learning_rate * means[i] / (1 - 0.9**t) / (root + 0.001))
        table, w = moved
    loss, _, _ = forward(held_out, keep[-1], is_training=False)
    return table, w, np.asarray(loss)
