"""Loops over sequences, heads, queries and keys."""

import numpy as np


def scale(d):
    return 1 / np.sqrt(d)


def split_heads(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    heads = np.zeros((B, num_heads, T, d), x.dtype)
    for b in range(B):
        for h in range(num_heads):
            for t in range(T):
                heads[b, h, t] = x[b, t, h * d : (h + 1) * d]
    return heads


def merge_heads(heads):
    B, H, T, d = heads.shape
    merged = np.zeros((B, T, H * d), heads.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                merged[b, t, h * d : (h + 1) * d] = heads[b, h, t]
    return merged


def scores(q, k):
    B, H, T_q, d = q.shape
    found = np.zeros((B, H, T_q, k.shape[2]))
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(k.shape[2]):
                    found[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) * scale(d)
    return found


def softmax(scores, mask):
    rows = scores.reshape(-1, scores.shape[-1])
    if mask is None:
        sees = np.ones(rows.shape, dtype=bool)
    else:
        sees = np.broadcast_to(mask, scores.shape).reshape(rows.shape)
    weights = np.zeros(rows.shape)
    for i in range(len(rows)):
        seen = [j for j in range(rows.shape[1]) if sees[i, j]]
        if not seen:
            continue
        largest = max(rows[i, j] for j in seen)
        total = sum(np.exp(rows[i, j] - largest) for j in seen)
        for j in seen:
            weights[i, j] = np.exp(rows[i, j] - largest) / total
    return weights.reshape(scores.shape)


def make_mask(lengths, T_q, T_k, q_offset, left):
    mask = np.zeros((len(lengths), 1, T_q, T_k), dtype=bool)
    for b in range(len(lengths)):
        for i in range(T_q):
            for j in range(T_k):
                position = i + q_offset
                mask[b, 0, i, j] = j <= position and j >= position - left and j < lengths[b]
    return mask


def attention(q, k, v):
    heads = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        row = np.array([np.dot(q[i], key) * scale(len(key)) for key in k])
        row = np.exp(row - row.max())
        for weight, value in zip(row / row.sum(), v):
            heads[i] += weight * value
    return heads


def multi_head(x, params, num_heads, mask):
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    k = split_heads(x @ params.w_k + params.b_k, num_heads)
    v = split_heads(x @ params.w_v + params.b_v, num_heads)
    weights = softmax(scores(q, k), mask)
    heads = np.zeros(q.shape[:3] + v.shape[3:])
    for b in range(len(x)):
        for h in range(num_heads):
            heads[b, h] = weights[b, h] @ v[b, h]
    return merge_heads(heads) @ params.w_o + params.b_o


def scores_backward(d_scores, q, k):
    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    B, H, T_q, T_k = d_scores.shape
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(T_k):
                    d_q[b, h, i] += d_scores[b, h, i, j] * k[b, h, j] * scale(q.shape[3])
                    d_k[b, h, j] += d_scores[b, h, i, j] * q[b, h, i] * scale(q.shape[3])
    return d_q, d_k


def softmax_backward(d_weights, weights):
    d_rows, rows = (
        d_weights.reshape(-1, d_weights.shape[-1]),
        weights.reshape(-1, weights.shape[-1]),
    )
    d_scores = np.zeros(rows.shape)
    for i in range(len(rows)):
        mean = sum(rows[i, l] * d_rows[i, l] for l in range(rows.shape[1]))
        for j in range(rows.shape[1]):
            d_scores[i, j] = rows[i, j] * (d_rows[i, j] - mean)
    return d_scores.reshape(weights.shape)


def attention_backward(d_heads, q, k, v, weights):
    B, H, T_q, T_k = weights.shape
    d_weights, d_v = np.zeros(weights.shape), np.zeros(v.shape)
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(T_k):
                    d_weights[b, h, i, j] = d_heads[b, h, i] @ v[b, h, j]
                    d_v[b, h, j] += weights[b, h, i, j] * d_heads[b, h, i]
    d_q, d_k = scores_backward(softmax_backward(d_weights, weights), q, k)
    return d_q, d_k, d_v


def linear_backward(d_out, x, w):
    d_x, d_w, d_b = np.zeros(x.shape), np.zeros(w.shape), np.zeros(w.shape[1])
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            d_x[b, t] = w @ d_out[b, t]
            d_w += np.outer(x[b, t], d_out[b, t])
            d_b += d_out[b, t]
    return d_x, d_w, d_b


def input_gradient(d_q, d_k, d_v, params):
    d_x = 0
    for d, w in ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v)):
        d_x = d_x + np.array([[w @ token for token in sequence] for sequence in merge_heads(d)])
    return d_x


