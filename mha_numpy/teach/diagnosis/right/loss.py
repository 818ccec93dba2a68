"""Cross-entropy from logits, and back."""

import numpy as np

from mha_numpy.dtypes import Array


def cross_entropy(logits: Array, targets: Array, ignored: int) -> Array:
    """Take the mean of -log softmax(logits)[target] over the tokens whose targets count."""
    log_probs = log_softmax(logits)
    entries = np.where(targets == ignored, 0, targets)
    losses = -np.take_along_axis(log_probs, entries[..., None], axis=-1)[..., 0]
    return np.asarray((losses * share_of_each(targets, ignored)).sum())


def cross_entropy_backward(d_loss: float, logits: Array, targets: Array, ignored: int) -> Array:
    """Pull back to the logits (B, T, V): what softmax says, less what was asked for."""
    probs = np.exp(log_softmax(logits))
    asked = targets[..., None] == np.arange(probs.shape[-1])
    d_losses = d_loss * share_of_each(targets, ignored)
    return d_losses[..., None] * (probs - asked)


def log_softmax(logits: Array) -> Array:
    """Return the log of softmax along the last axis."""
    below = logits - logits.max(axis=-1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=-1, keepdims=True))


def share_of_each(targets: Array, ignored: int) -> Array:
    """Return how much each token (B, T) has of the mean: nothing where its target is ignored."""
    counted = targets != ignored
    return counted / counted.sum()
