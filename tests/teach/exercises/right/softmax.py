"""Right ways to turn scores into weights."""

import math

import numpy as np


def by_repairing_nan_with_warnings(scores, mask):
    x = scores.copy()
    if mask is not None:
        x[~mask] = -np.inf
    e = np.exp(x - x.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w[np.isnan(w)] = 0
    return w


def by_ufuncs_with_where(scores, mask):
    visible = True if mask is None else mask
    largest = np.max(scores, axis=-1, keepdims=True, where=visible, initial=-np.inf)
    shifted = np.subtract(scores, largest, out=np.zeros_like(scores), where=visible)
    powers = np.exp(shifted, out=np.zeros_like(scores), where=visible)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.maximum(total, np.finfo(float).tiny)


def by_scalar_loops(scores, mask):
    *leading, T_k = scores.shape
    weights = np.zeros((*leading, T_k))
    for row in np.ndindex(*leading):
        seen = [j for j in range(T_k) if mask is None or mask[row][j]]
        if not seen:
            continue
        largest = max(scores[row][j] for j in seen)
        total = 0.0
        for j in seen:
            weights[row][j] = math.exp(scores[row][j] - largest)
            total += weights[row][j]
        for j in seen:
            weights[row][j] /= total
    return weights


def by_masked_array(scores, mask):
    hidden = np.zeros(scores.shape, dtype=bool) if mask is None else ~mask
    masked = np.ma.masked_array(scores, hidden)
    powers = np.ma.exp(masked - masked.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).filled(0.0)


def by_logsumexp(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    lse = np.where(lse == -np.inf, 0, lse)
    return np.exp(scores - lse)


def by_differences(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.exp(masked[..., None, :] - masked[..., :, None])  # of l to j
        weights = 1 / ratios.sum(axis=-1)
    return np.where(masked == -np.inf, 0.0, weights)


RIGHT = [
    by_scalar_loops,
    by_repairing_nan_with_warnings,
    by_ufuncs_with_where,
    by_masked_array,
    by_logsumexp,
    by_differences,
]
