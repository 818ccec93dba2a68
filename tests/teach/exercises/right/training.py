"""Right solutions in unusual styles: training."""

import numpy as np


def adam_step_by_a_loop_over_both_means(
    param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps
):
    kept, corrected = [], []
    for old, beta, power in ((mean, beta_1, 1), (square, beta_2, 2)):
        kept.append(np.average([old, gradient**power], axis=0, weights=[beta, 1 - beta]))
        corrected.append(kept[-1] / -np.expm1(t * np.log(beta)))
    direction = corrected[0] / (corrected[1] ** 0.5 + eps)
    return {"param": param - learning_rate * direction, "mean": kept[0], "square": kept[1]}


def train_steps_by_complex_step(tokens, table, w, b, learning_rate):
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


def train_with_adam_all_params_in_one_vector(tokens, held_out, keep, p, table, w, learning_rate):
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
