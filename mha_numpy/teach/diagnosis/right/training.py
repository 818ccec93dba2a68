"""Training: a step of Adam, and two loops around a model that guesses the next token."""

from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.right.blocks import embedding_backward
from mha_numpy.teach.diagnosis.right.layer_backward import through_linear
from mha_numpy.teach.diagnosis.right.loss import cross_entropy, cross_entropy_backward


class AdamStep(NamedTuple):
    """A param after a step, and what the next step needs."""

    param: Array
    mean: Array  # of the gradients, running
    square: Array  # of the gradients, running


def adam_step(
    param: Array, gradient: Array, mean: Array, square: Array, t: int, learning_rate: float,
    beta_1: float, beta_2: float, eps: float,
) -> AdamStep:  # fmt: skip
    """Take step t, counted from 1."""
    mean = beta_1 * mean + (1 - beta_1) * gradient
    square = beta_2 * square + (1 - beta_2) * gradient**2
    mean_hat = mean / (1 - beta_1**t)
    square_hat = square / (1 - beta_2**t)
    step = learning_rate * mean_hat / (np.sqrt(square_hat) + eps)
    return AdamStep(param - step, mean, square)


def shift(batch: Array) -> tuple[Array, Array]:
    """Return the tokens (B, T) that a model reads, and those that it is to guess, of (B, T + 1)."""
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
    """Take a step of gradient descent on each batch of tokens (N, B, T + 1)."""
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


class TrainWithAdam(NamedTuple):
    """Params after some steps of Adam, and the loss of what was held out."""

    table: Array  # (V, D)
    w: Array  # (D, V)
    loss: Array


def train_with_adam(
    tokens: Array, held_out: Array, keep: Array, p: float, table: Array, w: Array,
    learning_rate: float,
) -> TrainWithAdam:  # fmt: skip
    """Take a step of Adam, with dropout, on each batch; then evaluate what was held out."""
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
    """Let the numbers pass that are kept, enlarged; the same forward and backward."""
    return x * kept / (1 - p)
