"""Right ways to decode one token with a KV cache."""

import math

import numpy as np


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def by_scalar_loops(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape

    def project(token, w, b):
        return [sum(token[i] * w[i, o] for i in range(len(w))) + b[o] for o in range(len(b))]

    k, v = np.zeros((B, H_kv, T + 1, d)), np.zeros((B, H_kv, T + 1, d))
    out = np.zeros((B, 1, len(params.b_o)))
    for n in range(B):
        q = project(x[n, 0], params.w_q, params.b_q)
        new_k = project(x[n, 0], params.w_k, params.b_k)
        new_v = project(x[n, 0], params.w_v, params.b_v)
        for g in range(H_kv):
            for t in range(T + 1):
                for i in range(d):
                    k[n, g, t, i] = k_past[n, g, t, i] if t < T else new_k[g * d + i]
                    v[n, g, t, i] = v_past[n, g, t, i] if t < T else new_v[g * d + i]
        merged = []
        for h in range(num_heads):
            g = h // (num_heads // H_kv)
            scores = [
                sum(q[h * d + i] * k[n, g, t, i] for i in range(d)) / math.sqrt(d)
                for t in range(T + 1)
            ]
            powers = [math.exp(s - max(scores)) for s in scores]
            for i in range(d):
                mixed = sum(p * v[n, g, t, i] for t, p in enumerate(powers))
                merged.append(mixed / sum(powers))
        out[n, 0] = project(merged, params.w_o, params.b_o)
    return out, k, v


def by_old_and_new_apart(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, -1, d) / np.sqrt(d)
    k_new = (x @ params.w_k + params.b_k).reshape(B, H_kv, 1, d)
    v_new = (x @ params.w_v + params.b_v).reshape(B, H_kv, 1, d)
    old, new = q @ k_past.swapaxes(2, 3), q @ k_new.swapaxes(2, 3)
    top = old.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.maximum(top, new)
    old, new = np.exp(old - top), np.exp(new - top)
    heads = (old @ v_past + new * v_new) / (old.sum(axis=-1, keepdims=True) + new)
    out = heads.reshape(B, 1, -1) @ params.w_o + params.b_o
    return out, np.concatenate([k_past, k_new], axis=2), np.concatenate([v_past, v_new], axis=2)


def by_logsumexp(x, k_past, v_past, params, num_heads):
    B, H_kv, _, d = k_past.shape
    k_new = (x @ params.w_k + params.b_k).reshape(B, H_kv, 1, d)
    v_new = (x @ params.w_v + params.b_v).reshape(B, H_kv, 1, d)
    k, v = np.append(k_past, k_new, axis=2), np.append(v_past, v_new, axis=2)
    out = np.tile(params.b_o, (B, 1, 1))
    for h in range(num_heads):
        n, columns = h // (num_heads // H_kv), slice(h * d, (h + 1) * d)
        q = x @ params.w_q[:, columns] + params.b_q[columns]
        scores = q @ k[:, n].swapaxes(1, 2) / math.sqrt(d)
        weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
        out += weights @ v[:, n] @ params.w_o[columns]
    return [out, k, v]


def as_views(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    store = np.empty((T + 8, 2, H_kv, B, d))  # room for more tokens, tokens first
    store[:T, 0], store[:T, 1] = k_past.transpose(2, 1, 0, 3), v_past.transpose(2, 1, 0, 3)
    store[T, 0] = (x[:, 0] @ params.w_k + params.b_k).reshape(B, H_kv, d).swapaxes(0, 1)
    store[T, 1] = (x[:, 0] @ params.w_v + params.b_v).reshape(B, H_kv, d).swapaxes(0, 1)
    k, v = store[: T + 1].transpose(1, 3, 2, 0, 4)
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, -1, d)
    merged = (_softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d)) @ v).reshape(B, 1, -1)
    return merged @ params.w_o + params.b_o, k, v


RIGHT = [
    by_scalar_loops,
    by_old_and_new_apart,
    by_logsumexp,
    as_views,
]
