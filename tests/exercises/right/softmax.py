"""Right ways to turn scores into weights."""

import math
from functools import partial

import numpy as np


def by_where(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    powers = np.exp(masked - largest)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1.0, total)


def by_repairing_nan(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(masked - np.max(masked, axis=-1, keepdims=True))
        weights = powers / np.sum(powers, axis=-1, keepdims=True)
    return np.nan_to_num(weights)


def by_repairing_nan_with_warnings(scores, mask):
    x = scores.copy()
    if mask is not None:
        x[~mask] = -np.inf
    e = np.exp(x - x.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w[np.isnan(w)] = 0
    return w


def by_divide_where(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.zeros_like(scores)
    np.exp(scores - largest, out=powers, where=largest > -np.inf)
    total = powers.sum(axis=-1, keepdims=True)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


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


def by_rows_of_visible_scores(scores, mask):
    weights = np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        visible = slice(None) if mask is None else mask[row]
        seen = scores[row][visible]
        if seen.size:
            powers = np.exp(seen - seen.max())
            weights[row][visible] = powers / powers.sum()
    return weights


def by_row_lists(scores, mask):
    T_k = scores.shape[-1]
    masks = np.ones_like(scores, dtype=bool) if mask is None else mask

    def softmax_row(row, seen):
        if not any(seen):
            return [0.0] * T_k
        largest = max(s for s, m in zip(row, seen, strict=True) if m)
        powers = [math.exp(s - largest) if m else 0.0 for s, m in zip(row, seen, strict=True)]
        return [p / sum(powers) for p in powers]

    pairs = zip(scores.reshape(-1, T_k), masks.reshape(-1, T_k), strict=True)
    return np.array([softmax_row(row, seen) for row, seen in pairs]).reshape(scores.shape)


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


def by_hiding_behind_the_smallest(scores, mask):
    visible = 1.0 if mask is None else mask
    smallest = scores.min(axis=-1, keepdims=True)
    x = scores if mask is None else np.where(mask, scores, smallest)
    powers = np.exp(x - x.max(axis=-1, keepdims=True)) * visible
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total, total, 1)


def by_exp2(scores, mask):
    bits = scores * math.log2(math.e)
    bits = bits if mask is None else np.where(mask, bits, -np.inf)
    largest = np.fmax.reduce(bits, axis=-1, keepdims=True)
    powers = np.exp2(bits - np.where(largest == -np.inf, 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / (total + (total == 0))


def by_power(scores, mask):
    visible = np.full(scores.shape, True) if mask is None else mask
    largest = np.where(visible, scores, -1e300).max(axis=-1, keepdims=True)
    powers = np.e ** np.minimum(scores - largest, 0) * visible
    return powers / np.where(visible.any(axis=-1, keepdims=True), powers.sum(-1, keepdims=True), 1)


def by_sorting(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    order = np.argsort(masked, axis=-1)
    rising = np.take_along_axis(masked, order, axis=-1)
    sees_any = rising[..., -1:] > -np.inf
    powers = np.exp(rising - np.where(sees_any, rising[..., -1:], 0))
    total = np.cumsum(powers, axis=-1)[..., -1:]
    weights = np.empty_like(powers)
    np.put_along_axis(weights, order, powers / np.where(sees_any, total, 1), axis=-1)
    return weights


def by_longdouble(scores, mask):
    wide = np.asarray(scores, dtype=np.longdouble)
    if mask is not None:
        wide = np.where(mask, wide, -np.inf)
    largest = wide.max(axis=-1, keepdims=True)
    largest[np.isneginf(largest)] = 0
    powers = np.exp(wide - largest)
    total = powers.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    return (powers / total).astype(np.float64)


def by_calling_itself_without_none(scores, mask):
    if mask is None:
        return by_calling_itself_without_none(scores, np.ones_like(scores, dtype=bool))
    masked = np.where(mask, scores, -np.inf)
    sees_any = mask.any(axis=-1, keepdims=True)
    masked = np.where(sees_any, masked, 0.0)
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return sees_any * powers / powers.sum(axis=-1, keepdims=True)


def by_apply_along_axis(scores, mask):
    def softmax_row(row):
        if np.all(row == -np.inf):
            return np.zeros_like(row)
        powers = np.exp(row - row.max())
        return powers / powers.sum()

    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    return np.apply_along_axis(softmax_row, -1, masked)


def by_vectorize(scores, mask):
    def softmax_row(row, visible):
        if not visible.any():
            return 0.0 * row
        powers = np.where(visible, np.exp(np.minimum(row - row[visible].max(), 0)), 0)
        return powers / powers.sum()

    mask = np.True_ if mask is None else mask
    mask = np.broadcast_to(mask, scores.shape)
    return np.vectorize(softmax_row, signature="(k),(k)->(k)")(scores, mask)


def by_list_comprehensions(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, bool)

    def softmax_matrix(s, m):
        s = np.where(m, s, -np.inf)
        top = s.max(axis=1, initial=-1e290)
        p = np.exp(s - top[:, None])
        n = p.sum(axis=1)[:, None]
        return p / np.where(n > 0, n, 1)

    matrices = (a.reshape(-1, *a.shape[-2:]) for a in (scores, mask))
    weights = [softmax_matrix(s, m) for s, m in zip(*matrices, strict=True)]
    return np.stack(weights).reshape(scores.shape)


def by_at(scores, mask):
    T_k = scores.shape[-1]
    flat = scores.reshape(-1, T_k)
    visible = np.ones_like(flat, bool) if mask is None else mask.reshape(-1, T_k)
    rows, columns = np.nonzero(visible)
    largest, total = np.full(len(flat), -np.inf), np.zeros(len(flat))
    np.maximum.at(largest, rows, flat[rows, columns])
    powers = np.exp(flat[rows, columns] - largest[rows])
    np.add.at(total, rows, powers)
    weights = np.zeros(flat.shape)
    weights[rows, columns] = powers / total[rows]
    return weights.reshape(scores.shape)


def by_bincount(scores, mask):
    visible = np.full_like(scores, True, dtype=bool) if mask is None else mask
    row_of = np.arange(scores.size // scores.shape[-1]).reshape(*scores.shape[:-1], 1)
    row_of = np.broadcast_to(row_of, scores.shape)[visible]
    top = scores.max(axis=-1, where=visible, initial=-np.inf)
    powers = np.exp(scores[visible] - top.ravel()[row_of])
    weights = np.zeros_like(scores)
    weights[visible] = powers / np.bincount(row_of, weights=powers)[row_of]
    return weights


def by_differences(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.exp(masked[..., None, :] - masked[..., :, None])  # of l to j
        weights = 1 / ratios.sum(axis=-1)
    return np.where(masked == -np.inf, 0.0, weights)


def by_lowest_float(scores, mask):
    lowest = np.finfo(scores.dtype).min
    hidden = False if mask is None else ~mask
    x = np.where(hidden, lowest / 2, scores)
    x = x - x.max(axis=-1, keepdims=True)
    p = np.exp(x)
    p = p / p.sum(axis=-1, keepdims=True)
    return np.where(hidden, 0, p)


def by_additive_mask(scores, mask):
    if mask is not None:
        additive = np.zeros(mask.shape)
        additive[~mask] = -np.inf
        scores = scores + additive
    top = np.nan_to_num(scores.max(axis=-1), neginf=0.0)[..., None]
    weights = np.exp(scores - top)
    with np.errstate(all="ignore"):
        weights /= weights.sum(axis=-1, keepdims=True)
    return np.nan_to_num(weights, copy=False)


def by_in_place_steps(scores, mask):
    weights = np.array(scores)
    if mask is not None:
        np.putmask(weights, ~mask, -np.inf)
    weights -= np.maximum(weights.max(axis=-1, keepdims=True), -1e200)
    np.exp(weights, out=weights)
    total = np.einsum("...k->...", weights)[..., None]
    weights /= np.where(total, total, 1)
    return weights


def by_keys_first(scores, mask):
    by_key = np.moveaxis(scores, -1, 0)
    seen = np.ones(by_key.shape, bool) if mask is None else np.moveaxis(mask, -1, 0)
    top = np.where(seen, by_key, -np.inf).max(axis=0)
    powers = np.where(seen, np.exp(np.where(seen, by_key - top, 0)), 0)
    total = sum(powers)
    powers[:, total > 0] /= total[total > 0]
    return np.moveaxis(powers, 0, -1)


def in_fortran_order(scores, mask):
    weights = np.zeros(scores.shape, order="F")
    for i in range(scores.shape[-2]):
        row = scores[..., i, :]
        seen = np.ones_like(row, dtype=bool) if mask is None else mask[..., i, :]
        row = np.where(seen, row, -np.inf)
        top = row.max(axis=-1, keepdims=True)
        powers = np.where(seen, np.exp(row - np.where(top > -np.inf, top, 0)), 0)
        weights[..., i, :] = powers / np.clip(powers.sum(axis=-1, keepdims=True), 1e-300, None)
    return weights


class Softmax:
    def __init__(self, axis=-1):
        self.axis = axis

    def shift(self, x):
        top = x.max(axis=self.axis, keepdims=True)
        return x - np.where(np.isinf(top), 0, top)

    def __call__(self, scores, mask=None):
        x = scores if mask is None else np.where(mask, scores, -np.inf)
        powers = np.exp(self.shift(x))
        total = powers.sum(axis=self.axis, keepdims=True)
        return np.where(total > 0, powers / np.where(total > 0, total, 1), 0)


def _softmax(scores, mask, *, hidden, log_of_sum):
    x = scores if mask is None else np.where(mask, scores, hidden)
    lse = log_of_sum(x)
    lse[lse == -np.inf] = 0
    return np.exp(x - lse)


by_class = Softmax()
by_partial = partial(
    _softmax, hidden=-np.inf, log_of_sum=partial(np.logaddexp.reduce, axis=-1, keepdims=True)
)

RIGHT = [
    by_where, by_repairing_nan, by_repairing_nan_with_warnings, by_divide_where,
    by_ufuncs_with_where, by_scalar_loops, by_rows_of_visible_scores, by_row_lists, by_masked_array,
    by_logsumexp, by_hiding_behind_the_smallest, by_exp2, by_power, by_sorting,
    by_longdouble, by_calling_itself_without_none, by_apply_along_axis, by_vectorize,
    by_list_comprehensions, by_at, by_bincount, by_differences, by_lowest_float, by_additive_mask,
    by_in_place_steps, by_keys_first, in_fortran_order, by_class, by_partial,
]  # fmt: skip
