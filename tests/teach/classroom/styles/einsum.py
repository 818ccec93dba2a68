"""Everything with einsum."""

import numpy as np


def scale(d):
    return 1 / np.sqrt(d)


def split_heads(x, num_heads):
    B, T, width = x.shape
    return np.einsum("bthd->bhtd", x.reshape(B, T, num_heads, width // num_heads))


def merge_heads(heads):
    B, H, T, d = heads.shape
    return np.einsum("bhtd->bthd", heads).reshape(B, T, H * d)


def scores(q, k):
    return np.einsum("bhid,bhjd->bhij", q, k) * scale(q.shape[3])


def softmax(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = np.max(scores, axis=-1)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    powers = np.exp(scores - largest[..., None])
    total = np.einsum("...j->...", powers)
    return np.einsum("...ij,...i->...ij", powers, 1 / np.where(total > 0, total, 1.0))


def make_mask(lengths, T_q, T_k, q_offset, left):
    ahead = np.subtract.outer(np.arange(T_q) + q_offset, np.arange(T_k))
    near = np.logical_and(ahead >= 0, ahead <= left)
    real = np.less.outer(np.arange(T_k), np.asarray(lengths)).T
    return np.logical_and(near[None, :, :], real[:, None, :])[:, None, :, :]


def attention(q, k, v):
    weights = softmax(np.einsum("id,jd->ij", q, k) * scale(q.shape[1]), None)
    return np.einsum("ij,jd->id", weights, v)


def multi_head(x, params, num_heads, mask):
    q, k, v = (
        split_heads(np.einsum("bti,io->bto", x, w) + b, num_heads)
        for w, b in zip(params[:6:2], params[1:6:2])
    )
    heads = np.einsum("bhij,bhjd->bhid", softmax(scores(q, k), mask), v)
    return np.einsum("bti,io->bto", merge_heads(heads), params.w_o) + params.b_o


def scores_backward(d_scores, q, k):
    d_q = np.einsum("bhij,bhjd->bhid", d_scores, k) * scale(q.shape[3])
    d_k = np.einsum("bhij,bhid->bhjd", d_scores, q) * scale(q.shape[3])
    return d_q, d_k


def softmax_backward(d_weights, weights):
    mean = np.einsum("...ij,...ij->...i", weights, d_weights)
    return weights * (d_weights - mean[..., None])


def attention_backward(d_heads, q, k, v, weights):
    d_weights = np.einsum("bhid,bhjd->bhij", d_heads, v)
    d_scores = softmax_backward(d_weights, weights)
    d_v = np.einsum("bhij,bhid->bhjd", weights, d_heads)
    return (*scores_backward(d_scores, q, k), d_v)


def linear_backward(d_out, x, w):
    d_x = np.einsum("bto,io->bti", d_out, w)
    return d_x, np.einsum("bti,bto->io", x, d_out), np.einsum("bto->o", d_out)


def input_gradient(d_q, d_k, d_v, params):
    d_x = np.einsum("bto,io->bti", merge_heads(d_q), params.w_q)
    d_x = d_x + np.einsum("bto,io->bti", merge_heads(d_k), params.w_k)
    return d_x + np.einsum("bto,io->bti", merge_heads(d_v), params.w_v)


def multi_head_backward(d_out, params, saved):
    d_merged, d_w_o, d_b_o = linear_backward(d_out, saved.merged, params.w_o)
    d_heads = split_heads(d_merged, saved.q.shape[1])
    d_q, d_k, d_v = attention_backward(d_heads, saved.q, saved.k, saved.v, saved.weights)
    _, d_w_q, d_b_q = linear_backward(merge_heads(d_q), saved.x, params.w_q)
    _, d_w_k, d_b_k = linear_backward(merge_heads(d_k), saved.x, params.w_k)
    _, d_w_v, d_b_v = linear_backward(merge_heads(d_v), saved.x, params.w_v)
    d_params = params._replace(w_q=d_w_q, b_q=d_b_q, w_k=d_w_k, b_k=d_b_k)
    d_params = d_params._replace(w_v=d_w_v, b_v=d_b_v, w_o=d_w_o, b_o=d_b_o)
    return input_gradient(d_q, d_k, d_v, params), d_params


def grouped_attention(q, k, v):
    B, H, T_q, d_k = q.shape
    q = q.reshape(B, k.shape[1], -1, T_q, d_k)
    weights = softmax(np.einsum("bghid,bgjd->bghij", q, k) * scale(d_k), None)
    return np.einsum("bghij,bgjd->bghid", weights, v).reshape(B, H, T_q, -1)


def masked_attention(q, k, v, mask, softcap):
    B, H, T_q, d_k = q.shape
    q = q.reshape(B, k.shape[1], -1, T_q, d_k)
    found = np.einsum("bghid,bgjd->bghij", q, k) * scale(d_k)
    if softcap is not None:
        found = np.tanh(found / softcap) * softcap
    weights = softmax(found, mask[:, :, None])
    return np.einsum("bghij,bgjd->bghid", weights, v).reshape(B, H, T_q, -1)


def sum_over_group(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    groups = d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d)
    return np.einsum("bghtd->bgtd", groups)


def grouped_backward(d_heads, q, k, v, weights):
    B, H, T_q, d_k = q.shape
    H_kv = k.shape[1]
    read = np.arange(H) // (H // H_kv)
    d_q, d_k, d_v = attention_backward(d_heads, q, k[:, read], v[:, read], weights)
    one = np.equal.outer(np.arange(H_kv), read) * 1.0
    return d_q, np.einsum("gh,bhtd->bgtd", one, d_k), np.einsum("gh,bhtd->bgtd", one, d_v)


def decode_step(x, k_past, v_past, params, num_heads):
    H_kv = k_past.shape[1]
    q = split_heads(np.einsum("bti,io->bto", x, params.w_q) + params.b_q, num_heads)
    k_new = split_heads(np.einsum("bti,io->bto", x, params.w_k) + params.b_k, H_kv)
    v_new = split_heads(np.einsum("bti,io->bto", x, params.w_v) + params.b_v, H_kv)
    k, v = np.append(k_past, k_new, axis=2), np.append(v_past, v_new, axis=2)
    merged = merge_heads(grouped_attention(q, k, v))
    return np.einsum("bti,io->bto", merged, params.w_o) + params.b_o, k, v


def online_attention(q, k, v, block):
    largest, total = np.full(len(q), -np.inf), np.zeros(len(q))
    mixture = np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), block):
        some = slice(start, start + block)
        scores = np.einsum("id,jd->ij", q, k[some]) * scale(q.shape[1])
        new = np.maximum(largest, scores.max(axis=1))
        powers, factor = np.exp(scores - new[:, None]), np.exp(largest - new)
        total = total * factor + np.einsum("ij->i", powers)
        mixture = np.einsum("id,i->id", mixture, factor) + np.einsum("ij,jd->id", powers, v[some])
        largest = new
    return np.einsum("id,i->id", mixture, 1 / total)
