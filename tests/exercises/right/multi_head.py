"""Right ways to write multi-head self-attention with a mask."""

import math
from functools import partial

import numpy as np


def _softmax(scores, mask):
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max(axis=-1, keepdims=True)
    powers = np.exp(masked - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def by_reshape_and_transpose(x, params, num_heads, mask):
    B, T, _ = x.shape

    def split(projected):
        return projected.reshape(B, T, num_heads, -1).transpose(0, 2, 1, 3)

    q = split(x @ params.w_q + params.b_q)
    k = split(x @ params.w_k + params.b_k)
    v = split(x @ params.w_v + params.b_v)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    heads = _softmax(scores, mask) @ v
    return heads.transpose(0, 2, 1, 3).reshape(B, T, -1) @ params.w_o + params.b_o


def by_einsum(x, params, num_heads, mask):
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = params
    D = x.shape[-1]
    d = w_q.shape[1] // num_heads
    q = np.einsum("btm,mhd->bhtd", x, w_q.reshape(D, num_heads, d)) + b_q.reshape(num_heads, 1, d)
    k = np.einsum("btm,mhd->bhtd", x, w_k.reshape(D, num_heads, d)) + b_k.reshape(num_heads, 1, d)
    v = np.einsum("btm,mhd->bhtd", x, w_v.reshape(D, num_heads, -1)) + b_v.reshape(num_heads, 1, -1)
    weights = _softmax(np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(d), mask)
    heads = np.einsum("bhij,bhjd->bhid", weights, v)
    return np.einsum("bhid,hdm->bim", heads, w_o.reshape(num_heads, -1, w_o.shape[1])) + b_o


def by_loop_over_heads(x, params, num_heads, mask):
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads
    heads = []
    for h in range(num_heads):
        columns, v_columns = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        q = x @ params.w_q[:, columns] + params.b_q[columns]
        k = x @ params.w_k[:, columns] + params.b_k[columns]
        v = x @ params.w_v[:, v_columns] + params.b_v[v_columns]
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(d_k)
        heads.append(_softmax(scores, mask) @ v)
    return np.concatenate(heads, axis=-1) @ params.w_o + params.b_o


def by_sum_of_projected_heads(x, params, num_heads, mask):
    parts = [np.split(array, num_heads, axis=-1) for array in params[:6]]
    out = np.zeros((*x.shape[:2], params.w_o.shape[1]))
    for h, w_o in enumerate(np.split(params.w_o, num_heads)):
        w_q, b_q, w_k, b_k, w_v, b_v = (part[h] for part in parts)
        q, k, v = x @ w_q + b_q, x @ w_k + b_k, x @ w_v + b_v
        weights = _softmax(q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5, mask)
        out += weights @ v @ w_o
    return out + params.b_o


def by_loop_over_sequences(x, params, num_heads, mask):
    p = params._asdict()
    out = np.empty((len(x), x.shape[1], p["w_o"].shape[1]))
    for b, tokens in enumerate(x):
        q, k, v = (tokens.dot(p[f"w_{name}"]) + p[f"b_{name}"] for name in "qkv")
        heads = [
            _softmax(q_h.dot(k_h.T) / np.sqrt(q_h.shape[1]), mask).dot(v_h)
            for q_h, k_h, v_h in zip(*(np.hsplit(a, num_heads) for a in (q, k, v)), strict=True)
        ]
        out[b] = np.hstack(heads).dot(p["w_o"]) + p["b_o"]
    return out


def by_loop_over_sequences_and_heads(x, params, num_heads, mask):
    q = np.dot(x, params.w_q) + params.b_q
    k = np.dot(x, params.w_k) + params.b_k
    v = np.dot(x, params.w_v) + params.b_v
    d_k, d_v = q.shape[-1] // num_heads, v.shape[-1] // num_heads
    merged = np.zeros_like(v)
    for b in range(len(x)):
        for h in range(num_heads):
            q_h, k_h = (a[b, :, d_k * h : d_k * (h + 1)] for a in (q, k))
            weights = _softmax(np.inner(q_h, k_h) / np.sqrt(d_k), mask)
            columns = slice(d_v * h, d_v * (h + 1))
            merged[b, :, columns] = weights @ v[b, :, columns]
    return merged @ params.w_o + params.b_o


def by_scalar_loops(x, params, num_heads, mask):
    B, T, _ = x.shape
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads

    def project(x, w, b):
        y = np.zeros((B, T, w.shape[1]))
        for n, t, o in np.ndindex(y.shape):
            y[n, t, o] = b[o] + sum(x[n, t, i] * w[i, o] for i in range(w.shape[0]))
        return y

    q = project(x, params.w_q, params.b_q)
    k = project(x, params.w_k, params.b_k)
    v = project(x, params.w_v, params.b_v)
    merged = np.zeros(v.shape)
    for n, h, i in np.ndindex(B, num_heads, T):
        columns = range(h * d_k, h * d_k + d_k)
        seen = [j for j in range(T) if mask[i, j]]
        scores = [sum(q[n, i, c] * k[n, j, c] for c in columns) / math.sqrt(d_k) for j in seen]
        powers = [math.exp(s - max(scores)) for s in scores]
        for power, j in zip(powers, seen, strict=True):
            for c in range(h * d_v, h * d_v + d_v):
                merged[n, i, c] += power / sum(powers) * v[n, j, c]
    return project(merged, params.w_o, params.b_o)


def by_one_product_for_q_k_v(x, params, num_heads, mask):
    B, T, _ = x.shape
    w = np.concatenate([params.w_q, params.w_k, params.w_v], axis=1)
    b = np.concatenate([params.b_q, params.b_k, params.b_v])
    ends = np.cumsum([params.b_q.size, params.b_k.size])
    q, k, v = (
        part.reshape(B, T, num_heads, -1).swapaxes(1, 2) for part in np.split(x @ w + b, ends, -1)
    )
    weights = _softmax(q @ k.swapaxes(-2, -1) / math.sqrt(q.shape[-1]), mask)
    return (weights @ v).swapaxes(1, 2).reshape(B, T, -1) @ params.w_o + params.b_o


def by_stacked_params(x, params, num_heads, mask):
    w, b = np.stack(params[0:4:2]), np.stack(params[1:4:2])
    q, k = np.einsum("btm,nmd->nbtd", x, w) + b[:, None, None]
    v = np.einsum("btm,md->btd", x, params[4]) + params[5]
    q, k, v = (np.stack(np.split(a, num_heads, axis=2), axis=1) for a in (q, k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q / np.sqrt(q.shape[-1]), k)
    heads = _softmax(scores, mask) @ v
    return np.concatenate(list(np.moveaxis(heads, 1, 0)), axis=-1) @ params[6] + params[7]


def by_ones_column_for_biases(x, params, num_heads, mask):
    def affine(x, w, b):
        return np.append(x, np.ones((*x.shape[:-1], 1)), axis=-1) @ np.vstack([w, b])

    q, k, v = (
        np.moveaxis(affine(x, w, b).reshape(*x.shape[:2], num_heads, -1), 2, 1)
        for w, b in (params[0:2], params[2:4], params[4:6])
    )
    heads = _softmax(q @ np.moveaxis(k, -1, -2) / np.sqrt(k.shape[-1]), mask) @ v
    return affine(np.moveaxis(heads, 1, 2).reshape(*x.shape[:2], -1), params.w_o, params.b_o)


def by_folded_params(x, params, num_heads, mask):
    w_q, b_q, w_k, b_k, w_v, b_v = (np.split(array, num_heads, axis=-1) for array in params[:6])
    out = np.zeros(x.shape) + params.b_o
    for h, w_o in enumerate(np.split(params.w_o, num_heads, axis=0)):
        scores = x @ (w_q[h] @ w_k[h].T) @ x.swapaxes(1, 2)
        scores = scores + x @ (w_q[h] @ b_k[h])[:, None]
        scores = scores + (x @ (w_k[h] @ b_q[h]))[:, None, :] + b_q[h] @ b_k[h]
        weights = _softmax(scores / np.sqrt(len(b_q[h])), mask)
        out = out + weights @ (x @ (w_v[h] @ w_o) + b_v[h] @ w_o)
    return out


def by_selecting_features(x, params, num_heads, mask):
    q, k, v = (x @ w + b for w, b in zip(params[:6:2], params[1:6:2], strict=True))
    merged = np.zeros(v.shape)
    for h in range(num_heads):
        q_is_of_head, v_is_of_head = (
            np.arange(a.shape[-1]) * num_heads // a.shape[-1] == h for a in (q, v)
        )
        scores = (q * q_is_of_head) @ k.swapaxes(-1, -2) / np.sqrt(q_is_of_head.sum())
        merged += _softmax(scores, mask) @ (v * v_is_of_head)
    return merged @ params.w_o + params.b_o


def by_tensordot(x, params, num_heads, mask):
    D = x.shape[-1]
    q, k, v = (
        np.tensordot(x, w.reshape(D, num_heads, -1), axes=1) + b.reshape(num_heads, -1)
        for w, b in ((params.w_q, params.b_q), (params.w_k, params.b_k), (params.w_v, params.b_v))
    )  # (B, T, H, d)
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    heads = np.einsum("bhij,bjhd->bihd", _softmax(scores, mask), v)
    w_o = params.w_o.reshape(num_heads, -1, params.w_o.shape[-1])
    return np.tensordot(heads, w_o, axes=([2, 3], [0, 1])) + params.b_o


def by_broadcasting(x, params, num_heads, mask):
    def project(x, w, b):
        return (x[..., None] * w).sum(axis=-2) + b

    shape = (*x.shape[:2], num_heads, -1)
    q = project(x, params.w_q, params.b_q).reshape(shape)
    k = project(x, params.w_k, params.b_k).reshape(shape)
    v = project(x, params.w_v, params.b_v).reshape(shape)
    scores = (q[:, :, None] * k[:, None]).sum(axis=-1) / np.sqrt(q.shape[-1])  # (B, T, T, H)
    weights = _softmax(np.moveaxis(scores, 3, 1), mask)
    heads = (np.moveaxis(weights, 1, 3)[..., None] * v[:, None]).sum(axis=2)
    return project(heads.reshape(*x.shape[:2], -1), params.w_o, params.b_o)


def by_flat_tokens(x, params, num_heads, mask):
    B, T, D = x.shape
    rows = x.reshape(B * T, D)
    q, k, v = (
        (rows @ getattr(params, "w_" + c) + getattr(params, "b_" + c))
        .reshape(B, T, num_heads, -1)
        .swapaxes(1, 2)
        .reshape(B * num_heads, T, -1)
        for c in "qkv"
    )
    weights = _softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), mask[None])
    merged = (weights @ v).reshape(B, num_heads, T, -1).swapaxes(1, 2).reshape(B * T, -1)
    return (merged @ params.w_o + params.b_o).reshape(B, T, -1)


