"""Right solutions in unusual styles: layer backward."""

import numpy as np


def split(x, H):
    B, T, width = x.shape
    return x.reshape(B, T, H, width // H).transpose(0, 2, 1, 3)


def merge(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


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
