"""Right ways to attend from one sequence to another."""

import math
from functools import partial

import numpy as np


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def by_reshape_and_transpose(y, x, params, num_heads):
    def split(projected):
        B, T, width = projected.shape
        return projected.reshape(B, T, num_heads, width // num_heads).transpose(0, 2, 1, 3)

    q = split(y @ params.w_q + params.b_q)
    k = split(x @ params.w_k + params.b_k)
    v = split(x @ params.w_v + params.b_v)
    heads = _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    merged = heads.transpose(0, 2, 1, 3).reshape(*y.shape[:2], -1)
    return merged @ params.w_o + params.b_o


def by_einsum(y, x, params, num_heads):
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = params

    def project(x, w, b):
        w, b = w.reshape(len(w), num_heads, -1), b.reshape(num_heads, 1, -1)
        return np.einsum("btm,mhd->bhtd", x, w) + b

    q, k, v = project(y, w_q, b_q), project(x, w_k, b_k), project(x, w_v, b_v)
    weights = _softmax(np.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5)
    w_o = w_o.reshape(num_heads, -1, w_o.shape[-1])
    return np.einsum("bhqk,bhkd,hdo->bqo", weights, v, w_o, optimize=True) + b_o


def by_loop_over_heads(y, x, params, num_heads):
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads
    merged = np.empty((*y.shape[:2], params.w_o.shape[0]))
    for h in range(num_heads):
        s, v_s = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        q = y @ params.w_q[:, s] + params.b_q[s]
        k = x @ params.w_k[:, s] + params.b_k[s]
        v = x @ params.w_v[:, v_s] + params.b_v[v_s]
        merged[:, :, v_s] = _softmax(q @ k.transpose(0, 2, 1) / math.sqrt(d_k)) @ v
    return merged @ params.w_o + params.b_o


def by_sum_of_projected_heads(y, x, params, num_heads):
    split = [np.split(array, num_heads, axis=-1) for array in params[:6]]
    out = params.b_o
    for *arrays, w_o in zip(*split, np.split(params.w_o, num_heads), strict=True):
        w_q, b_q, w_k, b_k, w_v, b_v = arrays
        scores = (y @ w_q + b_q) @ (x @ w_k + b_k).swapaxes(-1, -2) / np.sqrt(b_q.size)
        out = out + _softmax(scores) @ (x @ w_v + b_v) @ w_o
    return out


def by_loop_over_sequences(y, x, params, num_heads):
    out = []
    for asking, source in zip(y, x, strict=True):
        q = np.hsplit(asking.dot(params.w_q) + params.b_q, num_heads)
        k = np.hsplit(source.dot(params.w_k) + params.b_k, num_heads)
        v = np.hsplit(source.dot(params.w_v) + params.b_v, num_heads)
        heads = [_softmax(a @ b.T / np.sqrt(a.shape[1])) @ c for a, b, c in zip(q, k, v)]  # noqa: B905
        out.append(np.hstack(heads) @ params.w_o + params.b_o)
    return np.array(out)


def by_loop_over_sequences_and_heads(y, x, params, num_heads):
    q = np.matmul(y, params.w_q) + params.b_q
    k = np.matmul(x, params.w_k) + params.b_k
    v = np.matmul(x, params.w_v) + params.b_v
    merged = np.zeros((*y.shape[:2], v.shape[-1]))
    for b in range(len(y)):
        for h in range(num_heads):
            q_h, k_h, v_h, out = (np.split(a[b], num_heads, axis=1)[h] for a in (q, k, v, merged))
            out[:] = np.dot(_softmax(np.inner(q_h, k_h) / np.sqrt(q_h.shape[1])), v_h)
    return np.matmul(merged, params.w_o) + params.b_o


def by_scalar_loops(y, x, params, num_heads):
    d_k, d_v = params.w_q.shape[1] // num_heads, params.w_v.shape[1] // num_heads

    def project(token, w, b):
        return [b[o] + sum(token[i] * w[i, o] for i in range(len(w))) for o in range(len(b))]

    out = np.zeros((len(y), y.shape[1], params.w_o.shape[1]))
    for n in range(len(y)):
        k = [project(token, params.w_k, params.b_k) for token in x[n]]
        v = [project(token, params.w_v, params.b_v) for token in x[n]]
        for i in range(y.shape[1]):
            q = project(y[n, i], params.w_q, params.b_q)
            merged = []
            for h in range(num_heads):
                columns = range(h * d_k, h * d_k + d_k)
                scores = [sum(q[c] * key[c] for c in columns) / math.sqrt(d_k) for key in k]
                powers = [math.exp(s - max(scores)) for s in scores]
                for c in range(h * d_v, h * d_v + d_v):
                    mixed = sum(p * value[c] for p, value in zip(powers, v, strict=True))
                    merged.append(mixed / sum(powers))
            out[n, i] = project(merged, params.w_o, params.b_o)
    return out


def by_loop_over_queries(y, x, params, num_heads):
    B, S = x.shape[:2]
    k = (x @ params.w_k + params.b_k).reshape(B, S, num_heads, -1)
    v = (x @ params.w_v + params.b_v).reshape(B, S, num_heads, -1)
    out = np.empty(y.shape[:2] + params.b_o.shape)
    for t in range(y.shape[1]):
        q = (y[:, t] @ params.w_q + params.b_q).reshape(B, 1, num_heads, -1)
        scores = (q * k).sum(axis=-1) / np.sqrt(q.shape[-1])  # (B, S, H)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed = (powers[..., None] * v).sum(axis=1) / powers.sum(axis=1)[..., None]
        out[:, t] = mixed.reshape(B, -1) @ params.w_o + params.b_o
    return out


def by_one_product_for_k_v(y, x, params, num_heads):
    w = np.concatenate([params.w_k, params.w_v], axis=1)
    b = np.concatenate([params.b_k, params.b_v])
    B, S, _ = x.shape
    k, v = (
        np.moveaxis(part.reshape(B, S, num_heads, -1), 2, 1)
        for part in np.split(x @ w + b, [params.b_k.size], axis=-1)
    )
    q = np.moveaxis((y @ params.w_q + params.b_q).reshape(B, -1, num_heads, k.shape[-1]), 2, 1)
    heads = _softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    return np.moveaxis(heads, 1, 2).reshape(B, y.shape[1], -1) @ params.w_o + params.b_o


def by_ones_column_for_biases(y, x, params, num_heads):
    def affine(x, w, b):
        return np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2) @ np.vstack((w, b))

    q = np.dsplit(affine(y, params.w_q, params.b_q), num_heads)
    k = np.dsplit(affine(x, params.w_k, params.b_k), num_heads)
    v = np.dsplit(affine(x, params.w_v, params.b_v), num_heads)
    heads = [
        _softmax(q[h] @ k[h].swapaxes(1, 2) / np.sqrt(q[h].shape[2])) @ v[h]
        for h in range(num_heads)
    ]
    return affine(np.dstack(heads), params.w_o, params.b_o)


