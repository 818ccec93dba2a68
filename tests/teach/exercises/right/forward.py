"""Right solutions in unusual styles of what is computed forward."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mha_numpy.core import MultiHeadParams
from tests.teach.exercises.right import softmax


def _cap(scores, softcap):
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def _by_halves(q, k, v, block):
    if len(k) <= block:
        scores = q @ k.T / np.sqrt(q.shape[1])
        lse = np.logaddexp.reduce(scores, axis=1)
        return _Part(np.exp(scores - lse[:, None]) @ v, lse)
    half = len(k) // 2
    one = _by_halves(q, k[:half], v[:half], block)
    other = _by_halves(q, k[half:], v[half:], block)
    lse = np.logaddexp(one.lse, other.lse)
    a, b = np.exp(one.lse - lse)[:, None], np.exp(other.lse - lse)[:, None]
    return _Part(a * one.heads + b * other.heads, lse)


class _Part(NamedTuple):
    heads: np.ndarray
    lse: np.ndarray


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


def from_gpt2_by_selection_matrices(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    chosen = np.split(np.eye(c_attn_b.size), 3, axis=1)
    params = [a @ columns for columns in chosen for a in (c_attn_w, c_attn_b)]
    return MultiHeadParams(*params, c_proj_w, c_proj_b)


def to_gpt2_by_selection_matrices(params):
    D = params.b_q.size
    chosen = np.split(np.eye(3 * D), 3)
    c_attn_w = sum(w @ rows for w, rows in zip(params[:6:2], chosen, strict=True))
    c_attn_b = sum(b @ rows for b, rows in zip(params[1:6:2], chosen, strict=True))
    return c_attn_w, c_attn_b, params.w_o, params.b_o


def to_gpt2_by_block(params):
    both = np.block([[params.w_q, params.w_k, params.w_v], [params.b_q, params.b_k, params.b_v]])
    return both[:-1], both[-1], params.w_o, params.b_o


def cost_table_by_numpy_integers(B, T, D, H, H_kv, d, itemsize):
    params = D * d * np.array([H, H_kv, H_kv, H], dtype=np.int64)
    keys_and_values = np.array([[B, H_kv, T, d]] * 2, dtype=np.int64)
    return {
        "attention_params": params.sum(),
        "projection_flops": (params * 2 * B * T).sum(),
        "score_flops": np.prod([2, 2, B, H, T, T, d], dtype=np.int64),
        "weights_bytes": np.prod([B, H, T, T, itemsize], dtype=np.int64),
        "kv_cache_bytes": keys_and_values.prod(axis=1).sum() * itemsize,
    }


def cost_table_by_loops(B, T, D, H, H_kv, d, itemsize):
    counted = Counter()
    for heads in (H, H_kv, H_kv, H):
        for _ in range(heads):
            counted["attention_params"] += D * d
            counted["projection_flops"] += 2 * B * T * D * d
    for _ in range(B):
        for _ in range(H):
            counted["score_flops"] += 2 * T * T * d  # q k^T
            counted["score_flops"] += 2 * T * T * d  # weights v
            counted["weights_bytes"] += T * T * itemsize
        for _ in range(H_kv):
            counted["kv_cache_bytes"] += T * d * itemsize + T * d * itemsize
    return counted


def weights_times_norm_by_the_products_of_rows(weights, v, w_o):
    blocks = np.array(np.split(w_o, v.shape[1]))
    gram = blocks @ blocks.swapaxes(1, 2)  # (H, d_v, d_v): lengths without the D features
    return weights * np.sqrt(np.einsum("bhjc,hce,bhje->bhj", v, gram, v))[:, :, np.newaxis]


def merge_heads_by_block(heads):
    return np.array([np.block([list(sequence)]) for sequence in heads])


def merge_heads_by_recursion(heads):
    if heads.shape[1] == 1:
        return heads[:, 0]
    return np.concatenate([heads[:, 0], merge_heads_by_recursion(heads[:, 1:])], axis=-1)


def split_heads_by_strides(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    of_b, of_t, of_i = x.strides
    return as_strided(x, (B, num_heads, T, d), (of_b, d * of_i, of_t, of_i))


def split_heads_by_one_hot_product(x, num_heads):
    width = x.shape[-1]
    selector = np.eye(width).reshape(width, num_heads, width // num_heads)
    return np.tensordot(x, selector, axes=1).transpose((0, 2, 1, 3))


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


def cross_entropy_as_weighted_average(logits, targets, ignored):
    picked = np.take_along_axis(logits, targets[..., None] % logits.shape[-1], -1)
    losses = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.average(losses - picked[..., 0], weights=targets != ignored)


def make_mask_by_cumsum_of_ends(lengths, T_q, T_k, q_offset, left):
    last = np.minimum(np.arange(T_q) + q_offset + 1, lengths[:, None]).clip(0, T_k)
    first = (np.arange(T_q) + q_offset - left).clip(0, T_k)
    ends = np.zeros((len(lengths), T_q, T_k + 1), dtype=int)
    for b, i in np.ndindex(last.shape):
        if first[i] < last[b, i]:
            ends[b, i, first[i]] += 1
            ends[b, i, last[b, i]] -= 1
    return ends.cumsum(axis=-1)[:, None, :, :T_k] == 1


def make_mask_by_sets(lengths, T_q, T_k, q_offset, left):
    rows = [set(range(i + q_offset - left, i + q_offset + 1)) for i in range(T_q)]
    mask = np.zeros((len(lengths), 1, T_q, T_k), dtype=bool)
    for b, n in enumerate(lengths):
        for i, row in enumerate(rows):
            mask[b, 0, i, sorted(row & set(range(n)))] = True
    return mask


def decode_step_by_old_and_new_apart(x, k_past, v_past, params, num_heads):
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


def decode_step_as_views(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    store = np.empty((T + 8, 2, H_kv, B, d))  # room for more tokens, tokens first
    store[:T, 0], store[:T, 1] = k_past.transpose(2, 1, 0, 3), v_past.transpose(2, 1, 0, 3)
    store[T, 0] = (x[:, 0] @ params.w_k + params.b_k).reshape(B, H_kv, d).swapaxes(0, 1)
    store[T, 1] = (x[:, 0] @ params.w_v + params.b_v).reshape(B, H_kv, d).swapaxes(0, 1)
    k, v = store[: T + 1].transpose(1, 3, 2, 0, 4)
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, -1, d)
    merged = (softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d)) @ v).reshape(B, 1, -1)
    return merged @ params.w_o + params.b_o, k, v


def online_attention_by_two_passes_with_lse(q, k, v, block):
    def scores():
        for s in range(0, len(k), block):
            yield s, np.inner(q, k[s : s + block]) / np.sqrt(q.shape[1])

    lse = np.full(len(q), -np.inf)
    for _, part in scores():
        lse = np.logaddexp(lse, np.logaddexp.reduce(part, axis=1))
    return sum(np.exp(part - lse[:, None]) @ v[s : s + block] for s, part in scores())


def online_attention_by_recursion_by_halves(q, k, v, block):
    return _by_halves(q, k, v, block).heads


def layer_norm_squares_less_square(x, gain, bias, eps):
    mean = np.einsum("btd->bt", x) / x.shape[-1]
    var = np.einsum("btd,btd->bt", x, x) / x.shape[-1] - mean * mean
    return ((x - mean[..., None]) / np.sqrt(var + eps)[..., None]) * gain + bias


def layer_norm_by_a_matrix_that_centres(x, gain, bias, eps):
    D = len(gain)
    centred = x @ (np.eye(D) - np.ones((D, D)) / D)
    lengths = np.linalg.norm(centred, axis=-1, keepdims=True)
    return centred / np.hypot(lengths / D**0.5, eps**0.5) @ np.diag(gain) + bias


def rope_by_polar_coordinates(x, positions, base):
    first, second = np.array_split(x, 2, axis=-1)
    half = first.shape[-1]
    angle = np.arctan2(second, first) + positions[:, None] * base ** (-np.arange(half) / half)
    radius = np.hypot(first, second)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
