"""Right gradients of the mean cross-entropy."""

import math

import numpy as np


def token_by_token(d_loss, logits, targets, ignored):
    d_logits, count = np.zeros(logits.shape), int(np.count_nonzero(targets != ignored))
    for at, target in np.ndenumerate(targets):
        if target == ignored:
            continue
        largest = max(logits[at])
        powers = [math.exp(v - largest) for v in logits[at]]
        for entry, power in enumerate(powers):
            d_logits[(*at, entry)] = d_loss / count * (power / sum(powers) - (entry == target))
    return d_logits


def subtract_at_rows_and_targets(d_loss, logits, targets, ignored):
    flat, right = logits.reshape(-1, logits.shape[-1]), targets.ravel()
    counted = np.flatnonzero(right != ignored)
    powers = np.exp(flat - flat.max(axis=1, keepdims=True))
    d_logits = powers / powers.sum(axis=1, keepdims=True)
    d_logits[counted, right[counted]] -= 1
    d_logits[right == ignored] = 0
    return (d_logits * d_loss / len(counted)).reshape(logits.shape)


def through_log_softmax(d_loss, logits, targets, ignored):
    counted = targets != ignored
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1)[..., None]
    d_log_probs = np.zeros_like(logits)
    rows = np.where(counted, targets, 0)[..., None]
    np.put_along_axis(d_log_probs, rows, -(counted * d_loss / counted.sum())[..., None], axis=-1)
    return d_log_probs - np.exp(log_probs) * d_log_probs.sum(axis=-1, keepdims=True)


def by_jacobians(d_loss, logits, targets, ignored):
    counted = targets != ignored
    one_hot = (targets[..., None] == np.arange(logits.shape[-1])) & counted[..., None]
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs = powers / powers.sum(axis=-1, keepdims=True)
    jacobian = np.eye(logits.shape[-1]) - probs[..., None, :]  # of log softmax
    return np.einsum("btv,btvw->btw", one_hot * -d_loss / counted.sum(), jacobian)


RIGHT = [
    token_by_token,
    subtract_at_rows_and_targets,
    through_log_softmax,
    by_jacobians,
]