def by_loop_over_queries(x, params, num_heads, mask):
    B, T, D = x.shape
    k = (x @ params.w_k + params.b_k).reshape(B, T, num_heads, -1)
    v = (x @ params.w_v + params.b_v).reshape(B, T, num_heads, -1)
    out = []
    for t in range(T):
        q = (x[:, t] @ params.w_q + params.b_q).reshape(B, num_heads, -1)
        seen = mask[t]
        if not seen.any():
            out.append(np.tile(params.b_o, (B, 1)))
            continue
        scores = np.einsum("bhd,bkhd->bhk", q, k[:, seen]) / np.sqrt(q.shape[-1])
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads = np.einsum("bhk,bkhd->bhd", powers, v[:, seen]) / powers.sum(-1, keepdims=True)
        out.append(heads.reshape(B, -1) @ params.w_o + params.b_o)
    return np.stack(out, axis=1)


def by_recursion_over_heads(x, params, num_heads, mask):
    def attend(h):
        if h == 0:
            return params.b_o
        w_q, b_q, w_k, b_k, w_v, b_v = (np.split(a, num_heads, axis=-1)[h - 1] for a in params[:6])
        scores = (x @ w_q + b_q) @ (x @ w_k + b_k).swapaxes(1, 2) / np.sqrt(b_q.size)
        head = _softmax(scores, mask) @ (x @ w_v + b_v)
        return attend(h - 1) + head @ np.split(params.w_o, num_heads)[h - 1]

    return attend(num_heads)


