"""Right gradients of a linear map."""

import numpy as np


def tensordot(dY, X, W):
    dX = np.tensordot(dY, W, axes=(2, 1))
    dW = np.tensordot(X, dY, axes=([0, 1], [0, 1]))
    db = np.tensordot(np.ones(dY.shape[:2]), dY, axes=2)
    return dX, dW, db


def loops_over_numbers(d_out, x, w):
    B, T, I = x.shape  # noqa: E741
    O = w.shape[1]  # noqa: E741
    d_x, d_w, d_b = np.zeros((B, T, I)), np.zeros((I, O)), np.zeros(O)
    for b in range(B):
        for t in range(T):
            for o in range(O):
                d_b[o] += d_out[b, t, o]
                for i in range(I):
                    d_x[b, t, i] += d_out[b, t, o] * w[i, o]
                    d_w[i, o] += d_out[b, t, o] * x[b, t, i]
    return d_x, d_w, d_b


def bias_as_one_more_row(d_out, x, w):
    with_one = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    with_bias = np.vstack([w, np.zeros(w.shape[1])])
    d_both = np.einsum("bti,bto->io", with_one, d_out)
    d_with_one = d_out @ with_bias.T
    return d_with_one[..., :-1], d_both[:-1], d_both[-1]


def one_unit_vector_at_a_time(d_out, x, w):
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


def running_sums(d_out, x, w):
    rows = d_out.reshape(-1, d_out.shape[-1])
    products = x.reshape(len(rows), -1, 1) * rows[:, None]
    d_w, d_b = products.cumsum(axis=0)[-1], rows.cumsum(axis=0)[-1]
    return d_out @ w.swapaxes(0, 1), d_w, d_b


RIGHT = [
    loops_over_numbers,
    tensordot,
    one_unit_vector_at_a_time,
    bias_as_one_more_row,
    running_sums,
]
