"""Right ways to attend block by block, without ever holding all scores of a row."""

import math
from functools import partial, reduce
from itertools import islice
from typing import NamedTuple

import numpy as np


def by_running_sums(q, k, v, block):
    largest = np.full((len(q), 1), -np.inf)
    total = np.zeros((len(q), 1))
    mixed = np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[1])
        new = np.maximum(largest, scores.max(axis=1, keepdims=True))
        kept, powers = np.exp(largest - new), np.exp(scores - new)
        total = kept * total + powers.sum(axis=1, keepdims=True)
        mixed = kept * mixed + powers @ v[start : start + block]
        largest = new
    return mixed / total


def by_in_place_steps(q, k, v, block):
    q = q * q.shape[1] ** -0.5
    largest, total = np.full(len(q), -np.inf), np.zeros(len(q))
    heads = np.zeros((len(q), v.shape[1]))
    start = 0
    while start < len(k):
        scores = q.dot(k[start : start + block].T)
        before = largest.copy()
        np.maximum(largest, scores.max(axis=1), out=largest)
        kept = np.exp(before - largest)
        scores -= largest[:, None]
        np.exp(scores, out=scores)
        total *= kept
        total += scores.sum(axis=1)
        heads *= kept[:, None]
        heads += scores.dot(v[start : start + block])
        start += block
    heads /= total[:, None]
    return heads


def by_normalised_running_mean(q, k, v, block):
    heads, lse = np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf)
    for start in range(0, len(k), block):
        scores = np.einsum("id,jd->ij", q, k[start : start + block]) / math.sqrt(q.shape[1])
        new = np.logaddexp(lse, np.logaddexp.reduce(scores, axis=1))
        weights = np.exp(scores - new[:, None])
        heads = np.exp(lse - new)[:, None] * heads + weights @ v[start : start + block]
        lse = new
    return heads


def by_two_passes(q, k, v, block):
    root, starts = np.sqrt(q.shape[1]), range(0, len(k), block)
    largest = np.full((len(q), 1), -np.inf)
    for s in starts:
        scores = q @ k[s : s + block].T / root
        largest = np.maximum(largest, scores.max(axis=1, keepdims=True))
    total, mixed = 0.0, 0.0
    for s in starts:
        powers = np.exp(q @ k[s : s + block].T / root - largest)
        total = total + powers.sum(axis=1, keepdims=True)
        mixed = mixed + powers @ v[s : s + block]
    return mixed / total


def by_two_passes_with_lse(q, k, v, block):
    def scores():
        for s in range(0, len(k), block):
            yield s, np.inner(q, k[s : s + block]) / np.sqrt(q.shape[1])

    lse = np.full(len(q), -np.inf)
    for _, part in scores():
        lse = np.logaddexp(lse, np.logaddexp.reduce(part, axis=1))
    return sum(np.exp(part - lse[:, None]) @ v[s : s + block] for s, part in scores())


def by_merging_blocks(q, k, v, block):
    def summarise(start):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[1])
        largest = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - largest)
        return largest, powers.sum(axis=1, keepdims=True), powers @ v[start : start + block]

    def merge(one, other):
        largest = np.maximum(one[0], other[0])
        a, b = np.exp(one[0] - largest), np.exp(other[0] - largest)
        return largest, a * one[1] + b * other[1], a * one[2] + b * other[2]

    _, total, mixed = reduce(merge, map(summarise, range(0, len(k), block)))
    return mixed / total


def by_keeping_all_partial_sums(q, k, v, block):
    largest, totals, mixed = [], [], []
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[1])
        top = scores.max(axis=1)
        powers = np.exp(scores - top[:, None])
        largest.append(top)
        totals.append(powers.sum(axis=1))
        mixed.append(powers @ v[start : start + block])
    factors = np.exp(np.array(largest) - np.max(largest, axis=0))  # (blocks, T_q)
    return (factors[..., None] * mixed).sum(axis=0) / (factors * totals).sum(axis=0)[:, None]


def by_recursion_by_halves(q, k, v, block):
    return _by_halves(q, k, v, block).heads


class _Part(NamedTuple):
    heads: np.ndarray
    lse: np.ndarray


