"""Museum: training loops whose second step is wrong. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-not-zeroed",
    title="Find the bug: the loss falls, then rises",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Look at the gradients at the beginning of the second step.",
        question="The gradient of a param is 1 in both steps. Which gradient moves it in the "
        "second step?",
        mistake="gradients not zeroed",
        fix="within the loop:\n"
        "d_table, d_w, d_b = np.zeros_like(table), np.zeros_like(w), np.zeros_like(b)",
    ),
)
def train_steps(
    tokens: Array, table: Array, w: Array, b: Array, learning_rate: float
) -> tuple[Array, Array, Array, Array]:
    """Repair a training loop, which returns the params after all steps, and the losses.

    The first two examples of IBM's aihwkit had this bug (issue #446, 2022): the loss fell for five
    steps and rose for five. A test of one step does not find the bug.
    """
    table, w, b = table.copy(), w.copy(), b.copy()
    d_table, d_w, d_b = np.zeros_like(table), np.zeros_like(w), np.zeros_like(b)
    losses = []
    for batch in tokens:
        inputs, targets = batch[:, :-1].ravel(), batch[:, 1:].ravel()
        token = np.arange(targets.size)

        # forward
        x = table[inputs]
        logits = x @ w + b
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        losses.append(-np.log(probs[token, targets]).mean())

        # backward
        d_logits = probs
        d_logits[token, targets] -= 1
        d_logits /= targets.size
        d_w += x.T @ d_logits
        d_b += d_logits.sum(axis=0)
        np.add.at(d_table, inputs, d_logits @ w.T)

        # step
        table -= learning_rate * d_table
        w -= learning_rate * d_w
        b -= learning_rate * d_b
    return table, w, b, np.array(losses)


@exhibit(
    "museum-step-counter",
    title="Find the bug: a counter that is too fast",
    difficulty=2,
    minutes=15,
    hints=Hints(
        where="Write down t for every call of step.",
        question="In the first step, what is t when the table moves, and what is it when w moves? "
        "What would t be for the tenth param?",
        mistake="t counted for each param",
        fix="at the top of the loop over batches, without counting in step:\nt = n + 1",
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
    """Repair a training loop with Adam, which returns the params and the held-out loss.

    Flashlight's Adam (issue #143, 2020) and that of DiffSharp (#292, 2021) counted their steps like
    this. With one param it is right, and after many steps there is hardly a difference.
    """
    params = {"table": table, "w": w}
    means = {name: np.zeros_like(param) for name, param in params.items()}
    squares = {name: np.zeros_like(param) for name, param in params.items()}
    t = 0

    def forward(x: Array, targets: Array) -> tuple[Array, Array]:
        """Return the loss, and the gradient of the logits."""
        logits = x @ params["w"]
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        one_hot = np.eye(len(table))[targets]
        return -np.log((probs * one_hot).sum(axis=-1)).mean(), (probs - one_hot) / targets.size

    def step(name: str, gradient: Array) -> None:
        """Move a param."""
        nonlocal t
        t += 1
        means[name] = 0.9 * means[name] + 0.1 * gradient
        squares[name] = 0.99 * squares[name] + 0.01 * gradient**2
        mean_hat, square_hat = means[name] / (1 - 0.9**t), squares[name] / (1 - 0.99**t)
        params[name] = params[name] - learning_rate * mean_hat / (np.sqrt(square_hat) + 0.001)

    for n, batch in enumerate(tokens):
        inputs, targets = batch[:, :-1], batch[:, 1:]
        x = params["table"][inputs] * keep[n] / (1 - p)
        _, d_logits = forward(x, targets)
        d_x = d_logits @ params["w"].T
        d_w = np.einsum("btd,btv->dv", x, d_logits)
        d_table = np.zeros_like(table)
        np.add.at(d_table, inputs, d_x * keep[n] / (1 - p))
        step("table", d_table)
        step("w", d_w)
    loss, _ = forward(params["table"][held_out[:, :-1]], held_out[:, 1:])
    return params["table"], params["w"], np.asarray(loss)
