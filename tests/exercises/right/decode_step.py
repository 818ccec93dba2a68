"""Right ways to decode one token with a KV cache."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def by_concatenate_and_repeat(x, k_past, v_past, params, num_heads):
    def split(projected, heads):
        B, T, width = projected.shape
        return projected.reshape(B, T, heads, width // heads).transpose(0, 2, 1, 3)

    H_kv = k_past.shape[1]
    q = split(x @ params.w_q + params.b_q, num_heads)
    k = np.concatenate([k_past, split(x @ params.w_k + params.b_k, H_kv)], axis=2)
    v = np.concatenate([v_past, split(x @ params.w_v + params.b_v, H_kv)], axis=2)
    G = num_heads // H_kv
    scores = q @ np.repeat(k, G, axis=1).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    heads = _softmax(scores) @ np.repeat(v, G, axis=1)
    out = heads.transpose(0, 2, 1, 3).reshape(len(x), 1, -1) @ params.w_o + params.b_o
    return out, k, v


def by_five_axes(x, k_past, v_past, params, num_heads):
    B, H_kv, _, d = k_past.shape
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, num_heads // H_kv, 1, d)
    k_new = (x @ params.w_k + params.b_k).reshape(B, H_kv, 1, d)
    v_new = (x @ params.w_v + params.b_v).reshape(B, H_kv, 1, d)
    k, v = np.append(k_past, k_new, axis=2), np.append(v_past, v_new, axis=2)
    weights = _softmax(q @ k[:, :, None].swapaxes(-1, -2) / math.sqrt(d))
    heads = weights @ v[:, :, None]
    return [heads.reshape(B, 1, -1) @ params.w_o + params.b_o, k, v]


def by_einsum(x, k_past, v_past, params, num_heads):
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = params
    B, H_kv, T, d = k_past.shape
    token = x[:, 0]
    q = (np.einsum("bi,io->bo", token, w_q) + b_q).reshape(B, H_kv, -1, d)
    k, v = np.zeros((2, B, H_kv, T + 1, d))
    k[:, :, :T], v[:, :, :T] = k_past, v_past
    k[:, :, T] = (np.einsum("bi,io->bo", token, w_k) + b_k).reshape(B, H_kv, d)
    v[:, :, T] = (np.einsum("bi,io->bo", token, w_v) + b_v).reshape(B, H_kv, d)
    weights = _softmax(np.einsum("bngd,bntd->bngt", q, k) * d**-0.5)
    merged = np.einsum("bngt,bntd->bngd", weights, v).reshape(B, 1, -1)
    return {"out": np.einsum("bqm,mo->bqo", merged, w_o) + b_o, "k": k, "v": v}


def by_index(x, k_past, v_past, params, num_heads):
    B, H_kv = k_past.shape[:2]
    q = np.moveaxis((x @ params.w_q + params.b_q).reshape(B, 1, num_heads, -1), 2, 1)
    k_new = np.moveaxis((x @ params.w_k + params.b_k).reshape(B, 1, H_kv, -1), 2, 1)
    v_new = np.moveaxis((x @ params.w_v + params.b_v).reshape(B, 1, H_kv, -1), 2, 1)
    k, v = np.dstack([k_past, k_new]), np.dstack([v_past, v_new])
    shared = np.arange(num_heads) // (num_heads // H_kv)
    weights = _softmax(q @ k[:, shared].swapaxes(2, 3) / np.sqrt(q.shape[-1]))
    heads = weights @ v[:, shared]
    return np.moveaxis(heads, 1, 2).reshape(B, 1, -1) @ params.w_o + params.b_o, k, v


def by_loop_over_heads(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    k, v = np.empty((B, H_kv, T + 1, d)), np.empty((B, H_kv, T + 1, d))
    for n in range(H_kv):
        s = slice(n * d, (n + 1) * d)
        k[:, n, :-1], k[:, n, -1] = k_past[:, n], x[:, 0] @ params.w_k[:, s] + params.b_k[s]
        v[:, n, :-1], v[:, n, -1] = v_past[:, n], x[:, 0] @ params.w_v[:, s] + params.b_v[s]
    merged = np.empty((B, 1, num_heads * d))
    for h in range(num_heads):
        n, s = h // (num_heads // H_kv), slice(h * d, (h + 1) * d)
        q = x @ params.w_q[:, s] + params.b_q[s]
        merged[..., s] = _softmax(q @ k[:, n].transpose(0, 2, 1) / np.sqrt(d)) @ v[:, n]
    return merged @ params.w_o + params.b_o, k, v


def by_loop_over_sequences(x, k_past, v_past, params, num_heads):
    H_kv, d = k_past.shape[1], k_past.shape[3]
    outs, ks, vs = [], [], []
    for token, k_b, v_b in zip(x[:, 0], k_past, v_past, strict=True):
        q = np.split(token @ params.w_q + params.b_q, num_heads)
        k = [
            np.vstack([old, new])
            for old, new in zip(k_b, np.split(token @ params.w_k + params.b_k, H_kv), strict=True)
        ]
        v = [
            np.vstack([old, new])
            for old, new in zip(v_b, np.split(token @ params.w_v + params.b_v, H_kv), strict=True)
        ]
        heads = []
        for h in range(num_heads):
            n = h * H_kv // num_heads
            heads.append(_softmax(k[n] @ q[h] / d**0.5) @ v[n])
        outs.append([np.concatenate(heads) @ params.w_o + params.b_o])
        ks.append(k)
        vs.append(v)
    return np.array(outs), np.array(ks), np.array(vs)


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


def by_groups_below_each_other(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    q, k_new, v_new = (
        (x @ w + b).reshape(B, H_kv, -1, d) for w, b in (params[:2], params[2:4], params[4:6])
    )
    k, v = np.concatenate((k_past, k_new), axis=-2), np.concatenate((v_past, v_new), axis=-2)
    merged = (_softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(d)) @ v).reshape(B, 1, -1)
    return merged @ params[-2] + params[-1], k, v


def by_broadcasting(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape

    def project(w, b):
        return (x[:, 0, :, None] * w).sum(axis=1) + b

    k = np.pad(k_past, ((0, 0), (0, 0), (0, 1), (0, 0)))
    v = np.pad(v_past, ((0, 0), (0, 0), (0, 1), (0, 0)))
    k[:, :, -1] += project(params.w_k, params.b_k).reshape(B, H_kv, d)
    v[:, :, -1] += project(params.w_v, params.b_v).reshape(B, H_kv, d)
    q = project(params.w_q, params.b_q).reshape(B, H_kv, -1, 1, d)
    scores = (q * k[:, :, None]).sum(axis=-1) / np.sqrt(d)  # (B, H_kv, G, T + 1)
    heads = (_softmax(scores)[..., None] * v[:, :, None]).sum(axis=-2)
    merged = heads.reshape(B, -1)
    return ((merged[..., None] * params.w_o).sum(axis=1) + params.b_o)[:, None], k, v


def by_tensordot(x, k_past, v_past, params, num_heads):
    B, H_kv, _, d = k_past.shape
    D = x.shape[-1]
    k_new = np.tensordot(x, params.w_k.reshape(D, H_kv, d), axes=1) + params.b_k.reshape(H_kv, d)
    v_new = np.tensordot(x, params.w_v.reshape(D, H_kv, d), axes=1) + params.b_v.reshape(H_kv, d)
    q = np.tensordot(x, params.w_q.reshape(D, num_heads, d), axes=1)
    q = q + params.b_q.reshape(num_heads, d)  # (B, 1, H, d)
    k = np.concatenate([k_past, np.rollaxis(k_new, 2, 1)], axis=2)
    v = np.concatenate([v_past, np.rollaxis(v_new, 2, 1)], axis=2)
    reads = np.arange(num_heads) * H_kv // num_heads
    weights = _softmax(np.einsum("bqhd,bhtd->bhqt", q, k[:, reads]) / np.sqrt(d))
    heads = np.einsum("bhqt,bhtd->bqhd", weights, v[:, reads])
    return np.tensordot(heads, params.w_o.reshape(num_heads, d, -1), axes=2) + params.b_o, k, v


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


def by_online_keys(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    q, k_new, v_new = (
        (x[:, 0] @ getattr(params, f"w_{c}") + getattr(params, f"b_{c}")).reshape(B, H_kv, -1, d)
        for c in "qkv"
    )
    k, v = np.concatenate([k_past, k_new], axis=2), np.concatenate([v_past, v_new], axis=2)
    largest, total, mixed = -np.inf, 0.0, 0.0
    for t in range(T + 1):
        score = (q * k[:, :, t, None]).sum(axis=-1, keepdims=True) / np.sqrt(d)
        new = np.maximum(largest, score)
        kept, power = np.exp(largest - new), np.exp(score - new)
        total, mixed = total * kept + power, mixed * kept + power * v[:, :, t, None]
        largest = new
    out = (mixed / total).reshape(B, 1, -1) @ params.w_o + params.b_o
    return out, k, v


def by_logsumexp(x, k_past, v_past, params, num_heads):
    H_kv = k_past.shape[1]
    k_new, v_new = (
        np.stack(np.split(x @ w + b, H_kv, axis=-1), axis=1) for w, b in (params[2:4], params[4:6])
    )
    k, v = (np.concatenate(pair, axis=2) for pair in ((k_past, k_new), (v_past, v_new)))
    out = np.tile(params.b_o, (len(x), 1, 1))
    for h, (w_q, b_q, w_o) in enumerate(
        zip(
            np.hsplit(params.w_q, num_heads),
            np.split(params.b_q, num_heads),
            np.vsplit(params.w_o, num_heads),
            strict=True,
        )
    ):
        n = h // (num_heads // H_kv)
        scores = (x @ w_q + b_q) @ k[:, n].swapaxes(1, 2) / math.sqrt(len(b_q))
        weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
        out += weights @ v[:, n] @ w_o
    return out, k, v


def by_ones_column_for_biases(x, k_past, v_past, params, num_heads):
    def affine(x, w, b):
        return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1) @ np.vstack([w, b])

    B, H_kv, T, d = k_past.shape
    w, b = np.hstack(params[:6:2]), np.hstack(params[1:6:2])
    q, k, v = np.split(affine(x, w, b), [num_heads * d, (num_heads + H_kv) * d], axis=-1)
    k = np.concatenate([k_past, k.reshape(B, H_kv, 1, d)], axis=2)
    v = np.concatenate([v_past, v.reshape(B, H_kv, 1, d)], axis=2)
    weights = _softmax(q.reshape(B, H_kv, -1, d) @ k.swapaxes(-1, -2) / np.sqrt(d))
    return affine((weights @ v).reshape(B, 1, -1), params.w_o, params.b_o), k, v


def by_insert(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    k = np.insert(k_past, T, (x[:, 0] @ params.w_k + params.b_k).reshape(B, H_kv, d), axis=2)
    v = np.insert(v_past, T, (x[:, 0] @ params.w_v + params.b_v).reshape(B, H_kv, d), axis=2)
    q = (x @ params.w_q + params.b_q).reshape(B, num_heads, 1, d)
    scores = q @ k.repeat(num_heads // H_kv, axis=1).swapaxes(2, 3) / np.sqrt(d)
    heads = _softmax(scores) @ v.repeat(num_heads // H_kv, axis=1)
    return heads.reshape(B, 1, num_heads * d) @ params.w_o + params.b_o, k, v


def by_vectorize(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    grown = np.vectorize(lambda old, new: np.vstack([old, new]), signature="(t,d),(d)->(n,d)")
    k = grown(k_past, (x @ params.w_k + params.b_k).reshape(B, H_kv, d))
    v = grown(v_past, (x @ params.w_v + params.b_v).reshape(B, H_kv, d))
    attend = np.vectorize(
        lambda q, k, v: _softmax(k @ q / np.sqrt(len(q))) @ v, signature="(d),(t,d),(t,d)->(d)"
    )
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, -1, d)
    merged = attend(q, k[:, :, None], v[:, :, None]).reshape(B, 1, -1)
    return merged @ params.w_o + params.b_o, k, v


def by_longdouble(x, k_past, v_past, params, num_heads):
    wide = [np.asarray(array, dtype=np.longdouble) for array in (x, k_past, v_past)]
    wide_params = type(params)(*(np.asarray(array, dtype=np.longdouble) for array in params))
    results = by_broadcasting(*wide, wide_params, num_heads)
    return tuple(result.astype(np.float64) for result in results)


class Decoded(NamedTuple):
    out: np.ndarray
    k: np.ndarray
    v: np.ndarray


def as_own_named_tuple(x, k_past, v_past, params, num_heads):
    return Decoded(*by_groups_below_each_other(x, k_past, v_past, params, num_heads))


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


def in_fortran_order(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    k, v = (np.empty((B, H_kv, T + 1, d), order="F") for _ in "kv")
    for store, past, w, b in (
        (k, k_past, params.w_k, params.b_k),
        (v, v_past, params.w_v, params.b_v),
    ):
        store[:, :, :T] = past
        store[:, :, T:] = (x @ w + b).reshape(B, 1, H_kv, d).transpose(0, 2, 1, 3)
    q = (x @ params.w_q + params.b_q).reshape(B, 1, num_heads, d).transpose(0, 2, 1, 3)
    G = num_heads // H_kv
    heads = [
        _softmax(q[:, h] @ k[:, h // G].swapaxes(1, 2) / np.sqrt(d)) @ v[:, h // G]
        for h in range(num_heads)
    ]
    return np.asfortranarray(np.dstack(heads) @ params.w_o + params.b_o), k, v


class Decoder:
    def __call__(self, x, k_past, v_past, params, num_heads):
        self.params, self.d = params, k_past.shape[-1]
        k = np.concatenate([k_past, self.split("k", x)], axis=2)
        v = np.concatenate([v_past, self.split("v", x)], axis=2)
        return self.merge(self.attend(self.split("q", x), k, v)), k, v

    def split(self, name, x):
        projected = x @ getattr(self.params, "w_" + name) + getattr(self.params, "b_" + name)
        return projected.reshape(len(x), 1, -1, self.d).swapaxes(1, 2)

    def attend(self, q, k, v):
        G = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
        return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(self.d)) @ v

    def merge(self, heads):
        merged = heads.swapaxes(1, 2).reshape(len(heads), 1, -1)
        return merged @ self.params.w_o + self.params.b_o


def _decode(softmax, join, x, k_past, v_past, params, num_heads):
    B, H_kv, _, d = k_past.shape
    k = join([k_past, (x @ params.w_k + params.b_k).reshape(B, H_kv, 1, d)])
    v = join([v_past, (x @ params.w_v + params.b_v).reshape(B, H_kv, 1, d)])
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, num_heads // H_kv, d)
    merged = np.matmul(softmax(np.matmul(q, k.transpose(0, 1, 3, 2)) * d**-0.5), v)
    return merged.reshape(B, 1, -1) @ params.w_o + params.b_o, k, v


by_class = Decoder()
by_partial = partial(_decode, _softmax, partial(np.concatenate, axis=2))

RIGHT = [
    by_concatenate_and_repeat, by_five_axes, by_einsum, by_index, by_loop_over_heads,
    by_loop_over_sequences, by_scalar_loops, by_groups_below_each_other, by_broadcasting,
    by_tensordot, by_old_and_new_apart, by_online_keys, by_logsumexp, by_ones_column_for_biases,
    by_insert, by_vectorize, by_longdouble, as_own_named_tuple, as_views, in_fortran_order,
    by_class, by_partial,
]  # fmt: skip
