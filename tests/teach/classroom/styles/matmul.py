"""Products of matrices, with transposes."""

import numpy as np


def scale(d):
    return 1 / np.sqrt(d)


def split_heads(x, num_heads):
    B, T, width = x.shape
    return x.reshape(B, T, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


def scores(q, k):
    return q @ k.swapaxes(-1, -2) * scale(q.shape[-1])


def softmax(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    hidden = np.where(mask, scores, -np.inf)
    largest = hidden.max(axis=-1, keepdims=True)
    powers = np.exp(hidden - np.where(np.isneginf(largest), 0.0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1.0, total)


def make_mask(lengths, T_q, T_k, q_offset, left):
    query, key = np.arange(T_q)[:, None] + q_offset, np.arange(T_k)[None, :]
    seen = (key <= query) & (key >= query - left)
    return seen[None, None] & (key < np.asarray(lengths)[:, None, None, None])


def attention(q, k, v):
    scores = q @ k.T * scale(q.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ v


def multi_head(x, params, num_heads, mask):
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    k = split_heads(x @ params.w_k + params.b_k, num_heads)
    v = split_heads(x @ params.w_v + params.b_v, num_heads)
    heads = softmax(scores(q, k), mask) @ v
    return merge_heads(heads) @ params.w_o + params.b_o


def scores_backward(d_scores, q, k):
    d_scores = d_scores * scale(q.shape[-1])
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q


def softmax_backward(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))


def attention_backward(d_heads, q, k, v, weights):
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_q, d_k = scores_backward(softmax_backward(d_weights, weights), q, k)
    return d_q, d_k, d_v


def linear_backward(d_out, x, w):
    d_w = x.reshape(-1, x.shape[-1]).T @ d_out.reshape(-1, d_out.shape[-1])
    return d_out @ w.T, d_w, d_out.sum(axis=(0, 1))


def input_gradient(d_q, d_k, d_v, params):
    d_x = merge_heads(d_q) @ params.w_q.T
    d_x = d_x + merge_heads(d_k) @ params.w_k.T
    return d_x + merge_heads(d_v) @ params.w_v.T


def multi_head_backward(d_out, params, saved):
    d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o)
    d_heads = split_heads(d_merged, saved.q.shape[1])
    d_q, d_k, d_v = attention_backward(d_heads, saved.q, saved.k, saved.v, saved.weights)
    d_x, found = input_gradient(d_q, d_k, d_v, params), []
    for d, w in ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v)):
        found += linear_backward(merge_heads(d), saved.x, w)[1:]
    return d_x, (*found, d_w_o, d_b_o)


def grouped_attention(q, k, v):
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    return softmax(scores(q, k), None) @ v


def masked_attention(q, k, v, mask, softcap):
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    found = scores(q, k)
    if softcap is not None:
        found = softcap * np.tanh(found / softcap)
    return softmax(found, mask) @ v


def sum_over_group(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    return d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d).sum(axis=2)


def grouped_backward(d_heads, q, k, v, weights):
    H, H_kv = q.shape[1], k.shape[1]
    k, v = np.repeat(k, H // H_kv, axis=1), np.repeat(v, H // H_kv, axis=1)
    d_q, d_k, d_v = attention_backward(d_heads, q, k, v, weights)
    return d_q, sum_over_group(d_k, H_kv), sum_over_group(d_v, H_kv)


def decode_step(x, k_past, v_past, params, num_heads):
    H_kv = k_past.shape[1]
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    k = np.concatenate([k_past, split_heads(x @ params.w_k + params.b_k, H_kv)], axis=2)
    v = np.concatenate([v_past, split_heads(x @ params.w_v + params.b_v, H_kv)], axis=2)
    return merge_heads(grouped_attention(q, k, v)) @ params.w_o + params.b_o, k, v


def online_attention(q, k, v, block):
    largest = np.full((len(q), 1), -np.inf)
    total, mixture = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T * scale(q.shape[1])
        before, largest = largest, np.maximum(largest, scores.max(axis=1, keepdims=True))
        powers, factor = np.exp(scores - largest), np.exp(before - largest)
        total = total * factor + powers.sum(axis=1, keepdims=True)
        mixture = mixture * factor + powers @ v[start : start + block]
    return mixture / total
