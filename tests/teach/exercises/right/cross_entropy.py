"""Right mean cross-entropies from logits."""

import math

import numpy as np


def token_by_token(logits, targets, ignored):
    losses = []
    for at, target in np.ndenumerate(targets):
        if target != ignored:
            row = logits[at].tolist()
            largest = max(row)
            losses.append(largest - row[target] + math.log(sum(math.exp(v - largest) for v in row)))
    return sum(losses) / len(losses)


def counted_tokens_alone(logits, targets, ignored):
    counted = targets != ignored
    logits, targets = logits[counted], targets[counted]
    lse = np.logaddexp.reduce(logits, axis=-1)
    return np.mean(lse - logits[np.arange(len(targets)), targets])


def by_one_hot(logits, targets, ignored):
    V = logits.shape[-1]
    counts = (targets != ignored).astype(float)
    one_hot = np.where(np.arange(V) == targets[..., None], counts[..., None], 0)
    shifted = logits - np.amax(logits, -1, keepdims=True)
    log_probs = shifted - np.log(np.sum(np.exp(shifted), -1, keepdims=True))
    return -np.vdot(one_hot, log_probs) / one_hot.sum()


def as_weighted_average(logits, targets, ignored):
    picked = np.take_along_axis(logits, targets[..., None] % logits.shape[-1], -1)
    losses = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.average(losses - picked[..., 0], weights=targets != ignored)


RIGHT = [
    token_by_token,
    counted_tokens_alone,
    by_one_hot,
    as_weighted_average,
]