def by_vectorize(x, params, num_heads, mask):
    def attend(q, k, v):
        return _softmax(q @ k.T / np.sqrt(q.shape[1]), mask) @ v

    projected = (x @ params[i] + params[i + 1] for i in (0, 2, 4))
    q, k, v = (np.stack(np.dsplit(array, num_heads), axis=1) for array in projected)
    heads = np.vectorize(attend, signature="(t,d),(t,d),(t,e)->(t,e)")(q, k, v)
    return np.dstack([heads[:, h] for h in range(num_heads)]) @ params.w_o + params.b_o


def by_logsumexp(x, params, num_heads, mask):
    def heads_of(w, b):
        return np.rollaxis((x @ w + b).reshape(*x.shape[:-1], num_heads, -1), 2, 1)

    q, k, v = heads_of(*params[:2]), heads_of(*params[2:4]), heads_of(*params[4:6])
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    heads = np.exp(scores - np.where(np.isinf(lse), 0, lse)) @ v
    return np.einsum("bhtd->bthd", heads).reshape(*x.shape[:2], -1) @ params.w_o + params.b_o


def by_masked_array(x, params, num_heads, mask):
    B, T, _ = x.shape
    q, k, v = (
        (x @ w + b).reshape(B, T, num_heads, -1).swapaxes(1, 2)
        for w, b in zip(params[::2][:3], params[1::2][:3], strict=True)
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    scores = np.ma.array(scores, mask=np.broadcast_to(~mask, scores.shape))
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.ma.filled(powers / powers.sum(axis=-1, keepdims=True), 0)
    return (weights @ v).swapaxes(1, 2).reshape(B, T, -1) @ params.w_o + params.b_o


def by_longdouble(x, params, num_heads, mask):
    x = x.astype(np.longdouble)
    p = type(params)(*(array.astype(np.longdouble) for array in params))
    out = by_tensordot(x, p, num_heads, mask)
    return out.astype(np.float64)


def in_fortran_order(x, params, num_heads, mask):
    out = np.empty((*x.shape[:2], params.w_o.shape[1]), order="F")
    np.add(by_loop_over_heads(x, params, num_heads, mask), 0.0, out=out)
    return out


def as_transposed_view(x, params, num_heads, mask):
    x = x.T  # (D, T, B): features first
    q, k, v = (
        np.einsum("mo,mtb->otb", w, x).reshape(num_heads, -1, *x.shape[1:])
        + b.reshape(num_heads, -1, 1, 1)
        for w, b in (params[:2], params[2:4], params[4:6])
    )
    scores = np.einsum("hdqb,hdkb->bhqk", q, k) / math.sqrt(q.shape[1])
    heads = np.einsum("bhqk,hdkb->hdqb", _softmax(scores, mask), v)
    merged = heads.reshape(-1, *x.shape[1:])
    return (np.einsum("mo,mtb->otb", params.w_o, merged) + params.b_o[:, None, None]).T


class MultiHead:
    def __init__(self, softmax):
        self.softmax = softmax

    def split(self, y):
        B, T, width = y.shape
        return y.reshape(B, T, self.H, width // self.H).swapaxes(1, 2)

    def __call__(self, x, params, num_heads, mask=None):
        self.H = num_heads
        q = self.split(x @ params.w_q + params.b_q)
        k = self.split(x @ params.w_k + params.b_k)
        v = self.split(x @ params.w_v + params.b_v)
        scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)
        heads = self.softmax(scores, mask).__matmul__(v).swapaxes(1, 2)
        return heads.reshape(*x.shape[:2], -1) @ params.w_o + params.b_o


def _multi_head(attend, x, params, num_heads, mask):
    linear = [x @ params[i] + params[i + 1] for i in range(0, 6, 2)]
    split = [np.array_split(array, num_heads, axis=-1) for array in linear]
    merged = np.concatenate([attend(*qkv, mask) for qkv in zip(*split, strict=True)], axis=-1)
    return merged @ params.w_o + params.b_o


def _attend(q, k, v, mask):
    return _softmax(np.einsum("bid,bjd->bij", q, k) / np.sqrt(q.shape[-1]), mask) @ v


by_class = MultiHead(_softmax)
by_partial = partial(_multi_head, _attend)

RIGHT = [
    by_reshape_and_transpose, by_einsum, by_loop_over_heads, by_sum_of_projected_heads,
    by_loop_over_sequences, by_loop_over_sequences_and_heads, by_scalar_loops,
    by_one_product_for_q_k_v, by_stacked_params, by_ones_column_for_biases, by_folded_params,
    by_selecting_features, by_tensordot, by_broadcasting, by_flat_tokens, by_loop_over_queries,
    by_recursion_over_heads, by_vectorize, by_logsumexp, by_masked_array, by_longdouble,
    in_fortran_order, as_transposed_view, by_class, by_partial,
]  # fmt: skip
