"""Right solutions in unusual styles: attention backward."""

import numpy as np


def attention_backward_complex_step(d_heads, q, k, v, weights):
    tiny = 1e-40
    grads = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for at in np.ndindex(q.shape[:2]):
        arrays, p = [a[at] for a in (q, k, v)], weights[at]
        for n, grad in enumerate(grads):
            for cell in np.ndindex(grad[at].shape):
                moved = [a.astype(complex) for a in arrays]
                moved[n][cell] += 1j * tiny
                change = moved[0] @ moved[1].T - arrays[0] @ arrays[1].T
                powers = p * np.exp(change.imag * 1j / np.sqrt(q.shape[-1]))
                total = powers.sum(axis=1, keepdims=True)
                heads = powers / np.where(total == 0, 1, total) @ moved[2]
                grad[at][cell] = (d_heads[at] * heads.imag).sum() / tiny
    return grads


def attention_backward_add_at_visible_cells(d_heads, q, k, v, weights):
    b, h, i, j = np.nonzero(weights)
    p = weights[b, h, i, j]
    d_p = (d_heads[b, h, i] * v[b, h, j]).sum(axis=1)
    dot = np.zeros(weights.shape[:3])
    np.add.at(dot, (b, h, i), p * d_p)
    d_s = p * (d_p - dot[b, h, i]) / np.sqrt(q.shape[-1])
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    np.add.at(d_q, (b, h, i), d_s[:, None] * k[b, h, j])
    np.add.at(d_k, (b, h, j), d_s[:, None] * q[b, h, i])
    np.add.at(d_v, (b, h, j), p[:, None] * d_heads[b, h, i])
    return d_q, d_k, d_v


def backward_from_lse_numpy_warns_of_infinity_less_infinity(d_heads, q, k, v, heads, lse, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[:, :, ~mask] = -np.inf
    weights = np.nan_to_num(np.exp(scores - lse[..., None]))  # nan in a row that sees nothing
    d_scores = d_heads @ v.swapaxes(-1, -2) - (d_heads * heads).sum(-1, keepdims=True)
    d_scores *= weights / np.sqrt(q.shape[-1])
    d_q, d_k = d_scores @ k, d_scores.swapaxes(-1, -2) @ q
    return d_q, d_k, weights.swapaxes(-1, -2) @ d_heads


def backward_from_lse_lse_as_one_more_feature(d_heads, q, k, v, heads, lse, mask):
    ones = np.ones((*k.shape[:3], 1))
    shift = np.where(mask.any(axis=1), lse, 0)[..., None]
    long_q = np.concatenate([q / np.sqrt(q.shape[-1]), -shift], axis=-1)
    p = mask * np.exp(np.where(mask, long_q @ np.concatenate([k, ones], -1).swapaxes(2, 3), 0))
    row_dot = np.sum(d_heads * heads, axis=-1, keepdims=True)
    long_g = np.concatenate([d_heads, -row_dot], axis=-1)
    d_s = p * (long_g @ np.concatenate([v, ones], -1).swapaxes(2, 3))
    d_k = d_s.swapaxes(2, 3) @ long_q[..., :-1]
    return d_s @ k / np.sqrt(q.shape[-1]), d_k, (p.swapaxes(2, 3) @ long_g)[..., :-1]


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


def scores_backward_one_block_matrix(d_scores, q, k):
    B, H, T_q, T_k = d_scores.shape
    both = np.zeros((B, H, T_q + T_k, T_q + T_k))
    both[..., :T_q, T_q:] = d_scores
    both[..., T_q:, :T_q] = d_scores.swapaxes(-1, -2)
    grads = both @ np.concatenate([q, k], axis=2) / np.sqrt(q.shape[-1])
    return grads[:, :, :T_q], grads[:, :, T_q:]


def scores_backward_add_at_every_cell(d_scores, q, k):
    b, h, i, j = np.indices(d_scores.shape).reshape(4, -1)
    g = d_scores.ravel()[:, None] / np.sqrt(q.shape[-1])
    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    np.add.at(d_q, (b, h, i), g * k[b, h, j])
    np.add.at(d_k, (b, h, j), g * q[b, h, i])
    return d_q, d_k


def softmax_backward_differences_of_pairs(d_weights, weights):
    gaps = d_weights[..., :, None] - d_weights[..., None, :]
    return (weights[..., :, None] * weights[..., None, :] * gaps).sum(axis=-1)


def softmax_backward_reduceat_of_the_flat_product(d_weights, weights):
    product = (weights * d_weights).ravel()
    starts = np.arange(0, product.size, weights.shape[-1])
    dot = np.add.reduceat(product, starts)
    return (product - np.repeat(dot, weights.shape[-1]) * weights.ravel()).reshape(weights.shape)


def sum_over_group_differences_of_running_sums(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    ends = np.cumsum(d_per_query_head, axis=1)[:, G - 1 :: G]
    return np.diff(ends, axis=1, prepend=0)


def sum_over_group_its_own_input_for_groups_of_one(d_per_query_head, num_kv_heads):
    G, rest = divmod(d_per_query_head.shape[1], num_kv_heads)
    assert rest == 0
    if G == 1:
        return d_per_query_head
    last = d_per_query_head[:, G - 1 :: G]
    return last + sum(d_per_query_head[:, member::G] for member in range(G - 1))