def multi_head_backward(d_out, params, saved):
    d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o)
    d_heads = split_heads(d_merged, saved.q.shape[1])
    of_heads = attention_backward(d_heads, saved.q, saved.k, saved.v, saved.weights)
    grads = []
    for d, w in zip(of_heads, (params.w_q, params.w_k, params.w_v)):
        _, d_w, d_b = linear_backward(merge_heads(d), saved.x, w)
        grads += [d_w, d_b]
    return input_gradient(*of_heads, params), tuple(grads + [d_w_o, d_b_o])


def grouped_attention(q, k, v):
    heads = []
    for h in range(q.shape[1]):
        g = h // (q.shape[1] // k.shape[1])
        weights = softmax(scores(q[:, h : h + 1], k[:, g : g + 1]), None)
        heads.append((weights @ v[:, g : g + 1])[:, 0])
    return np.stack(heads, axis=1)


def masked_attention(q, k, v, mask, softcap):
    heads = []
    for h in range(q.shape[1]):
        g = h // (q.shape[1] // k.shape[1])
        found = scores(q[:, h : h + 1], k[:, g : g + 1])
        if softcap is not None:
            found = softcap * np.tanh(found / softcap)
        heads.append((softmax(found, mask) @ v[:, g : g + 1])[:, 0])
    return np.stack(heads, axis=1)


def sum_over_group(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    found = np.zeros((B, num_kv_heads, T, d))
    for h in range(H):
        found[:, h // (H // num_kv_heads)] += d_per_query_head[:, h]
    return found


def grouped_backward(d_heads, q, k, v, weights):
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for h in range(q.shape[1]):
        one, g = slice(h, h + 1), h // (q.shape[1] // k.shape[1])
        of = slice(g, g + 1)
        found = attention_backward(d_heads[:, one], q[:, one], k[:, of], v[:, of], weights[:, one])
        d_q[:, one] = found[0]
        d_k[:, of] += found[1]
        d_v[:, of] += found[2]
    return d_q, d_k, d_v


def decode_step(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    k, v = np.zeros((B, H_kv, T + 1, d)), np.zeros((B, H_kv, T + 1, d))
    k[:, :, :T], v[:, :, :T] = k_past, v_past
    q = x[:, 0] @ params.w_q + params.b_q
    k_new, v_new = x[:, 0] @ params.w_k + params.b_k, x[:, 0] @ params.w_v + params.b_v
    for h in range(H_kv):
        k[:, h, T], v[:, h, T] = k_new[:, h * d : (h + 1) * d], v_new[:, h * d : (h + 1) * d]
    heads = grouped_attention(split_heads(q[:, None], num_heads), k, v)
    return merge_heads(heads) @ params.w_o + params.b_o, k, v


def online_attention(q, k, v, block):
    heads = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        largest, total = -np.inf, 0.0
        for start in range(0, len(k), block):
            row = np.array([q[i] @ key * scale(len(key)) for key in k[start : start + block]])
            new = max(largest, row.max())
            total, heads[i] = total * np.exp(largest - new), heads[i] * np.exp(largest - new)
            for score, value in zip(row, v[start : start + block]):
                total += np.exp(score - new)
                heads[i] += np.exp(score - new) * value
            largest = new
        heads[i] /= total
    return heads
