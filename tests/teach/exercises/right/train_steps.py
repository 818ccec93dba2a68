"""Right training loops for a model that guesses the next token."""

import math
from itertools import pairwise

import numpy as np


def row_by_row(tokens, table, w, b, learning_rate):
    """One token at a time, whose row of logits alone counts."""
    table, w, b, losses = table.copy(), w.copy(), b.copy(), []
    for batch in tokens:
        d_table, d_w, d_b, total = np.zeros_like(table), np.zeros_like(w), np.zeros_like(b), 0.0
        count = batch.shape[0] * (batch.shape[1] - 1)
        for sequence in batch.tolist():
            for token, after in pairwise(sequence):
                logits = table[token] @ w + b
                lse = logits.max() + math.log(sum(math.exp(v - logits.max()) for v in logits))
                total += lse - logits[after]
                d = np.exp(logits - lse) / count
                d[after] -= 1 / count
                d_table[token] += w @ d
                d_w += np.outer(table[token], d)
                d_b += d
        losses.append(total / count)
        table, w, b = (
            param - learning_rate * d for param, d in ((table, d_table), (w, d_w), (b, d_b))
        )
    return table, w, b, np.array(losses)


def by_counts_of_pairs(tokens, table, w, b, learning_rate):
    """Tokens that read the same have the same logits: count pairs, and compute once for each."""
    V, losses = len(b), []
    for batch in tokens:
        pairs = np.zeros((V, V))
        np.add.at(pairs, (batch[:, :-1], batch[:, 1:]), 1 / batch[:, 1:].size)
        logits = table @ w + b
        log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        losses.append(-(pairs * log_probs).sum())
        d_logits = pairs.sum(axis=1, keepdims=True) * np.exp(log_probs) - pairs
        grads = d_logits @ w.T, table.T @ d_logits, d_logits.sum(axis=0)
        table, w, b = (p - learning_rate * g for p, g in zip((table, w, b), grads, strict=True))
    return {"table": table, "w": w, "b": b, "losses": np.array(losses)}


def by_complex_step(tokens, table, w, b, learning_rate):
    params, tiny = np.concatenate([table.ravel(), w.ravel(), b]), 1e-30
    cuts = [table.size, table.size + w.size]

    def unpacked(params):
        first, second, third = np.split(params, cuts)
        return first.reshape(table.shape), second.reshape(w.shape), third

    def loss(params, batch):
        e, u, c = unpacked(params)
        logits = e[batch[:, :-1]] @ u + c
        logits = logits - logits.real.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return -np.take_along_axis(log_probs, batch[:, 1:, None], axis=-1).mean()

    losses = np.zeros(len(tokens))
    for n, batch in enumerate(tokens):
        losses[n] = loss(params + 0j, batch).real
        steps = 1j * tiny * np.eye(params.size)
        params = params - learning_rate * np.array(
            [loss(params + step, batch).imag / tiny for step in steps]
        )
    return *unpacked(params), losses


def with_objects(tokens, table, w, b, learning_rate):
    class Model:
        def __init__(self):
            self.params = {"table": table.copy(), "w": w.copy(), "b": b.copy()}
            self.zero_grad()

        def zero_grad(self):
            self.grads = {name: np.zeros_like(array) for name, array in self.params.items()}

        def loss(self, ids, targets):
            self.ids, self.x = ids, self.params["table"][ids]
            logits = self.x @ self.params["w"] + self.params["b"]
            powers = np.exp(logits - logits.max(-1, keepdims=True))
            self.probs = powers / powers.sum(-1, keepdims=True)
            self.one_hot = np.eye(len(b))[targets]
            return -np.log((self.probs * self.one_hot).sum(-1)).mean()

        def backward(self):
            d = (self.probs - self.one_hot) / self.ids.size
            self.grads["b"] += d.sum(axis=(0, 1))
            self.grads["w"] += np.tensordot(self.x, d, axes=([0, 1], [0, 1]))
            np.add.at(self.grads["table"], self.ids, d @ self.params["w"].T)

        def step(self):
            for name, param in self.params.items():
                param -= learning_rate * self.grads[name]

    model, losses = Model(), []
    for batch in tokens:
        model.zero_grad()
        losses.append(model.loss(batch[:, :-1], batch[:, 1:]))
        model.backward()
        model.step()
    return *model.params.values(), np.array(losses)


RIGHT = [
    row_by_row,
    by_counts_of_pairs,
    by_complex_step,
    with_objects,
]