def by_leaving_out_b_k(y, x, params, num_heads):
    # a constant for all keys does not change softmax
    B, T, _ = y.shape
    q = (y @ params.w_q + params.b_q).reshape(B, T, num_heads, -1).swapaxes(1, 2)
    k = (x @ params.w_k).reshape(B, x.shape[1], num_heads, -1).swapaxes(1, 2)
    v = (x @ params.w_v).reshape(B, x.shape[1], num_heads, -1).swapaxes(1, 2)
    heads = _softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    merged = heads.swapaxes(1, 2).reshape(B, T, -1) + params.b_v  # weights sum to 1
    return merged @ params.w_o + params.b_o


def by_folded_params(y, x, params, num_heads):
    scores, outs = [], []
    for h in range(num_heads):
        w_q, b_q, w_k, w_v, b_v = (
            np.array_split(array, num_heads, axis=-1)[h]
            for array in (params.w_q, params.b_q, params.w_k, params.w_v, params.b_v)
        )
        w_o = np.array_split(params.w_o, num_heads)[h]
        scores.append((y @ (w_q @ w_k.T) + b_q @ w_k.T) @ x.swapaxes(1, 2) / b_q.size**0.5)
        outs.append(x @ (w_v @ w_o) + b_v @ w_o)
    return (_softmax(np.stack(scores)) @ np.stack(outs)).sum(axis=0) + params.b_o


