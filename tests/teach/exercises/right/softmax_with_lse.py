"""Right ways to return the weights and the log of the normalising sum."""

import math

import numpy as np


def by_log_with_warnings(scores, mask):
    x = scores.copy()
    if mask is not None:
        x[~mask] = -np.inf
    m = x.max(-1)
    e = np.exp(x - m[..., None])
    s = e.sum(-1)
    lse = m + np.log(s)
    w = np.nan_to_num(e / s[..., None])
    return w, np.where(np.isnan(lse), -np.inf, lse)


def by_lse_first_and_dict(scores, mask):
    seen = np.ones_like(scores, dtype=bool) if mask is None else mask
    top = scores.max(axis=-1, where=seen, initial=-np.inf)
    top = np.where(seen.any(-1), top, 0)
    total = np.exp(np.minimum(scores - top[..., None], 0)).sum(axis=-1, where=seen)
    lse = np.log(total, out=np.full_like(total, -np.inf), where=total > 0) + top
    weights = np.exp(scores - lse[..., None], out=np.zeros_like(scores), where=seen)
    return {"lse": lse, "weights": weights}


def by_scalar_loops(scores, mask):
    *leading, T_k = scores.shape
    weights, lse = np.zeros(scores.shape), np.empty(leading)
    for row in np.ndindex(*leading):
        largest, total = -math.inf, 0.0
        for j in range(T_k):
            if mask is None or mask[row][j]:
                largest = max(largest, scores[row][j])
        for j in range(T_k):
            if mask is None or mask[row][j]:
                total += math.exp(scores[row][j] - largest)
        lse[row] = largest + math.log(total) if total > 0 else -math.inf
        for j in range(T_k):
            if mask is None or mask[row][j]:
                weights[row][j] = math.exp(scores[row][j] - lse[row])
    return weights, lse


def by_masked_array(scores, mask):
    hidden = np.ma.nomask if mask is None else ~mask
    masked = np.ma.array(scores, mask=hidden)
    largest = masked.max(axis=-1)
    powers = np.ma.exp(masked - np.ma.expand_dims(largest, -1))
    total = powers.sum(axis=-1)
    lse = np.ma.filled(largest + np.ma.log(total), -np.inf)
    return np.ma.filled(powers / np.ma.expand_dims(total, -1), 0.0), np.asarray(lse)


def as_views_of_one_array(scores, mask):
    T_k = scores.shape[-1]
    both = np.empty((*scores.shape[:-1], T_k + 1))
    weights, lse = both[..., :T_k], both[..., T_k]
    weights[...] = scores
    if mask is not None:
        weights[np.logical_not(mask)] = -np.inf
    lse[...] = np.logaddexp.reduce(weights, axis=-1)
    weights -= np.nan_to_num(lse, neginf=0)[..., None]
    np.exp(weights, out=weights)
    return weights, lse


RIGHT = [
    by_scalar_loops,
    by_log_with_warnings,
    by_lse_first_and_dict,
    by_masked_array,
    as_views_of_one_array,
]