def _by_halves(q, k, v, block):
    if len(k) <= block:
        scores = q @ k.T / np.sqrt(q.shape[1])
        lse = np.logaddexp.reduce(scores, axis=1)
        return _Part(np.exp(scores - lse[:, None]) @ v, lse)
    half = len(k) // 2
    one = _by_halves(q, k[:half], v[:half], block)
    other = _by_halves(q, k[half:], v[half:], block)
    lse = np.logaddexp(one.lse, other.lse)
    a, b = np.exp(one.lse - lse)[:, None], np.exp(other.lse - lse)[:, None]
    return _Part(a * one.heads + b * other.heads, lse)


def by_recursion_from_the_end(q, k, v, block):
    def attend(stop):
        if stop <= 0:
            return np.full((len(q), 1), -np.inf), 0.0, 0.0
        before, total, mixed = attend(stop - block)
        keys = slice(max(stop - block, 0), stop)
        scores = q @ k[keys].T / np.sqrt(q.shape[1])
        largest = np.maximum(before, scores.max(axis=1, keepdims=True))
        kept, powers = np.exp(before - largest), np.exp(scores - largest)
        total = kept * total + powers.sum(axis=1, keepdims=True)
        return largest, total, kept * mixed + powers @ v[keys]

    _, total, mixed = attend(len(k))
    return mixed / total


def by_scalar_loops(q, k, v, block):
    T_q, d_k = q.shape
    T_k, d_v = v.shape
    heads = np.zeros((T_q, d_v))
    for i in range(T_q):
        largest, total, mixed = -math.inf, 0.0, [0.0] * d_v
        for start in range(0, T_k, block):
            keys = range(start, min(start + block, T_k))
            scores = [sum(q[i, m] * k[j, m] for m in range(d_k)) / math.sqrt(d_k) for j in keys]
            new = max(largest, *scores)
            kept = math.exp(largest - new)
            total *= kept
            mixed = [kept * x for x in mixed]
            for j, score in zip(keys, scores, strict=True):
                power = math.exp(score - new)
                total += power
                for m in range(d_v):
                    mixed[m] += power * v[j, m]
            largest = new
        heads[i] = [x / total for x in mixed]
    return heads


def by_single_keys(q, k, v, block):
    largest, total, mixed = np.full(len(q), -np.inf), 0.0, 0.0
    for key, value in zip(k, v, strict=True):
        score = q @ key / np.sqrt(len(key))
        new = np.maximum(largest, score)
        kept, power = np.exp(largest - new), np.exp(score - new)
        total = kept * total + power
        mixed = kept[:, None] * mixed + np.outer(power, value)
        largest = new
    return mixed / total[:, None]


def by_loop_over_queries(q, k, v, block):
    rows = []
    for query in q:
        largest, total, row = -np.inf, 0.0, np.zeros(v.shape[1])
        for start in range(0, len(k), block):
            scores = k[start : start + block] @ query / np.sqrt(query.size)
            if scores.max() > largest:
                kept = np.exp(largest - scores.max())
                largest, total, row = scores.max(), total * kept, row * kept
            powers = np.exp(scores - largest)
            total += powers.sum()
            row = row + powers @ v[start : start + block]
        rows.append(row / total)
    return np.stack(rows)


def by_array_split(q, k, v, block):
    parts = math.ceil(len(k) / block)
    scale = 1 / np.sqrt(q.shape[-1])
    state = (np.full((len(q), 1), -np.inf), np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1])))
    for keys, values in zip(np.array_split(k, parts), np.array_split(v, parts), strict=True):
        m, n, o = state
        s = scale * (q @ keys.T)
        new = np.maximum(m, np.amax(s, axis=1, keepdims=True))
        p, c = np.exp(s - new), np.exp(m - new)
        state = new, n * c + p.sum(1, keepdims=True), o * c + p @ values
    return state[2] / state[1]


def by_split_at(q, k, v, block):
    cuts = np.arange(block, len(k), block)
    largest, mixed = -np.inf, 0.0
    for keys, values in zip(np.split(k, cuts), np.split(v, cuts), strict=True):
        scores = np.tensordot(q, keys, axes=(1, 1)) / np.sqrt(q.shape[1])
        new = np.maximum(largest, scores.max(axis=1, keepdims=True))
        values = np.column_stack([values, np.ones(len(values))])  # the last column is the sum
        mixed = mixed * np.exp(largest - new) + np.exp(scores - new) @ values
        largest = new
    return mixed[:, :-1] / mixed[:, -1:]


