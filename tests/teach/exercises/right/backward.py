"""Right solutions in unusual styles of gradients and training."""

from math import fsum

import numpy as np


def split(x, H):
    B, T, width = x.shape
    return x.reshape(B, T, H, width // H).transpose(0, 2, 1, 3)


def merge(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


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


def embedding_backward_by_bincount(d_out, ids, V):
    columns = np.moveaxis(d_out, -1, 0).reshape(d_out.shape[-1], -1)
    return np.array([np.bincount(ids.ravel(), column, minlength=V) for column in columns]).T


def gelu_backward_complex_step(d_out, x):
    z = x + 1e-30j
    out = z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2
    return d_out * out.imag / 1e-30


def d_head_gate_complex_step(d_gated, heads):
    tiny, H = 1e-50, heads.shape[1]
    d_gate = np.zeros(H)
    for h in range(H):
        gate = np.ones(H, dtype=complex)
        gate[h] += tiny * 1j
        gated = heads * gate[:, None, None]
        d_gate[h] = np.sum(d_gated * gated).imag / tiny
    return d_gate


def d_head_gate_bincount(d_gated, heads):
    owner = np.indices(heads.shape)[1]
    return np.bincount(owner.ravel(), weights=(d_gated * heads).ravel())


def d_head_gate_exact_sums(d_gated, heads):
    return np.array([fsum((d_gated * heads)[:, h].flat) for h in range(heads.shape[1])])


def dropout_backward_masked_array_filled(d_dropped, keep, p):
    masked = np.ma.masked_array(d_dropped, mask=~keep)
    return (masked / (1 - p)).filled(0.0)


def dropout_backward_directional_derivative(d_dropped, keep, p):
    def forward(weights):
        return weights * keep / (1 - p)

    tiny = 1e-20
    return d_dropped * forward(np.full(keep.shape, 1j * tiny)).imag / tiny  # cell by cell


def head_importance_sign_times_value(d_gated, heads):
    d_gate = np.sum(d_gated * heads, axis=(-1, -2))
    return (np.sign(d_gate) * d_gate).mean(axis=0)


def head_importance_running_mean(d_gated, heads):
    mean = 0
    for n, (g, x) in enumerate(zip(d_gated, heads, strict=True), start=1):
        mean = mean + (np.abs((g * x).sum(axis=(1, 2))) - mean) / n
    return mean


def input_gradient_add_at_tokens(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = np.zeros((B, T, params.w_q.shape[0]))
    b, h, t = np.indices((B, H, T)).reshape(3, -1)
    for grad, w in (d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v):
        of_head = w.T.reshape(H, d, -1)[h]  # (B*H*T, d, D)
        np.add.at(d_x, (b, t), np.einsum("nc,ncx->nx", grad[b, h, t], of_head))
    return d_x


def input_gradient_transposed_view(d_q, d_k, d_v, params):
    d_x_T = np.zeros((params.w_q.shape[0], d_q.shape[2], d_q.shape[0]))  # (D, T, B)
    for grad, w in zip([d_q, d_k, d_v], params[0:6:2], strict=True):
        merged_T = grad.transpose(1, 3, 2, 0).reshape(-1, *d_x_T.shape[1:])
        d_x_T += np.tensordot(w, merged_T, axes=1)
    return d_x_T.T


def linear_backward_one_unit_vector_at_a_time(d_out, x, w):
    inputs = {"x": x, "w": w, "b": np.zeros(w.shape[1])}
    grads = {name: np.zeros(value.shape) for name, value in inputs.items()}
    for name, grad in grads.items():
        rest = inputs | {"b": 0.0}
        if name == "b":
            rest["x"] = np.zeros(x.shape)
        for cell in np.ndindex(grad.shape):
            unit = np.zeros(grad.shape)
            unit[cell] = 1.0
            moved = rest | {name: unit}
            grad[cell] = np.vdot(d_out, moved["x"] @ moved["w"] + moved["b"])
    return tuple(grads.values())


def linear_backward_running_sums(d_out, x, w):
    rows = d_out.reshape(-1, d_out.shape[-1])
    products = x.reshape(len(rows), -1, 1) * rows[:, None]
    d_w, d_b = products.cumsum(axis=0)[-1], rows.cumsum(axis=0)[-1]
    return d_out @ w.swapaxes(0, 1), d_w, d_b


def multi_head_backward_complex_step(d_out, params, saved):
    tiny, H = 1e-40, saved.q.shape[1]
    hidden = saved.weights == 0

    def forward(x, w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o):
        q, k, v = (split(x @ w + b, H) for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        scores = scores - scores.real.max(axis=3, keepdims=True)
        powers = np.where(hidden, 0, np.exp(scores))
        total = powers.sum(axis=3, keepdims=True)
        return merge(powers / np.where(total == 0, 1, total) @ v) @ w_o + b_o

    inputs = [saved.x, *params]
    grads = [np.zeros(a.shape) for a in inputs]
    for n, grad in enumerate(grads):
        for cell in np.ndindex(grad.shape):
            moved = inputs[n].astype(complex)
            moved[cell] += 1j * tiny
            out = forward(*inputs[:n], moved, *inputs[n + 1 :])
            grad[cell] = np.sum(d_out * out.imag) / tiny
    return grads[0], grads[1:]


def cross_entropy_backward_by_jacobians(d_loss, logits, targets, ignored):
    counted = targets != ignored
    one_hot = (targets[..., None] == np.arange(logits.shape[-1])) & counted[..., None]
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs = powers / powers.sum(axis=-1, keepdims=True)
    jacobian = np.eye(logits.shape[-1]) - probs[..., None, :]  # of log softmax
    return np.einsum("btv,btvw->btw", one_hot * -d_loss / counted.sum(), jacobian)


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


def layer_norm_backward_complex_step(d_out, x, gain, eps):
    tiny = 1e-40

    def forward(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        var = (centred * centred).mean(-1, keepdims=True)
        return centred / np.sqrt(var + eps) * gain + bias

    bias, d_x, d_gain, d_bias = np.zeros_like(gain), np.zeros_like(x), [], []
    for n, unit in enumerate(1j * tiny * np.eye(len(gain))):
        d_x[..., n] = (d_out * forward(x + unit, gain, bias).imag).sum(-1) / tiny
        d_gain.append((d_out * forward(x, gain + unit, bias).imag).sum() / tiny)
        d_bias.append((d_out * forward(x, gain, bias + unit).imag).sum() / tiny)
    return d_x, np.array(d_gain), np.array(d_bias)


def rope_backward_unit_vectors_through_the_forward(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)

    def forward(x):
        x1, x2 = x[..., :half], x[..., half:]
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], axis=-1)

    columns = [(d_out * forward(np.broadcast_to(e, d_out.shape))).sum(-1)
               for e in np.eye(2 * half)]  # fmt: skip
    return np.stack(columns, axis=-1)


def rope_backward_inverse_of_the_matrices(d_out, positions, base):
    half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    rotation = np.zeros((len(positions), 2 * half, 2 * half))
    i = np.arange(half)
    rotation[:, i, i] = rotation[:, i + half, i + half] = np.cos(angles)
    rotation[:, i, i + half] = -np.sin(angles)
    rotation[:, i + half, i] = np.sin(angles)
    return (np.linalg.inv(rotation) @ d_out[..., None])[..., 0]


def adam_step_by_a_loop_over_both_means(
    param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps
):
    kept, corrected = [], []
    for old, beta, power in ((mean, beta_1, 1), (square, beta_2, 2)):
        kept.append(np.average([old, gradient**power], axis=0, weights=[beta, 1 - beta]))
        corrected.append(kept[-1] / -np.expm1(t * np.log(beta)))
    direction = corrected[0] / (corrected[1] ** 0.5 + eps)
    return {"param": param - learning_rate * direction, "mean": kept[0], "square": kept[1]}


def train_steps_by_complex_step(tokens, table, w, b, learning_rate):
    params, tiny = np.concatenate([table.ravel(), w.ravel(), b]), 1e-30
    cuts = [table.size, table.size + w.size]

    def unpacked(params):
        first, second, third = np.split(params, cuts)
        return first.reshape(table.shape), second.reshape(w.shape), third

    def loss(params, batch):
        e, u, c = unpacked(params)
        logits = e[batch[:, :-1]] @ u + c
        logits = logits - logits.real.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return -np.take_along_axis(log_probs, batch[:, 1:, None], axis=-1).mean()

    losses = np.zeros(len(tokens))
    for n, batch in enumerate(tokens):
        losses[n] = loss(params + 0j, batch).real
        steps = 1j * tiny * np.eye(params.size)
        params = params - learning_rate * np.array(
            [loss(params + step, batch).imag / tiny for step in steps]
        )
    return *unpacked(params), losses


def train_with_adam_all_params_in_one_vector(tokens, held_out, keep, p, table, w, learning_rate):
    flat = np.append(table, w)
    mean, square = 0 * flat, 0 * flat

    def evaluate(flat, batch, factor):
        e, u = flat[: table.size].reshape(table.shape), flat[table.size :].reshape(w.shape)
        ids, targets = batch[:, :-1].ravel(), batch[:, 1:].ravel()
        x = e[ids] * factor
        logits = x @ u
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        one_hot = np.eye(len(table))[targets]
        d = (np.exp(log_probs) - one_hot) / len(ids)
        d_e = np.eye(len(table))[ids].T @ (d @ u.T * factor)
        return -(one_hot * log_probs).sum() / len(ids), np.append(d_e, x.T @ d)

    for t in range(1, len(tokens) + 1):
        factor = keep[t - 1].reshape(-1, table.shape[1]) / (1 - p)
        _, gradient = evaluate(flat, tokens[t - 1], factor)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        hats = mean / (1 - 0.9**t), square / (1 - 0.99**t)
        flat = flat - learning_rate * hats[0] / (np.sqrt(hats[1]) + 0.001)
    loss, _ = evaluate(flat, held_out, 1.0)
    return flat[: table.size].reshape(table.shape), flat[table.size :].reshape(w.shape), loss
