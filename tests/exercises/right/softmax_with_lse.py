"""Right ways to return the weights and the log of the normalising sum."""

import math
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np


def by_where(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    safe = np.where(largest == -np.inf, 0, largest)
    powers = np.exp(masked - safe)
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (safe + np.log(total))[..., 0]
    return powers / np.where(total == 0, 1, total), lse


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


def by_logaddexp(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1)
    sees_any = np.isfinite(lse)[..., None]
    weights = np.exp(np.where(sees_any, scores - np.where(sees_any, lse[..., None], 0), -np.inf))
    return [weights, lse]


def by_hiding_behind_the_smallest(scores, mask):
    mask = np.ones(scores.shape, bool) if mask is None else mask
    x = np.where(mask, scores, scores.min(axis=-1, keepdims=True))
    largest = x.max(axis=-1)
    shifted = np.where(mask, x - largest[..., None], -np.inf)
    log_sum = np.logaddexp.reduce(shifted, axis=-1)
    safe = np.where(np.isinf(log_sum), 0, log_sum)
    return {"weights": np.exp(shifted - safe[..., None]), "lse": largest + log_sum}


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


def by_visible_rows(scores, mask):
    weights = np.zeros_like(scores)
    lse = np.full(scores.shape[:-1], -np.inf)
    for row in np.ndindex(lse.shape):
        seen = np.arange(scores.shape[-1]) if mask is None else np.flatnonzero(mask[row])
        if len(seen) == 0:
            continue
        s = scores[row][seen]
        lse[row] = s.max() + np.log(np.exp(s - s.max()).sum())
        weights[row][seen] = np.exp(s - lse[row])
    return weights, lse


def by_online_sum(scores, mask):
    largest = np.full(scores.shape[:-1], -np.inf)
    total = np.zeros(scores.shape[:-1])
    for j in range(scores.shape[-1]):
        s = scores[..., j] if mask is None else np.where(mask[..., j], scores[..., j], -np.inf)
        before, largest = largest, np.maximum(largest, s)
        safe = np.where(np.isinf(largest), 0, largest)
        total = total * np.exp(before - safe) + np.exp(s - safe)
    with np.errstate(divide="ignore"):
        lse = safe + np.log(total)
    visible = np.isfinite(lse)[..., None] if mask is None else mask
    shifted = np.where(visible, scores - np.where(np.isinf(lse), 0, lse)[..., None], -np.inf)
    return np.exp(shifted), lse


def by_masked_array(scores, mask):
    hidden = np.ma.nomask if mask is None else ~mask
    masked = np.ma.array(scores, mask=hidden)
    largest = masked.max(axis=-1)
    powers = np.ma.exp(masked - np.ma.expand_dims(largest, -1))
    total = powers.sum(axis=-1)
    lse = np.ma.filled(largest + np.ma.log(total), -np.inf)
    return np.ma.filled(powers / np.ma.expand_dims(total, -1), 0.0), np.asarray(lse)


def by_exp2_and_log2(scores, mask):
    x = scores / math.log(2)
    if mask is not None:
        x = np.where(mask, x, -np.inf)
    top = np.maximum(x.max(axis=-1, keepdims=True), -1e300)
    powers = np.exp2(x - top)
    total = powers.sum(axis=-1, keepdims=True)
    empty = total == 0
    lse = np.where(empty, -np.inf, (top + np.log2(total + empty)) * math.log(2))
    return powers / (total + empty), lse.squeeze(-1)


def by_sorting(scores, mask):
    x = scores if mask is None else np.where(mask, scores, -np.inf)
    rising = np.sort(x, axis=-1)
    top = rising[..., -1]
    lse = np.full(top.shape, -np.inf)
    some = top > -np.inf
    lse[some] = top[some] + np.log(np.exp(rising[some] - top[some][:, None]).cumsum(-1)[:, -1])
    weights = np.zeros_like(x)
    weights[some] = np.exp(x[some] - lse[some][:, np.newaxis])
    return weights, lse


def by_log1p(scores, mask):
    x = scores if mask is None else np.where(mask, scores, -np.inf)
    at = x.argmax(axis=-1)[..., None]
    top = np.take_along_axis(x, at, axis=-1)
    empty = np.isneginf(top)
    others = np.exp(x - np.where(empty, 0, top))
    np.put_along_axis(others, at, 0, axis=-1)
    lse = np.where(empty, -np.inf, top + np.log1p(others.sum(axis=-1, keepdims=True)))
    weights = np.where(empty, 0, np.exp(x - np.where(empty, 0, lse)))
    return weights, lse[..., 0]


def by_longdouble(scores, mask):
    wide = scores.astype("longdouble")
    visible = np.ones(scores.shape, bool) if mask is None else mask
    top = np.where(visible, wide, -np.inf).max(axis=-1, keepdims=True)
    powers = np.where(visible, np.exp(np.where(visible, wide - top, 0)), 0)
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.where(total == 0, -np.inf, top + np.log(total))
        weights = np.where(total == 0, 0, powers / total)
    return weights.astype(float), lse[..., 0].astype(float)


def by_recursion_over_keys(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)

    def log_sum(x):
        if x.shape[-1] == 1:
            return x[..., 0]
        half = x.shape[-1] // 2
        return np.logaddexp(log_sum(x[..., :half]), log_sum(x[..., half:]))

    lse = log_sum(scores)
    finite = np.where(lse == -np.inf, 0, lse)
    return np.exp(scores - finite[..., None]), lse


def by_vectorize(scores, mask):
    def both(row, visible):
        if not visible.any():
            return np.zeros(len(row)), -np.inf
        top = row[visible].max()
        lse = top + np.log(np.exp(row[visible] - top).sum())
        return np.where(visible, np.exp(np.minimum(row - lse, 0)), 0), lse

    mask = np.ones_like(scores, dtype=bool) if mask is None else mask
    return np.vectorize(both, signature="(k),(k)->(k),()")(scores, mask)


def by_at(scores, mask):
    T_k = scores.shape[-1]
    flat = scores.reshape(-1, T_k)
    visible = np.ones_like(flat, dtype=bool) if mask is None else mask.reshape(-1, T_k)
    rows, columns = np.where(visible)
    lse = np.full(len(flat), -np.inf)
    np.logaddexp.at(lse, rows, flat[rows, columns])
    weights = np.zeros_like(flat)
    weights[rows, columns] = np.exp(flat[rows, columns] - lse[rows])
    return weights.reshape(scores.shape), lse.reshape(scores.shape[:-1])


def by_reduceat(scores, mask):
    T_k = scores.shape[-1]
    hidden = np.array(False) if mask is None else ~mask
    flat = np.where(hidden, -np.inf, scores).ravel()
    lse = np.logaddexp.reduceat(flat, np.arange(0, flat.size, T_k)).reshape(scores.shape[:-1])
    bounds = pairwise([*range(0, flat.size, T_k), flat.size])
    rows = [
        np.exp(flat[start:stop] - n) if np.isfinite(n) else np.zeros(T_k)
        for (start, stop), n in zip(bounds, lse.ravel(), strict=True)
    ]
    return np.concatenate(rows).reshape(scores.shape), lse


def by_list_comprehensions(scores, mask):
    if mask is None:
        mask = np.full_like(scores, True, dtype=bool)
    flat = [(s[m].tolist(), m) for s, m in zip(_rows(scores), _rows(mask), strict=True)]
    tops = [max(seen, default=0.0) for seen, _ in flat]
    sums = [sum(math.exp(s - top) for s in seen) for (seen, _), top in zip(flat, tops, strict=True)]
    lse = [top + math.log(n) if n else -math.inf for top, n in zip(tops, sums, strict=True)]
    weights = np.zeros((len(flat), scores.shape[-1]))
    for row, (seen, m), n in zip(weights, flat, lse, strict=True):
        row[m] = [math.exp(s - n) for s in seen]
    return weights.reshape(scores.shape), np.array(lse).reshape(scores.shape[:-1])


def _rows(x):
    return x.reshape(-1, x.shape[-1])


class Softmaxed(NamedTuple):
    weights: np.ndarray
    lse: np.ndarray


def as_own_named_tuple(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    x = np.where(mask, scores, -np.inf)
    sees_any = mask.any(axis=-1)
    top = np.where(sees_any, x.max(axis=-1), 0)
    total = np.where(sees_any, np.exp(x - top[..., None]).sum(axis=-1), 1)
    lse = np.where(sees_any, top + np.log(total), -np.inf)
    return Softmaxed(weights=np.exp(x - top[..., None]) / total[..., None], lse=lse)


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


def in_fortran_order(scores, mask):
    weights, lse = by_where(scores, mask)
    return np.asfortranarray(weights), np.asfortranarray(lse)


class Softmax:
    def __call__(self, scores, mask):
        self.x = scores if mask is None else np.where(mask, scores, -np.inf)
        lse = self.lse()
        return np.exp(self.x - np.where(np.isinf(lse), 0, lse)[..., None]), lse

    def lse(self):
        top = self.x.max(axis=-1)
        lse = np.full_like(top, -np.inf)
        ok = np.isfinite(top)
        lse[ok] = top[ok] + np.log(np.exp(self.x[ok] - top[ok, None]).sum(axis=-1))
        return lse


def _softmax(log_sum, scores, mask):
    x = scores if mask is None else np.where(mask, scores, -np.inf)
    lse = log_sum(x)
    return np.exp(x - np.nan_to_num(lse, neginf=0.0)[..., None]), lse


by_class = Softmax()
by_partial = partial(_softmax, partial(np.logaddexp.reduce, axis=-1))

RIGHT = [
    by_where, by_log_with_warnings, by_logaddexp, by_hiding_behind_the_smallest,
    by_lse_first_and_dict, by_scalar_loops, by_visible_rows, by_online_sum, by_masked_array,
    by_exp2_and_log2, by_sorting, by_log1p, by_longdouble, by_recursion_over_keys, by_vectorize,
    by_at, by_reduceat, by_list_comprehensions, as_own_named_tuple, as_views_of_one_array,
    in_fortran_order, by_class, by_partial,
]  # fmt: skip