def by_last_block_first(q, k, v, block):
    scale = q.shape[1] ** -0.5
    top, total, mixed = np.full(len(q), -1e300), np.zeros(len(q)), np.zeros((len(q), v.shape[1]))
    for start in reversed(range(0, len(k), block)):
        s = scale * q @ k[start : start + block].T
        new = np.fmax(top, s.max(axis=1))
        p = np.exp(s - new[:, None])
        total = total * np.exp(top - new) + p.sum(axis=1)
        mixed = mixed * np.exp(top - new)[:, None] + np.einsum("ij,jd->id", p, v[start:][:block])
        top = new
    return np.divide(mixed, total[:, None])


def by_fixed_block_with_mask(q, k, v, block):
    largest, total, mixed = np.full((len(q), 1), -np.inf), 0.0, 0.0
    for start in range(0, len(k), block):
        at = start + np.arange(block)
        inside, at = at < len(k), np.minimum(at, len(k) - 1)
        scores = np.where(inside, q @ k[at].T / np.sqrt(q.shape[1]), -np.inf)
        new = np.maximum(largest, scores.max(axis=1, keepdims=True))
        powers = np.exp(scores - new)
        total = total * np.exp(largest - new) + powers.sum(axis=1, keepdims=True)
        mixed = mixed * np.exp(largest - new) + powers @ v[at]
        largest = new
    return mixed / total


def by_broadcasting(q, k, v, block):
    largest, total, mixed = np.full(len(q), -np.inf), np.zeros(len(q)), np.zeros((len(q), 1))
    for start in range(0, len(k), block):
        keys, values = k[start : start + block], v[start : start + block]
        scores = (q[:, None] * keys).sum(axis=-1) / np.sqrt(q.shape[1])
        new = np.maximum(largest, scores.max(axis=-1))
        kept, powers = np.exp(largest - new), np.exp(scores - new[:, None])
        total = kept * total + powers.sum(axis=-1)
        mixed = kept[:, None] * mixed + (powers[..., None] * values).sum(axis=1)
        largest = new
    return mixed / total[:, None]


def by_exp2(q, k, v, block):
    q = q * (math.log2(math.e) / math.sqrt(q.shape[1]))
    m, n, o = np.full((len(q), 1), -np.inf), np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for j in range(0, k.shape[0], block):
        s = q @ k[j : j + block].T
        m_new = np.maximum(m, s.max(-1, keepdims=True))
        p, alpha = np.exp2(s - m_new), np.exp2(m - m_new)
        n, o, m = alpha * n + p.sum(-1, keepdims=True), alpha * o + p @ v[j : j + block], m_new
    return o / n


def by_rescaling_only_where_needed(q, k, v, block):
    largest, total = np.full(len(q), -np.inf), np.zeros(len(q))
    heads = np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[1])
        top = scores.max(axis=1)
        rises = top > largest
        kept = np.exp(largest[rises] - top[rises])
        total[rises] *= kept
        heads[rises] *= kept[:, None]
        largest[rises] = top[rises]
        powers = np.exp(scores - largest[:, None])
        total += powers.sum(axis=1)
        heads += powers @ v[start : start + block]
    return heads / total[:, np.newaxis]


def by_iterator_of_pairs(q, k, v, block):
    pairs = iter(zip(k, v, strict=True))
    largest, total, mixed = np.full(len(q), -np.inf), 0.0, 0.0
    while some := list(islice(pairs, block)):
        keys, values = np.array([key for key, _ in some]), np.array([value for _, value in some])
        scores = np.dot(keys, q.T) / np.sqrt(q.shape[1])  # (block, T_q)
        new = np.maximum(largest, scores.max(axis=0))
        powers = np.exp(scores - new)
        total = total * np.exp(largest - new) + powers.sum(axis=0)
        mixed = mixed * np.exp(largest - new)[:, None] + powers.T @ values
        largest = new
    return mixed / total[:, None]


