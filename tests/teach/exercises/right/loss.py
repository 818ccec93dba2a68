"""Right solutions in unusual styles: loss."""

import numpy as np


def cross_entropy_as_weighted_average(logits, targets, ignored):
    picked = np.take_along_axis(logits, targets[..., None] % logits.shape[-1], -1)
    losses = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.average(losses - picked[..., 0], weights=targets != ignored)


def cross_entropy_backward_by_jacobians(d_loss, logits, targets, ignored):
    counted = targets != ignored
    one_hot = (targets[..., None] == np.arange(logits.shape[-1])) & counted[..., None]
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs = powers / powers.sum(axis=-1, keepdims=True)
    jacobian = np.eye(logits.shape[-1]) - probs[..., None, :]  # of log softmax
    return np.einsum("btv,btvw->btw", one_hot * -d_loss / counted.sum(), jacobian)
