"""Right solutions whose answers differ from all of `foreign` in something that a check can see.

Such as a view of something larger, Fortran order, a list or a dict, NumPy's integers, a warning on
the way, or the largest rounding that was found. A name begins with that of the piece.
"""

from collections import Counter

import numpy as np


def softmax_by_repairing_nan_with_warnings(scores, mask):
    x = scores.copy()
    if mask is not None:
        x[~mask] = -np.inf
    e = np.exp(x - x.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w[np.isnan(w)] = 0
    return w


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


def decode_step_as_views(x, k_past, v_past, params, num_heads):
    B, H_kv, T, d = k_past.shape
    store = np.empty((T + 8, 2, H_kv, B, d))  # room for more tokens, tokens first
    store[:T, 0], store[:T, 1] = k_past.transpose(2, 1, 0, 3), v_past.transpose(2, 1, 0, 3)
    store[T, 0] = (x[:, 0] @ params.w_k + params.b_k).reshape(B, H_kv, d).swapaxes(0, 1)
    store[T, 1] = (x[:, 0] @ params.w_v + params.b_v).reshape(B, H_kv, d).swapaxes(0, 1)
    k, v = store[: T + 1].transpose(1, 3, 2, 0, 4)
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, -1, d)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    merged = (powers @ v / powers.sum(axis=-1, keepdims=True)).reshape(B, 1, -1)
    return merged @ params.w_o + params.b_o, k, v


def input_gradient_transposed_view(d_q, d_k, d_v, params):
    d_x_T = np.zeros((params.w_q.shape[0], d_q.shape[2], d_q.shape[0]))  # (D, T, B)
    for grad, w in zip([d_q, d_k, d_v], params[0:6:2], strict=True):
        merged_T = grad.transpose(1, 3, 2, 0).reshape(-1, *d_x_T.shape[1:])
        d_x_T += np.tensordot(w, merged_T, axes=1)
    return d_x_T.T


def grouped_backward_reduceat_over_heads(d_heads, q, k, v, weights):
    G = q.shape[1] // k.shape[1]
    k_all = np.kron(k, np.ones((1, G, 1, 1))) if G > 1 else k
    v_all = np.kron(v, np.ones((1, G, 1, 1))) if G > 1 else v
    d_p = np.matmul(d_heads, v_all.transpose(0, 1, 3, 2))
    pd_p = weights * d_p
    d_s = (pd_p - weights * pd_p.sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    starts = np.arange(0, q.shape[1], G)
    d_k = np.add.reduceat(d_s.transpose(0, 1, 3, 2) @ q, starts, axis=1)
    d_v = np.add.reduceat(weights.transpose(0, 1, 3, 2) @ d_heads, starts, axis=1)
    return [d_s @ k_all, d_k, d_v]


def adam_step_by_a_loop_over_both_means(
    param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps
):
    kept, corrected = [], []
    for old, beta, power in ((mean, beta_1, 1), (square, beta_2, 2)):
        kept.append(np.average([old, gradient**power], axis=0, weights=[beta, 1 - beta]))
        corrected.append(kept[-1] / -np.expm1(t * np.log(beta)))
    direction = corrected[0] / (corrected[1] ** 0.5 + eps)
    return {"param": param - learning_rate * direction, "mean": kept[0], "square": kept[1]}


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


def cross_entropy_as_weighted_average(logits, targets, ignored):
    picked = np.take_along_axis(logits, targets[..., None] % logits.shape[-1], -1)
    losses = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return np.average(losses - picked[..., 0], weights=targets != ignored)


def gelu_backward_complex_step(d_out, x):
    z = x + 1e-30j
    out = z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2
    return d_out * out.imag / 1e-30


def layer_norm_backward_mean_of_squares_less_square_of_mean(d_out, x, gain, eps):
    m, m2 = np.mean(x, axis=-1, keepdims=True), np.mean(x * x, axis=-1, keepdims=True)
    s = (m2 - m * m + eps) ** -0.5  # out = (x - m) s gain + bias
    g = d_out * gain
    d_s = np.sum(g * (x - m), axis=-1, keepdims=True)
    d_var = d_s * -0.5 * s**3
    d_m = -np.sum(g * s, axis=-1, keepdims=True) - 2 * m * d_var
    d_x = g * s + d_m / x.shape[-1] + d_var * 2 * x / x.shape[-1]
    tokens = tuple(range(x.ndim))[:-1]
    return d_x, np.sum(d_out * (x - m) * s, axis=tokens), np.sum(d_out, axis=tokens)