def by_tensordot(y, x, params, num_heads):
    p = params._asdict()
    q, k, v = (
        np.tensordot(source, p["w_" + c].reshape(source.shape[-1], num_heads, -1), axes=(2, 0))
        + p["b_" + c].reshape(num_heads, -1)
        for source, c in zip((y, x, x), "qkv", strict=True)
    )
    weights = _softmax(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]))
    heads = np.einsum("bhqk,bkhd->bqhd", weights, v)
    w_o = p["w_o"].reshape(*heads.shape[2:], -1)
    return np.tensordot(heads, w_o, axes=2) + p["b_o"]


def by_broadcasting(y, x, params, num_heads):
    def project(x, w, b):
        return ((x[..., None] * w).sum(axis=-2) + b).reshape(*x.shape[:2], num_heads, -1)

    q = project(y, params.w_q, params.b_q)
    k = project(x, params.w_k, params.b_k)
    v = project(x, params.w_v, params.b_v)
    scores = (q[:, :, None] * k[:, None]).sum(-1) / np.sqrt(q.shape[-1])  # (B, T_y, T_x, H)
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights = powers / powers.sum(axis=2, keepdims=True)
    heads = (weights[..., None] * v[:, None]).sum(axis=2)
    merged = heads.reshape(*y.shape[:2], -1)
    return (merged[..., None] * params.w_o).sum(axis=2) + params.b_o


def by_flat_batch_of_heads(y, x, params, num_heads):
    B, T, _ = y.shape

    def split(z, w, b):
        z = (z.reshape(-1, z.shape[-1]) @ w + b).reshape(B, -1, num_heads, len(b) // num_heads)
        return z.transpose(0, 2, 1, 3).reshape(B * num_heads, -1, z.shape[-1])

    q, k, v = split(y, *params[:2]), split(x, *params[2:4]), split(x, *params[4:6])
    heads = _softmax(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])) @ v
    merged = heads.reshape(B, num_heads, T, -1).transpose(0, 2, 1, 3).reshape(B * T, -1)
    return (merged @ params.w_o + params.b_o).reshape(B, T, -1)


def by_self_attention_of_both(y, x, params, num_heads):
    # all tokens in one sequence; queries see the source alone
    T = y.shape[1]
    q = y @ params.w_q + params.b_q
    k, v = (np.pad(x @ w + b, ((0, 0), (T, 0), (0, 0))) for w, b in (params[2:4], params[4:6]))
    q, k, v = (np.stack(np.split(array, num_heads, axis=-1), axis=1) for array in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., :T] = -np.inf
    heads = _softmax(scores) @ v
    return np.concatenate(np.moveaxis(heads, 1, 0), axis=-1) @ params.w_o + params.b_o


def by_online_keys(y, x, params, num_heads):
    B, T, _ = y.shape
    q = (y @ params.w_q + params.b_q).reshape(B, T, num_heads, -1)
    largest, total, mixed = np.full(q.shape[:3], -np.inf), 0.0, 0.0
    for j in range(x.shape[1]):
        k = (x[:, j : j + 1] @ params.w_k + params.b_k).reshape(B, 1, num_heads, -1)
        v = (x[:, j : j + 1] @ params.w_v + params.b_v).reshape(B, 1, num_heads, -1)
        score = (q * k).sum(axis=-1) / np.sqrt(q.shape[-1])
        new = np.maximum(largest, score)
        kept, power = np.exp(largest - new), np.exp(score - new)
        total = total * kept + power
        mixed = mixed * kept[..., None] + power[..., None] * v
        largest = new
    return (mixed / total[..., None]).reshape(B, T, -1) @ params.w_o + params.b_o


def by_vectorize(y, x, params, num_heads):
    attend = np.vectorize(
        lambda q, k, v: _softmax(np.dot(q, k.T) / np.sqrt(q.shape[-1])) @ v,
        signature="(q,d),(k,d),(k,e)->(q,e)",
    )
    q, k, v = (
        np.rollaxis((z @ w + b).reshape(*z.shape[:2], num_heads, -1), 2, 1)
        for z, (w, b) in ((y, params[:2]), (x, params[2:4]), (x, params[4:6]))
    )
    return np.rollaxis(attend(q, k, v), 2, 1).reshape(*y.shape[:2], -1) @ params[6] + params[7]


