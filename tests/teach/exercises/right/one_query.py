"""Right ways to attend from a single query."""

import math

import numpy as np


def by_matmul(q, k, v):
    scores = k @ q / np.sqrt(len(q))
    powers = np.exp(scores - scores.max())
    return powers / powers.sum() @ v


def by_scalar_loops(q, k, v):
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / math.sqrt(len(q)) for key in k]
    largest = max(scores)
    out, total = [0.0] * v.shape[1], 0.0
    for score, value in zip(scores, v, strict=True):
        power = math.exp(score - largest)
        total += power
        out = [known + power * number for known, number in zip(out, value, strict=True)]
    return np.array(out) / total


def by_logsumexp(q, k, v):
    scores = np.einsum("c,jc->j", q, k) / len(q) ** 0.5
    return np.einsum("j,jn->n", np.exp(scores - np.logaddexp.reduce(scores)), v)


RIGHT = [by_scalar_loops, by_matmul, by_logsumexp]
