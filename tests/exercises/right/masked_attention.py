"""Right ways to attend with a mask, a softcap and shared key/value heads."""

import math
from functools import partial

import numpy as np


def _cap(scores, softcap):
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def _softmax(scores, mask):
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    powers = np.exp(masked - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def by_repeat(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    return _softmax(scores, mask) @ v


def by_five_axes(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    grouped = q.reshape(B, k.shape[1], -1, T_q, d_k)
    scores = grouped @ k[:, :, None].transpose(0, 1, 2, 4, 3) * d_k**-0.5
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    weights = _softmax(scores, mask[:, :, None])
    return (weights @ v[:, :, None]).reshape(B, H, T_q, v.shape[-1])


def by_einsum(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    grouped = q.reshape(B, k.shape[1], -1, T_q, d_k)
    scores = np.einsum("bngqd,bnkd->bngqk", grouped, k) / math.sqrt(d_k)
    weights = _softmax(_cap(scores, softcap), np.expand_dims(mask, 2))
    return np.einsum("bngqk,bnkd->bngqd", weights, v).reshape(B, H, T_q, -1)


def by_index_and_in_place_steps(q, k, v, mask, softcap):
    shared = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    scores = (q / np.sqrt(q.shape[-1])) @ k[:, shared].swapaxes(2, 3)
    if softcap is not None:
        scores /= softcap
        np.tanh(scores, out=scores)
        scores *= softcap
    hidden = np.broadcast_to(~mask, scores.shape)
    scores[hidden] = -np.inf
    scores -= np.maximum(scores.max(axis=-1, keepdims=True), -1e300)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    np.divide(scores, total, out=scores, where=total > 0)
    return scores @ v[:, shared]


def by_loop_over_visible_keys(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    G = H // k.shape[1]
    heads = np.zeros((B, H, T_q, v.shape[-1]))
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                seen = mask[b, 0, i]
                if not seen.any():
                    continue
                scores = k[b, h // G][seen] @ q[b, h, i] / np.sqrt(d_k)
                scores = _cap(scores, softcap)
                powers = np.exp(scores - scores.max())
                heads[b, h, i] = powers @ v[b, h // G][seen] / powers.sum()
    return heads


def by_scalar_loops(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    H_kv, T_k, d_v = v.shape[1:]
    heads = np.zeros((B, H, T_q, d_v))
    for b, h, i in np.ndindex(B, H, T_q):
        n = h * H_kv // H
        scores = {}
        for j in range(T_k):
            if mask[b, 0, i, j]:
                score = sum(q[b, h, i, m] * k[b, n, j, m] for m in range(d_k)) / math.sqrt(d_k)
                scores[j] = score if softcap is None else softcap * math.tanh(score / softcap)
        if scores:
            largest = max(scores.values())
            total = sum(math.exp(s - largest) for s in scores.values())
            for j, score in scores.items():
                for m in range(d_v):
                    heads[b, h, i, m] += math.exp(score - largest) / total * v[b, n, j, m]
    return heads


def by_list_comprehensions(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]

    def attend(q, k, v, mask):
        return _softmax(_cap(q @ k.T / np.sqrt(q.shape[-1]), softcap), mask) @ v

    return np.stack(
        [
            np.stack(
                [attend(q[b, h], k[b, h // G], v[b, h // G], mask[b, 0]) for h in range(q.shape[1])]
            )
            for b in range(len(q))
        ]
    )


def by_masked_array(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = k.repeat(G, axis=1), v.repeat(G, axis=1)
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.ma.masked_where(np.broadcast_to(~mask, scores.shape), scores)
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights.filled(0) @ v


def by_repairing_nan(q, k, v, mask, softcap):
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, groups, 1) for x in (k, v))
    s = np.matmul(q, np.moveaxis(k, 2, 3)) / np.sqrt(q.shape[-1])
    s = s if softcap is None else softcap * np.tanh(s / softcap)
    s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.nan_to_num(e / e.sum(-1, keepdims=True)) @ v


def by_repairing_nan_with_warnings(q, k, v, mask, softcap):
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    v = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = _cap(np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, float("-inf"))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers @ v / powers.sum(axis=-1, keepdims=True)
    heads[np.isnan(heads)] = 0.0
    return heads


def by_logsumexp(q, k, v, mask, softcap):
    shared = np.repeat(np.arange(k.shape[1]), q.shape[1] // k.shape[1])
    scores = _cap(q @ k[:, shared].swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1)
    lse[np.isneginf(lse)] = 0
    return np.exp(scores - lse[..., None]) @ v[:, shared]


def by_additive_mask(q, k, v, mask, softcap):
    additive = np.zeros(mask.shape)
    additive[~mask] = -np.inf
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = _cap(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]), softcap) + additive
    largest = np.nan_to_num(scores.max(axis=-1, keepdims=True), neginf=0)
    powers = np.exp(scores - largest)
    return powers @ v / np.maximum(powers.sum(axis=-1, keepdims=True), 1e-300)


def by_large_negative_number_and_mask(q, k, v, mask, softcap):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, -1e30)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.where(mask, weights, 0) @ v


def by_rows_that_see_something(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    G = H // k.shape[1]
    heads = np.zeros((B, H, T_q, v.shape[-1]))
    for b in range(B):
        rows = np.flatnonzero(mask[b, 0].any(axis=-1))
        for h in range(H):
            scores = _cap(q[b, h, rows] @ k[b, h // G].T / np.sqrt(d_k), softcap)
            scores[~mask[b, 0, rows]] = -np.inf
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads[b, h, rows] = powers @ v[b, h // G] / powers.sum(axis=1, keepdims=True)
    return heads


def by_column_of_ones(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    top = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-1e300)
    powers = np.exp(np.minimum(scores - top, 0)) * mask
    mixed = powers @ np.concatenate([v, np.ones((*v.shape[:-1], 1))], axis=-1)
    total = mixed[..., -1:]
    return mixed[..., :-1] / (total + (total == 0))


def by_broadcasting(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = k[:, np.arange(q.shape[1]) // G], v[:, np.arange(q.shape[1]) // G]
    scores = (q[:, :, :, None, :] * k[:, :, None, :, :]).sum(axis=-1) / np.sqrt(q.shape[-1])
    weights = _softmax(_cap(scores, softcap), mask)
    return (weights[..., None] * v[:, :, None]).sum(axis=-2)


def by_online_keys(q, k, v, mask, softcap):
    shared = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    largest = np.full(q.shape[:-1], -np.inf)
    total, mixed = np.zeros(q.shape[:-1]), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(k.shape[2]):
        score = (q * k[:, shared, j, None]).sum(axis=-1) / np.sqrt(q.shape[-1])
        score = np.where(mask[..., j], _cap(score, softcap), -np.inf)
        new = np.maximum(largest, score)
        safe = np.where(np.isinf(new), 0, new)
        kept, power = np.exp(largest - safe), np.exp(score - safe)
        total = kept * total + power
        mixed = kept[..., None] * mixed + power[..., None] * v[:, shared, j, None]
        largest = new
    return np.divide(mixed, total[..., None], out=np.zeros_like(mixed), where=total[..., None] > 0)


def by_split_groups(q, k, v, mask, softcap):
    H_kv = k.shape[1]
    parts = (np.split(x, H_kv, axis=1) for x in (q, k, v))
    heads = [
        _softmax(_cap(a @ b.swapaxes(2, 3) / np.sqrt(q.shape[-1]), softcap), mask) @ c
        for a, b, c in zip(*parts, strict=True)
    ]
    return np.concatenate(heads, axis=1)


def by_tensordot(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    heads = np.empty((*q.shape[:-1], v.shape[-1]))
    for b, h in np.ndindex(q.shape[:2]):
        scores = np.tensordot(q[b, h], k[b, h // G], axes=(1, 1)) / math.sqrt(q.shape[-1])
        weights = _softmax(_cap(scores, softcap), mask[b, 0])
        heads[b, h] = np.tensordot(weights, v[b, h // G], axes=(1, 0))
    return heads


def by_vectorize(q, k, v, mask, softcap):
    def attend(q, k, v, mask):
        return _softmax(_cap(q @ k.T / np.sqrt(q.shape[1]), softcap), mask) @ v

    G = q.shape[1] // k.shape[1]
    signature = "(q,d),(k,d),(k,e),(q,k)->(q,e)"
    return np.vectorize(attend, signature=signature)(q, k.repeat(G, 1), v.repeat(G, 1), mask)


def by_tanh_of_exponentials(q, k, v, mask, softcap):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap is not None:
        e = np.exp(-2 * np.abs(scores) / softcap)
        scores = np.sign(scores) * softcap * (1 - e) / (1 + e)
    return _softmax(scores, mask) @ v


def by_recursion_over_sequences(q, k, v, mask, softcap):
    if len(q) > 1:
        first = by_recursion_over_sequences(q[:1], k[:1], v[:1], mask[:1], softcap)
        return np.vstack(
            [first, by_recursion_over_sequences(q[1:], k[1:], v[1:], mask[1:], softcap)]
        )
    scores = q[0].reshape(k.shape[1], -1, *q.shape[2:]) @ k[0][:, None].swapaxes(-1, -2)
    weights = _softmax(_cap(scores / np.sqrt(q.shape[-1]), softcap), mask[0])
    return (weights @ v[0][:, None]).reshape(1, *q.shape[1:3], -1)


def by_longdouble(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    q, k, v = (np.asarray(x, dtype=np.longdouble) for x in (q, k, v))
    k, v = k.repeat(G, axis=1), v.repeat(G, axis=1)
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(np.longdouble(q.shape[-1]))
    weights = _softmax(_cap(scores, softcap), mask)
    return np.einsum("bhij,bhjd->bhid", weights, v).astype(float)


def by_add_at(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    b, h, i, j = np.nonzero(np.broadcast_to(mask, (B, H, *mask.shape[2:])))
    n = h // (H // k.shape[1])
    scores = _cap(np.einsum("nd,nd->n", q[b, h, i], k[b, n, j]) / np.sqrt(d_k), softcap)
    lse = np.full((B, H, T_q), -np.inf)
    np.logaddexp.at(lse, (b, h, i), scores)
    heads = np.zeros((B, H, T_q, v.shape[-1]))
    np.add.at(heads, (b, h, i), np.exp(scores - lse[b, h, i])[:, None] * v[b, n, j])
    return heads


def as_transposed_view(q, k, v, mask, softcap):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = _cap(k @ q.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)  # rows are keys
    weights = _softmax(scores.swapaxes(-1, -2), mask).swapaxes(-1, -2)
    return (v.swapaxes(-1, -2) @ weights).swapaxes(-1, -2)


def in_fortran_order(q, k, v, mask, softcap):
    return np.asfortranarray(by_index_and_in_place_steps(q, k, v, mask, softcap))


class MaskedAttention:
    def __init__(self, softmax):
        self.softmax = softmax

    def __call__(self, q, k, v, mask=None, softcap=None):
        self.G = q.shape[1] // k.shape[1]
        scores = q @ self.share(k).swapaxes(-1, -2) * q.shape[-1] ** -0.5
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        return self.softmax(scores, mask) @ self.share(v)

    def share(self, x):
        return np.stack([x] * self.G, axis=2).reshape(len(x), -1, *x.shape[2:])


def _attend(softmax, q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    heads = np.zeros(q.shape[:3] + v.shape[3:])
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // G].transpose(0, 2, 1) / np.sqrt(q.shape[3])
        heads[:, h] += softmax(_cap(scores, softcap), mask[:, 0]) @ v[:, h // G]
    return heads


by_class = MaskedAttention(_softmax)
by_partial = partial(_attend, _softmax)

RIGHT = [
    by_repeat, by_five_axes, by_einsum, by_index_and_in_place_steps, by_loop_over_visible_keys,
    by_scalar_loops, by_list_comprehensions, by_masked_array, by_repairing_nan,
    by_repairing_nan_with_warnings, by_logsumexp, by_additive_mask,
    by_large_negative_number_and_mask, by_rows_that_see_something, by_column_of_ones,
    by_broadcasting, by_online_keys, by_split_groups, by_tensordot, by_vectorize,
    by_tanh_of_exponentials, by_recursion_over_sequences, by_longdouble, by_add_at,
    as_transposed_view, in_fortran_order, by_class, by_partial,
]  # fmt: skip
