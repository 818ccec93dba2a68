"""Right ways to attend with one head."""

import math
from functools import partial, reduce

import numpy as np


def by_matmul(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def by_dot(q, k, v):
    scores = np.dot(q, np.transpose(k)) * q.shape[1] ** -0.5
    scores = np.exp(scores - np.max(scores, 1)[:, None])
    weights = np.divide(scores, np.sum(scores, 1)[:, None])
    return np.dot(weights, v)


def by_scaled_queries(q, k, v):
    q = q / math.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(0, 1)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores @ v


def by_einsum(q, k, v):
    scores = np.einsum("qd,kd->qk", q, k) / np.sqrt(q.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = np.einsum("qk,q->qk", powers, 1 / powers.sum(axis=1))
    return np.einsum("qk,kd->qd", weights, v)


def by_normalising_last(q, k, v):
    scores = np.inner(q, k) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers @ v) / powers.sum(axis=-1, keepdims=True)


def by_column_of_ones(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = powers @ np.hstack([v, np.ones((len(v), 1))])
    return mixed[:, :-1] / mixed[:, -1:]


def by_scalar_loops(q, k, v):
    T_q, d_k = q.shape
    T_k, d_v = v.shape
    heads = np.zeros((T_q, d_v))
    for i in range(T_q):
        scores = []
        for j in range(T_k):
            score = 0.0
            for m in range(d_k):
                score += q[i, m] * k[j, m]
            scores.append(score / math.sqrt(d_k))
        largest = max(scores)
        powers = [math.exp(score - largest) for score in scores]
        total = sum(powers)
        for j in range(T_k):
            for n in range(d_v):
                heads[i, n] += powers[j] / total * v[j, n]
    return heads


def by_python_lists(q, k, v):
    root = math.sqrt(q.shape[1])
    rows = []
    for query in q.tolist():
        scores = [sum(a * b for a, b in zip(query, key, strict=True)) / root for key in k.tolist()]
        powers = [math.exp(s - max(scores)) for s in scores]
        columns = zip(*v.tolist(), strict=True)
        rows.append([math.fsum(map(float.__mul__, powers, c)) / math.fsum(powers) for c in columns])
    return np.array(rows)


def by_loop_over_queries(q, k, v):
    heads = np.empty((q.shape[0], v.shape[1]))
    for i, query in enumerate(q):
        scores = k @ query / np.sqrt(len(query))
        powers = np.exp(scores - scores.max())
        heads[i] = powers @ v / powers.sum()
    return heads


def by_average(q, k, v):
    scores = (q @ k.T) / np.sqrt(k.shape[1])
    powers = np.exp(scores - scores.max(axis=1)[:, np.newaxis])
    return np.stack([np.average(v, axis=0, weights=row) for row in powers])


def by_broadcasting(q, k, v):
    scores = (q[:, None, :] * k[None, :, :]).sum(axis=2) / np.sqrt(q.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    return (weights[:, :, None] * v[None, :, :]).sum(axis=1)


def by_tensordot(q, k, v):
    scores = np.tensordot(q, k, axes=([1], [1])) / np.sqrt(q.shape[1])
    powers = np.exp(scores - np.amax(scores, axis=1, keepdims=True))
    return np.tensordot(powers / powers.sum(axis=1, keepdims=True), v, axes=1)


def by_logsumexp(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    return np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, None]) @ v


def by_exp2(q, k, v):
    scores = q @ k.T * (math.log2(math.e) / math.sqrt(q.shape[-1]))
    powers = np.exp2(scores - scores.max(axis=-1, keepdims=True))
    return powers @ v / powers.sum(axis=-1)[..., None]


def by_differences(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    with np.errstate(over="ignore"):
        ratios = np.exp(scores[:, None, :] - scores[:, :, None])
        return (1 / ratios.sum(axis=2)) @ v


def as_transposed_view(q, k, v):
    scores = k @ q.T / np.sqrt(q.shape[-1])  # rows are keys
    powers = np.exp(scores - scores.max(axis=0))
    weights = powers / powers.sum(axis=0)
    return (v.T @ weights).T


def in_fortran_order(q, k, v):
    scores = np.asfortranarray(q) @ np.asfortranarray(k).T / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = np.empty((len(q), v.shape[1]), order="F")
    np.matmul(powers / powers.sum(axis=-1, keepdims=True), v, out=heads)
    return heads


def by_sorting_keys(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    order = np.argsort(-scores, axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    powers = np.exp(scores - scores[:, :1])
    return np.einsum("qk,qkd->qd", powers / powers.cumsum(axis=1)[:, -1:], v[order])


def by_longdouble(q, k, v):
    q, k, v = (x.astype(np.longdouble) for x in (q, k, v))
    scores = (q[:, None] * k).sum(-1) / np.sqrt(np.longdouble(q.shape[1]))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.float64(powers.dot(v) / powers.sum(axis=1, keepdims=True))


def by_online_keys(q, k, v):
    largest, total, mixed = np.full(len(q), -np.inf), np.zeros(len(q)), 0.0
    for key, value in zip(k, v, strict=True):
        score = q @ key / np.sqrt(len(key))
        new = np.maximum(largest, score)
        kept, power = np.exp(largest - new), np.exp(score - new)
        total = kept * total + power
        mixed = kept[:, None] * mixed + power[:, None] * value
        largest = new
    return mixed / total[:, None]


def by_recursion_over_keys(q, k, v):
    def attend(k, v):
        if len(k) == 1:
            return q @ k[0] / np.sqrt(q.shape[1]), np.tile(v, (len(q), 1))
        half = len(k) // 2
        (lse_a, a), (lse_b, b) = attend(k[:half], v[:half]), attend(k[half:], v[half:])
        lse = np.logaddexp(lse_a, lse_b)
        return lse, np.exp(lse_a - lse)[:, None] * a + np.exp(lse_b - lse)[:, None] * b

    return attend(k, v)[1]


def by_vectorize(q, k, v):
    def attend(query, keys, values):
        scores = keys @ query / np.sqrt(query.size)
        powers = np.exp(scores - scores.max())
        return powers @ values / powers.sum()

    return np.vectorize(attend, signature="(d),(k,d),(k,e)->(e)")(q, k, v)


def by_apply_along_axis(q, k, v):
    def softmax(row):
        row = np.exp(row - row.max())
        return row / row.sum()

    weights = np.apply_along_axis(softmax, 1, q @ k.T / np.sqrt(q.shape[1]))
    return np.array([sum(w * value for w, value in zip(row, v, strict=True)) for row in weights])


def by_add_at(q, k, v):
    i, j = (index.ravel() for index in np.indices((len(q), len(k))))
    scores = np.einsum("nd,nd->n", q[i], k[j]) / np.sqrt(q.shape[1])
    largest = np.full(len(q), -np.inf)
    np.maximum.at(largest, i, scores)
    powers = np.exp(scores - largest[i])
    heads = np.zeros((len(q), v.shape[1]))
    np.add.at(heads, i, powers[:, None] * v[j])
    return heads / np.bincount(i, weights=powers)[:, None]


class Attention:
    def __init__(self, softmax):
        self.softmax = softmax

    def __call__(self, q, k, v):
        scores = self.match(q, k)
        return self.softmax(scores) @ v

    @staticmethod
    def match(q, k):
        return (q @ k.T) * (1.0 / np.sqrt(q.shape[-1]))


def _softmax(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def by_chained_functions(q, k, v):
    steps = (lambda s: s / np.sqrt(q.shape[1]), partial(_softmax, axis=1), lambda w: w @ v)
    return reduce(lambda x, step: step(x), steps, q @ k.T)


by_class = Attention(partial(_softmax, axis=-1))

RIGHT = [
    by_matmul, by_dot, by_scaled_queries, by_einsum, by_normalising_last, by_column_of_ones,
    by_scalar_loops, by_python_lists, by_loop_over_queries, by_average, by_broadcasting,
    by_tensordot, by_logsumexp, by_exp2, by_differences, as_transposed_view, in_fortran_order,
    by_sorting_keys, by_longdouble, by_online_keys, by_recursion_over_keys, by_vectorize,
    by_apply_along_axis, by_add_at, by_chained_functions, by_class,
]  # fmt: skip
