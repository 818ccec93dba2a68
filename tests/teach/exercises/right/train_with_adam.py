"""Right training loops with Adam and dropout."""

from itertools import pairwise

import numpy as np


def token_by_token(tokens, held_out, keep, p, table, w, learning_rate):
    params = [table.copy(), w.copy()]
    memory = [np.zeros((2, *param.shape)) for param in params]
    for n, batch in enumerate(tokens):
        grads = [np.zeros_like(param) for param in params]
        B, T = batch[:, 1:].shape
        for i in range(B):
            for t in range(T):
                factor = np.where(keep[n, i, t], 1 / (1 - p), 0)
                x = params[0][batch[i, t]] * factor
                logits = x @ params[1]
                d = np.exp(logits - np.logaddexp.reduce(logits))
                d[batch[i, t + 1]] -= 1
                grads[1] += np.outer(x, d / (B * T))
                grads[0][batch[i, t]] += params[1] @ d * factor / (B * T)
        for param, grad, (m, v) in zip(params, grads, memory, strict=True):
            m += 0.1 * (grad - m)
            v += 0.01 * (grad**2 - v)
            root = np.sqrt(v / (1 - 0.99 ** (n + 1)))
            param -= learning_rate * m / (1 - 0.9 ** (n + 1)) / (root + 1e-3)
    losses = [
        np.logaddexp.reduce(params[0][token] @ params[1]) - params[0][token] @ params[1][:, after]
        for row in held_out
        for token, after in pairwise(row)
    ]
    return *params, np.mean(losses)


def all_params_in_one_vector(tokens, held_out, keep, p, table, w, learning_rate):
    flat = np.append(table, w)
    mean, square = 0 * flat, 0 * flat

    def evaluate(flat, batch, factor):
        e, u = flat[: table.size].reshape(table.shape), flat[table.size :].reshape(w.shape)
        ids, targets = batch[:, :-1].ravel(), batch[:, 1:].ravel()
        x = e[ids] * factor
        logits = x @ u
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        one_hot = np.eye(len(table))[targets]
        d = (np.exp(log_probs) - one_hot) / len(ids)
        d_e = np.eye(len(table))[ids].T @ (d @ u.T * factor)
        return -(one_hot * log_probs).sum() / len(ids), np.append(d_e, x.T @ d)

    for t in range(1, len(tokens) + 1):
        factor = keep[t - 1].reshape(-1, table.shape[1]) / (1 - p)
        _, gradient = evaluate(flat, tokens[t - 1], factor)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        hats = mean / (1 - 0.9**t), square / (1 - 0.99**t)
        flat = flat - learning_rate * hats[0] / (np.sqrt(hats[1]) + 0.001)
    loss, _ = evaluate(flat, held_out, 1.0)
    return flat[: table.size].reshape(table.shape), flat[table.size :].reshape(w.shape), loss


def with_objects(tokens, held_out, keep, p, table, w, learning_rate):
    class Param:
        def __init__(self, value):
            self.value, self.m, self.v, self.t = value.copy(), 0.0, 0.0, 0

        def move(self, grad):
            self.t += 1  # each param counts its own steps
            self.m = 0.9 * self.m + (1 - 0.9) * grad
            self.v = 0.99 * self.v + (1 - 0.99) * grad * grad
            size = learning_rate * (1 - 0.99**self.t) ** 0.5 / (1 - 0.9**self.t)
            eps = 0.001 * (1 - 0.99**self.t) ** 0.5
            self.value -= size * self.m / (self.v**0.5 + eps)

    e, u = Param(table), Param(w)

    def forward(ids, targets, mask=None):
        x = e.value[ids] if mask is None else e.value[ids] * mask / (1 - p)
        logits = np.einsum("btd,dv->btv", x, u.value)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        return x, probs, -np.log(np.take_along_axis(probs, targets[..., None], -1)).mean()

    for batch, mask in zip(tokens, keep, strict=True):
        ids, targets = batch[:, :-1], batch[:, 1:]
        x, d, _ = forward(ids, targets, mask)
        np.put_along_axis(
            d, targets[..., None], np.take_along_axis(d, targets[..., None], -1) - 1, -1
        )
        d = d / targets.size
        d_x = np.where(mask, np.einsum("btv,dv->btd", d, u.value) / (1 - p), 0)
        d_e = np.stack([d_x[ids == row].sum(axis=0) for row in range(len(table))])
        u.move(np.einsum("btd,btv->dv", x, d))
        e.move(d_e)
    return e.value, u.value, forward(held_out[:, :-1], held_out[:, 1:])[2]


RIGHT = [
    token_by_token,
    all_params_in_one_vector,
    with_objects,
]
