"""Right solutions in styles out of the ordinary; a name begins with that of the piece."""

import numpy as np


def softmax(scores, mask=True):
    """Return weights, all 0 in a row that sees nothing."""
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    powers = np.exp(masked - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)
