from functools import reduce
from typing import NamedTuple

import numpy as np


def two_dimensions_first(d_out, x, w):
    flat_x, flat_d = x.reshape(-1, x.shape[-1]), d_out.reshape(-1, d_out.shape[-1])
    return (flat_d @ w.T).reshape(x.shape), flat_x.T @ flat_d, flat_d.sum(axis=0)


def einsum(d_out, x, w):
    d_x = np.einsum("bto,io->bti", d_out, w)
    d_w = np.einsum("bti,bto->io", x, d_out)
    d_b = np.einsum("bto->o", d_out)
    return d_x, d_w, d_b


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


def loop_over_the_batch(d_out, x, w):
    d_x, d_w, d_b = np.zeros_like(x), np.zeros_like(w), np.zeros(w.shape[1])
    for b in range(len(x)):
        d_x[b] = np.dot(d_out[b], w.T)
        d_w += np.dot(x[b].T, d_out[b])
        d_b += d_out[b].sum(axis=0)
    return d_x, d_w, d_b


def tokens_by_outer_products(d_out, x, w):
    d_x = np.zeros_like(x)
    d_w = np.zeros_like(w)
    d_b = 0
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            d_x[b, t] = w.dot(d_out[b, t])
            d_w += np.outer(x[b, t], d_out[b, t])
            d_b = d_b + d_out[b, t]
    return d_x, d_w, d_b


def broadcast_and_sum(d_out, x, w):
    d_x = (d_out[..., None, :] * w).sum(axis=-1)
    d_w = (x[..., :, None] * d_out[..., None, :]).sum(axis=(0, 1))
    return [d_x, d_w, d_out.sum((0, 1))]


def matmul_for_each_sequence_then_sum(d_out, x, w):
    d_w = np.matmul(x.swapaxes(1, 2), d_out).sum(axis=0)
    d_b = (np.ones((len(x), 1, x.shape[1])) @ d_out).sum(axis=0)[0]
    return {"d_x": np.matmul(d_out, np.transpose(w)), "d_w": d_w, "d_b": d_b}


def bias_as_one_more_row(d_out, x, w):
    with_one = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    with_bias = np.vstack([w, np.zeros(w.shape[1])])
    d_both = np.einsum("bti,bto->io", with_one, d_out)
    d_with_one = d_out @ with_bias.T
    return d_with_one[..., :-1], d_both[:-1], d_both[-1]


def in_longdouble(d_out, x, w):
    d_out, x, w = (np.asarray(a, dtype=np.longdouble) for a in (d_out, x, w))
    d_w = sum(one.T @ g for one, g in zip(x, d_out, strict=True))
    grads = d_out @ w.T, d_w, d_out.sum(axis=1).sum(axis=0)
    return tuple(grad.astype(np.float64) for grad in grads)


class LinearGrads(NamedTuple):
    d_x: np.ndarray
    d_w: np.ndarray
    d_b: np.ndarray


def own_named_tuple_of_transposed_views(d_out, x, w):
    rows = np.concatenate(list(d_out))  # (B*T, outputs)
    d_x_T = w @ rows.T
    d_w_T = rows.T @ np.concatenate(list(x))
    return LinearGrads(d_x_T.T.reshape(x.shape), d_w_T.T, np.add.reduce(rows))


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


class Tape:
    def __init__(self):
        self.steps, self.grads = [], {}

    def add(self, name, grad):
        self.grads[name] = self.grads.get(name, 0) + grad

    def matmul(self, out, a, b, values):
        values[out] = values[a] @ values[b]
        width = values[b].shape[0]

        def back(g):
            self.add(a, g @ values[b].T)
            self.add(b, values[a].reshape(-1, width).T @ g.reshape(-1, g.shape[-1]))

        self.steps.append((out, back))

    def plus(self, out, a, b, values):
        values[out] = values[a] + values[b]

        def back(g):
            self.add(a, g)
            while g.ndim > 1:
                g = g.sum(axis=0)
            self.add(b, g)

        self.steps.append((out, back))

    def pull(self, name, grad):
        self.add(name, grad)
        for out, back in reversed(self.steps):
            back(self.grads[out])


def tape(d_out, x, w):
    values, tape = {"x": x, "w": w, "b": np.zeros(w.shape[1])}, Tape()
    tape.matmul("product", "x", "w", values)
    tape.plus("out", "product", "b", values)
    tape.pull("out", d_out)
    return tape.grads["x"], tape.grads["w"], tape.grads["b"]


def sum_and_reduce(d_out, x, w):
    d_w = reduce(np.add, map(np.matmul, x.transpose(0, 2, 1), d_out))
    d_b = reduce(lambda total, row: total + row, d_out.reshape(-1, w.shape[1]))
    d_x = np.array([[w @ g for g in sequence] for sequence in d_out])
    return d_x, d_w, d_b


def column_by_column(d_out, x, w):
    d_w = np.empty(w.shape, order="F")
    d_b = np.empty(w.shape[1])
    d_x = 0
    for o in range(w.shape[1]):
        g = d_out[:, :, o]
        d_w[:, o] = [np.vdot(g, x[:, :, i]) for i in range(len(w))]
        d_b[o] = g.sum()
        d_x = d_x + np.multiply.outer(g, w[:, o])
    return d_x, d_w, d_b


def running_sums(d_out, x, w):
    rows = d_out.reshape(-1, d_out.shape[-1])
    products = x.reshape(len(rows), -1, 1) * rows[:, None]
    d_w, d_b = products.cumsum(axis=0)[-1], rows.cumsum(axis=0)[-1]
    return d_out @ w.swapaxes(0, 1), d_w, d_b


def reduceat_by_sequence(d_out, x, w):
    B, T, _ = x.shape
    rows = d_out.reshape(B * T, -1)
    d_b = np.add.reduceat(rows, np.arange(0, B * T, T)).sum(axis=0)
    d_w = np.einsum("bit,bto->bio", x.swapaxes(1, 2), d_out)
    d_w = np.add.reduceat(d_w, [0], axis=0).squeeze(axis=0)
    return np.inner(d_out, w), d_w, d_b


RIGHT = [
    two_dimensions_first,
    einsum,
    tensordot,
    loops_over_numbers,
    loop_over_the_batch,
    tokens_by_outer_products,
    broadcast_and_sum,
    matmul_for_each_sequence_then_sum,
    bias_as_one_more_row,
    in_longdouble,
    own_named_tuple_of_transposed_views,
    one_unit_vector_at_a_time,
    tape,
    sum_and_reduce,
    column_by_column,
    running_sums,
    reduceat_by_sequence,
    lambda d_out, x, w: (
        d_out @ w.T,
        (x[..., None] * d_out[:, :, None]).sum(0).sum(0),
        sum(sum(d_out)),
    ),
]
