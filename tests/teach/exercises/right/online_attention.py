"""Right ways to attend block by block, without ever holding all scores of a row."""

import math
from typing import NamedTuple

import numpy as np


def by_two_passes_with_lse(q, k, v, block):
    def scores():
        for s in range(0, len(k), block):
            yield s, np.inner(q, k[s : s + block]) / np.sqrt(q.shape[1])

    lse = np.full(len(q), -np.inf)
    for _, part in scores():
        lse = np.logaddexp(lse, np.logaddexp.reduce(part, axis=1))
    return sum(np.exp(part - lse[:, None]) @ v[s : s + block] for s, part in scores())


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


def by_recursion_by_halves(q, k, v, block):
    return _by_halves(q, k, v, block).heads


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


RIGHT = [
    by_two_passes_with_lse,
    by_keeping_all_partial_sums,
    by_recursion_by_halves,
    by_rescaling_only_where_needed,
    by_scalar_loops,
]
