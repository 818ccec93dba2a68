"""Right solutions in unusual styles: layer."""

import numpy as np

from tests.teach.exercises.right import softmax


def cross_attention_by_leaving_out_b_k(y, x, params, num_heads):
    # a constant for all keys does not change softmax
    B, T, _ = y.shape
    q = (y @ params.w_q + params.b_q).reshape(B, T, num_heads, -1).swapaxes(1, 2)
    k = (x @ params.w_k).reshape(B, x.shape[1], num_heads, -1).swapaxes(1, 2)
    v = (x @ params.w_v).reshape(B, x.shape[1], num_heads, -1).swapaxes(1, 2)
    heads = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    merged = heads.swapaxes(1, 2).reshape(B, T, -1) + params.b_v  # weights sum to 1
    return merged @ params.w_o + params.b_o


def cross_attention_by_folded_params(y, x, params, num_heads):
    scores, outs = [], []
    for h in range(num_heads):
        w_q, b_q, w_k, w_v, b_v = (
            np.array_split(array, num_heads, axis=-1)[h]
            for array in (params.w_q, params.b_q, params.w_k, params.w_v, params.b_v)
        )
        w_o = np.array_split(params.w_o, num_heads)[h]
        scores.append((y @ (w_q @ w_k.T) + b_q @ w_k.T) @ x.swapaxes(1, 2) / b_q.size**0.5)
        outs.append(x @ (w_v @ w_o) + b_v @ w_o)
    return (softmax(np.stack(scores)) @ np.stack(outs)).sum(axis=0) + params.b_o


def cross_attention_by_self_attention_of_both(y, x, params, num_heads):
    # all tokens in one sequence; queries see the source alone
    T = y.shape[1]
    q = y @ params.w_q + params.b_q
    k, v = (np.pad(x @ w + b, ((0, 0), (T, 0), (0, 0))) for w, b in (params[2:4], params[4:6]))
    q, k, v = (np.stack(np.split(array, num_heads, axis=-1), axis=1) for array in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., :T] = -np.inf
    heads = softmax(scores) @ v
    return np.concatenate(np.moveaxis(heads, 1, 0), axis=-1) @ params.w_o + params.b_o


def multi_head_by_masked_array(x, params, num_heads, mask):
    B, T, _ = x.shape

    def heads_of(w, b):
        return (x @ w + b).reshape(B, T, num_heads, -1).swapaxes(1, 2)

    q = heads_of(params.w_q, params.b_q)
    k = heads_of(params.w_k, params.b_k)
    v = heads_of(params.w_v, params.b_v)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    scores = np.ma.array(scores, mask=np.broadcast_to(~mask, scores.shape))
    powers = np.ma.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.ma.filled(powers / powers.sum(axis=-1, keepdims=True), 0)
    return (weights @ v).swapaxes(1, 2).reshape(B, T, -1) @ params.w_o + params.b_o
