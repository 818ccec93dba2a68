"""Right gradients of multi-head self-attention."""

from typing import NamedTuple

import numpy as np


def split(x, H):
    B, T, width = x.shape
    return x.reshape(B, T, H, width // H).transpose(0, 2, 1, 3)


def merge(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


def tokens_in_place(d_out, params, saved):
    B, T, D = saved.x.shape
    H, d = saved.q.shape[1], saved.q.shape[3]
    grads = {name: np.zeros(p.shape) for name, p in params._asdict().items()}
    d_q, d_k, d_v = (np.zeros((B, T, H, d)) for _ in range(3))
    for b in range(B):
        for t in range(T):
            grads["w_o"] += np.outer(saved.merged[b, t], d_out[b, t])
            grads["b_o"] += d_out[b, t]
            g = (params.w_o @ d_out[b, t]).reshape(H, 1, d)
            p = saved.weights[b, :, t, :, None]  # (H, T_k, 1)
            d_p = (g * saved.v[b]).sum(2, keepdims=True)
            d_s = p * (d_p - (p * d_p).sum(1, keepdims=True)) / np.sqrt(d)
            d_q[b, t] = (d_s * saved.k[b]).sum(1)
            d_k[b] += (d_s * saved.q[b, :, t, None]).swapaxes(0, 1)
            d_v[b] += (p * g).swapaxes(0, 1)
    d_x = np.zeros((B, T, D))
    for b in range(B):
        for t in range(T):
            for letter, grad in ("q", d_q), ("k", d_k), ("v", d_v):
                row = grad[b, t].ravel()
                d_x[b, t] += params._asdict()["w_" + letter] @ row
                grads["w_" + letter] += np.outer(saved.x[b, t], row)
                grads["b_" + letter] += row
    return [d_x, grads]


class SelfAttentionGrads(NamedTuple):
    d_x: np.ndarray
    d_params: dict


def rows_of_a_matrix(d_out, params, saved):
    B, H, T, d = saved.q.shape
    X, Y, G = (a.reshape(B * T, -1) for a in (saved.x, saved.merged, d_out))
    d_heads = (G @ params.w_o.T).reshape(B, T, H, d).swapaxes(1, 2).reshape(B * H, T, d)
    q, k, v, p = (a.reshape(B * H, T, -1) for a in (saved.q, saved.k, saved.v, saved.weights))
    d_p = d_heads @ v.transpose(0, 2, 1)
    d_s = p * (d_p - np.sum(p * d_p, axis=2, keepdims=True)) / d**0.5
    grads = d_s @ k, d_s.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ d_heads
    d_q, d_k, d_v = (g.reshape(B, H, T, d).swapaxes(1, 2).reshape(B * T, H * d) for g in grads)
    d_X = d_q @ params.w_q.T + d_k @ params.w_k.T + d_v @ params.w_v.T
    d_params = {"w_o": Y.T @ G, "w_q": X.T @ d_q, "w_k": X.T @ d_k, "w_v": X.T @ d_v}
    d_params |= {"b_o": G.sum(0), "b_q": d_q.sum(0), "b_k": d_k.sum(0), "b_v": d_v.sum(0)}
    return SelfAttentionGrads(d_X.reshape(saved.x.shape), d_params)


class Node:
    def __init__(self, value, *pulls):
        self.value, self.pulls, self.grad = value, pulls, 0.0

    def __add__(self, bias):
        return Node(self.value + bias.value, (self, lambda g: g), (bias, lambda g: g.sum((0, 1))))

    def __matmul__(self, other):
        a, b = self.value, other.value

        def pull_right(g):
            d_b = a.swapaxes(-1, -2) @ g
            return d_b.sum(axis=0) if b.ndim == 2 else d_b

        return Node(a @ b, (self, lambda g: g @ b.swapaxes(-1, -2)), (other, pull_right))

    def then(self, forward, back):
        return Node(forward(self.value), (self, back))


def tape(d_out, params, saved):
    H, d = saved.q.shape[1], saved.q.shape[-1]
    p = saved.weights
    x, leaf = Node(saved.x), {name: Node(value) for name, value in params._asdict().items()}
    q, k, v = (
        (x @ leaf["w_" + n] + leaf["b_" + n]).then(lambda a: split(a, H), merge) for n in "qkv"
    )
    scores = q @ k.then(lambda a: a.swapaxes(2, 3) / d**0.5, lambda g: g.swapaxes(2, 3) / d**0.5)
    weights = scores.then(lambda _: p, lambda g: p * (g - (p * g).sum(-1, keepdims=True)))
    merged = (weights @ v).then(merge, lambda g: split(g, H))
    out = merged @ leaf["w_o"] + leaf["b_o"]

    order = []

    def visit(node):
        if node not in order:
            for parent, _ in node.pulls:
                visit(parent)
            order.append(node)

    visit(out)
    out.grad = d_out
    for node in reversed(order):
        for parent, pull in node.pulls:
            parent.grad = parent.grad + pull(node.grad)
    return x.grad, type(params)(*(node.grad for node in leaf.values()))


def complex_step(d_out, params, saved):
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


RIGHT = [
    tokens_in_place,
    rows_of_a_matrix,
    tape,
    complex_step,
]
