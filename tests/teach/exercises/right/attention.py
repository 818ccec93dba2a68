"""Right solutions in unusual styles: attention."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.teach.exercises.right import softmax


def _cap(scores, softcap):
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def attention_by_sorting_keys(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    order = np.argsort(-scores, axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    powers = np.exp(scores - scores[:, :1])
    return np.einsum("qk,qkd->qd", powers / powers.cumsum(axis=1)[:, -1:], v[order])


def attention_by_recursion_over_keys(q, k, v):
    def attend(k, v):
        if len(k) == 1:
            return q @ k[0] / np.sqrt(q.shape[1]), np.tile(v, (len(q), 1))
        half = len(k) // 2
        (lse_a, a), (lse_b, b) = attend(k[:half], v[:half]), attend(k[half:], v[half:])
        lse = np.logaddexp(lse_a, lse_b)
        return lse, np.exp(lse_a - lse)[:, None] * a + np.exp(lse_b - lse)[:, None] * b

    return attend(k, v)[1]


def grouped_attention_by_strides(q, k, v):
    B, H, T_q, d_k = q.shape
    H_kv = k.shape[1]

    def share(x):
        of_b, of_h, of_t, of_i = x.strides
        shape = (B, H_kv, H // H_kv, *x.shape[2:])
        return as_strided(x, shape, (of_b, of_h, 0, of_t, of_i))

    q = q.reshape(B, H_kv, H // H_kv, T_q, d_k)
    scores = np.matmul(q, share(k).transpose(0, 1, 2, 4, 3)) / np.sqrt(d_k)
    return np.matmul(softmax(scores), share(v)).reshape(B, H, T_q, -1)


def grouped_attention_by_kron(q, k, v):
    H, H_kv = q.shape[1], k.shape[1]
    reads = np.kron(np.eye(H_kv), np.ones((H // H_kv, 1)))  # (H, H_kv)
    k, v = np.einsum("hn,bnkd->bhkd", reads, k), np.einsum("hn,bnkd->bhkd", reads, v)
    return softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v


def masked_attention_by_masked_array(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = k.repeat(G, axis=1), v.repeat(G, axis=1)
    scores = _cap(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), softcap)
    scores = np.ma.masked_where(np.broadcast_to(~mask, scores.shape), scores)
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights.filled(0) @ v


def masked_attention_by_repairing_nan_with_warnings(q, k, v, mask, softcap):
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    v = np.repeat(v, q.shape[1] // v.shape[1], axis=1)
    scores = _cap(np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]), softcap)
    scores = np.where(mask, scores, float("-inf"))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers @ v / powers.sum(axis=-1, keepdims=True)
    heads[np.isnan(heads)] = 0.0
    return heads


def one_query_by_logsumexp(q, k, v):
    scores = np.einsum("c,jc->j", q, k) / len(q) ** 0.5
    return np.einsum("j,jn->n", np.exp(scores - np.logaddexp.reduce(scores)), v)


def scores_by_out_argument(q, k):
    scores = np.empty(q.shape[:-1] + k.shape[-2:-1])
    np.matmul(q, k.swapaxes(-1, -2), out=scores)
    np.divide(scores, np.sqrt(q.shape[-1]), out=scores)
    return scores


def scores_by_tensordot_and_diagonal(q, k):
    B, H = q.shape[:2]
    all_pairs = np.tensordot(q, k, axes=(3, 3))  # (B, H, T_q, B, H, T_k)
    b, h = np.ogrid[:B, :H]
    return all_pairs[b, h, :, b, h] / np.sqrt(q.shape[-1])


def scores_by_recursion_over_features(q, k):
    def dot(a, b):
        if a.shape[-1] == 1:
            return a * b.swapaxes(-1, -2)
        half = a.shape[-1] // 2
        return dot(a[..., :half], b[..., :half]) + dot(a[..., half:], b[..., half:])

    return dot(q, k) / np.sqrt(q.shape[-1])


def softmax_by_repairing_nan_with_warnings(scores, mask):
    x = scores.copy()
    if mask is not None:
        x[~mask] = -np.inf
    e = np.exp(x - x.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w[np.isnan(w)] = 0
    return w


def softmax_by_masked_array(scores, mask):
    hidden = np.zeros(scores.shape, dtype=bool) if mask is None else ~mask
    masked = np.ma.masked_array(scores, hidden)
    powers = np.ma.exp(masked - masked.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).filled(0.0)


def softmax_by_differences(scores, mask):
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.exp(masked[..., None, :] - masked[..., :, None])  # of l to j
        weights = 1 / ratios.sum(axis=-1)
    return np.where(masked == -np.inf, 0.0, weights)


def softmax_with_lse_by_masked_array(scores, mask):
    hidden = np.ma.nomask if mask is None else ~mask
    masked = np.ma.array(scores, mask=hidden)
    largest = masked.max(axis=-1)
    powers = np.ma.exp(masked - np.ma.expand_dims(largest, -1))
    total = powers.sum(axis=-1)
    lse = np.ma.filled(largest + np.ma.log(total), -np.inf)
    return np.ma.filled(powers / np.ma.expand_dims(total, -1), 0.0), np.asarray(lse)


def softmax_with_lse_as_views_of_one_array(scores, mask):
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