def by_recursion_over_heads(y, x, params, num_heads):
    def attend(q, k, v, H):
        if H == 1:
            return _softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v
        cuts = [[a.shape[-1] // H] for a in (q, k, v)]
        parts = [np.split(a, cut, axis=-1) for a, cut in zip((q, k, v), cuts, strict=True)]
        first, others = zip(*parts, strict=True)
        return np.append(attend(*first, 1), attend(*others, H - 1), axis=-1)

    q, k, v = y @ params[0] + params[1], x @ params[2] + params[3], x @ params[4] + params[5]
    return attend(q, k, v, num_heads) @ params.w_o + params.b_o


def by_logsumexp(y, x, params, num_heads):
    q, k, v = (
        np.stack(
            np.array_split(z @ getattr(params, f"w_{c}") + getattr(params, f"b_{c}"), num_heads, 2)
        )
        for z, c in ((y, "q"), (x, "k"), (x, "v"))
    )  # (H, B, T, d)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    heads = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)) @ v
    return np.concatenate(list(heads), axis=-1) @ params.w_o + params.b_o


def by_longdouble(y, x, params, num_heads):
    y, x = np.longdouble(y), np.longdouble(x)
    wide = type(params)._make(np.longdouble(array) for array in params)
    return np.asarray(by_tensordot(y, x, wide, num_heads), dtype=float)


def in_fortran_order(y, x, params, num_heads):
    out = np.zeros((*y.shape[:-1], params.b_o.size), order="F")
    out[...] = by_one_product_for_k_v(y, x, params, num_heads)
    return out


def as_transposed_view(y, x, params, num_heads):
    y, x = y.swapaxes(1, 2), x.swapaxes(1, 2)  # columns are tokens
    B, _, T = y.shape
    q = (params.w_q.T @ y + params.b_q[:, None]).reshape(B, num_heads, -1, T)
    k = (params.w_k.T @ x + params.b_k[:, None]).reshape(B, num_heads, -1, x.shape[2])
    v = (params.w_v.T @ x + params.b_v[:, None]).reshape(B, num_heads, -1, x.shape[2])
    weights = _softmax(q.swapaxes(2, 3) @ k / np.sqrt(q.shape[2]))
    merged = (v @ weights.swapaxes(2, 3)).reshape(B, -1, T)
    return (params.w_o.T @ merged + params.b_o.reshape(-1, 1)).swapaxes(1, 2)


class CrossAttention:
    def __call__(self, asking, source, params, num_heads):
        self.params, self.num_heads = params, num_heads
        q, k, v = self.project("q", asking), self.project("k", source), self.project("v", source)
        heads = _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
        return self.merge(heads) @ params.w_o + params.b_o

    def project(self, letter, tokens):
        w, b = getattr(self.params, f"w_{letter}"), getattr(self.params, f"b_{letter}")
        return np.stack(np.split(tokens @ w + b, self.num_heads, axis=-1), axis=1)

    def merge(self, heads):
        return np.concatenate([heads[:, h] for h in range(self.num_heads)], axis=-1)


def _cross(scale_of, y, x, params, num_heads):
    q, k, v = y @ params.w_q + params.b_q, x @ params.w_k + params.b_k, x @ params.w_v + params.b_v
    q, k, v = (np.einsum("bthd->bhtd", a.reshape(*a.shape[:2], num_heads, -1)) for a in (q, k, v))
    heads = np.einsum("bhqk,bhkd->bqhd", _softmax(scale_of(q) * q @ np.swapaxes(k, 2, 3)), v)
    return np.einsum("bqm,mo->bqo", heads.reshape(*heads.shape[:2], -1), params.w_o) + params.b_o


by_class = CrossAttention()
by_partial = partial(_cross, lambda q: q.shape[-1] ** -0.5)

RIGHT = [
    by_reshape_and_transpose, by_einsum, by_loop_over_heads, by_sum_of_projected_heads,
    by_loop_over_sequences, by_loop_over_sequences_and_heads, by_scalar_loops, by_loop_over_queries,
    by_one_product_for_k_v, by_ones_column_for_biases, by_leaving_out_b_k, by_folded_params,
    by_tensordot, by_broadcasting, by_flat_batch_of_heads, by_self_attention_of_both,
    by_online_keys, by_vectorize, by_recursion_over_heads, by_logsumexp, by_longdouble,
    in_fortran_order, as_transposed_view, by_class, by_partial,
]  # fmt: skip