def by_blocks_of_queries_too(q, k, v, block):
    heads = np.empty((len(q), v.shape[1]))
    for i in range(0, len(q), block):
        heads[i : i + block] = by_running_sums(q[i : i + block], k, v, block)
    return heads


def by_longdouble(q, k, v, block):
    q, root = q.astype(np.longdouble), np.sqrt(np.longdouble(q.shape[1]))
    largest, total, mixed = np.full((len(q), 1), -np.inf), np.longdouble(0), np.longdouble(0)
    for start in range(0, len(k), block):
        scores = (q[:, None, :] * k[start : start + block]).sum(axis=2) / root
        new = np.maximum(largest, scores.max(axis=1, keepdims=True))
        powers, kept = np.exp(scores - new), np.exp(largest - new)
        total = kept * total + powers.sum(axis=1, keepdims=True)
        mixed = kept * mixed + powers.dot(v[start : start + block].astype(np.longdouble))
        largest = new
    return (mixed / total).astype(np.float64)


def by_vectorize(q, k, v, block):
    def attend(query, keys, values):
        return by_running_sums(query[None], keys, values, block)[0]

    return np.vectorize(attend, signature="(d),(k,d),(k,e)->(e)")(q, k, v)


def as_transposed_view(q, k, v, block):
    largest, total = np.full(len(q), -np.inf), np.zeros(len(q))
    by_column = np.zeros((v.shape[1], len(q)))
    for start in range(0, len(k), block):
        scores = k[start : start + block] @ q.T / np.sqrt(q.shape[1])  # rows are keys
        new = np.maximum(largest, scores.max(axis=0))
        kept, powers = np.exp(largest - new), np.exp(scores - new)
        total = kept * total + powers.sum(axis=0)
        by_column = kept * by_column + v[start : start + block].T @ powers
        largest = new
    return (by_column / total).T


def in_fortran_order(q, k, v, block):
    return np.asfortranarray(by_two_passes(q, k, v, block))


class OnlineSoftmax:
    def __init__(self, T_q, d_v):
        self.largest = np.full((T_q, 1), -np.inf)
        self.total, self.mixed = np.zeros((T_q, 1)), np.zeros((T_q, d_v))

    def add(self, scores, values):
        before, self.largest = self.largest, np.maximum(self.largest, scores.max(1, keepdims=True))
        kept, powers = np.exp(before - self.largest), np.exp(scores - self.largest)
        self.total = self.total * kept + powers.sum(axis=1, keepdims=True)
        self.mixed = self.mixed * kept + powers @ values
        return self

    @property
    def heads(self):
        return self.mixed / self.total


def by_class(q, k, v, block):
    state = OnlineSoftmax(len(q), v.shape[1])
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[1])
        state.add(scores, v[start : start + block])
    return state.heads


def _step(q, state, keys_and_values):
    largest, total, mixed = state
    keys, values = keys_and_values
    scores = q @ keys.T
    new = np.maximum(largest, scores.max(axis=1, keepdims=True))
    kept, powers = np.exp(largest - new), np.exp(scores - new)
    return new, kept * total + powers.sum(axis=1, keepdims=True), kept * mixed + powers @ values


def by_reduce_and_partial(q, k, v, block):
    blocks = ((k[s : s + block], v[s : s + block]) for s in range(0, len(k), block))
    start = np.full((len(q), 1), -np.inf), 0.0, 0.0
    _, total, mixed = reduce(partial(_step, q / math.sqrt(q.shape[1])), blocks, start)
    return mixed / total


RIGHT = [
    by_running_sums, by_in_place_steps, by_normalised_running_mean, by_two_passes,
    by_two_passes_with_lse, by_merging_blocks, by_keeping_all_partial_sums, by_recursion_by_halves,
    by_recursion_from_the_end, by_scalar_loops, by_single_keys, by_loop_over_queries,
    by_array_split, by_split_at, by_last_block_first, by_fixed_block_with_mask, by_broadcasting,
    by_exp2, by_rescaling_only_where_needed, by_iterator_of_pairs, by_blocks_of_queries_too,
    by_longdouble, by_vectorize, as_transposed_view, in_fortran_order, by_class,
    by_reduce_and_partial,
]  # fmt: skip
