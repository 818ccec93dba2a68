"""Right ways to attend from one sequence to another."""

import math

import numpy as np


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


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


def by_logsumexp(y, x, params, num_heads):
    def heads_of(tokens, w, b):
        return np.stack(np.split(tokens @ w + b, num_heads, axis=-1))  # (H, B, T, d)

    q = heads_of(y, params.w_q, params.b_q)
    k = heads_of(x, params.w_k, params.b_k)
    v = heads_of(x, params.w_v, params.b_v)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    heads = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)) @ v
    return np.concatenate(list(heads), axis=-1) @ params.w_o + params.b_o


RIGHT = [
    by_scalar_loops,
    by_logsumexp,
    by_folded_params,
    by_leaving_out_b_k,
    by_self_attention_of_both,
]
