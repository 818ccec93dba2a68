from functools import partial
from typing import NamedTuple

import numpy as np


def split(x, H):
    B, T, width = x.shape
    return x.reshape(B, T, H, width // H).transpose(0, 2, 1, 3)


def merge(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


def textbook(d_out, params, saved):
    def linear(d_out, x, w):
        flat_x, flat_d = x.reshape(-1, x.shape[-1]), d_out.reshape(-1, d_out.shape[-1])
        return d_out @ w.T, flat_x.T @ flat_d, flat_d.sum(axis=0)

    d_merged, d_w_o, d_b_o = linear(d_out, saved.merged, params.w_o)
    d_heads = split(d_merged, saved.q.shape[1])
    d_v = saved.weights.swapaxes(-1, -2) @ d_heads
    d_weights = d_heads @ saved.v.swapaxes(-1, -2)
    row_sum = (saved.weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = saved.weights * (d_weights - row_sum) / np.sqrt(saved.q.shape[-1])
    d_q, d_k = d_scores @ saved.k, d_scores.swapaxes(-1, -2) @ saved.q
    d_x_q, d_w_q, d_b_q = linear(merge(d_q), saved.x, params.w_q)
    d_x_k, d_w_k, d_b_k = linear(merge(d_k), saved.x, params.w_k)
    d_x_v, d_w_v, d_b_v = linear(merge(d_v), saved.x, params.w_v)
    d_params = type(params)(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o)
    return d_x_q + d_x_k + d_x_v, d_params


def einsum_with_head_axes(d_out, params, saved):
    x, q, k, v, p, merged = saved
    B, H, T, d = q.shape
    w_q, w_k, w_v = (w.reshape(-1, H, d) for w in (params.w_q, params.w_k, params.w_v))
    w_o, heads = params.w_o.reshape(H, d, -1), merged.reshape(B, T, H, d)
    d_heads = np.einsum("bto,hco->bhtc", d_out, w_o)
    d_p = np.einsum("bhic,bhjc->bhij", d_heads, v)
    d_s = p * (d_p - np.einsum("bhij,bhij->bhi", p, d_p)[..., None]) * d**-0.5
    grads = {
        "q": np.einsum("bhij,bhjc->bhic", d_s, k),
        "k": np.einsum("bhij,bhic->bhjc", d_s, q),
        "v": np.einsum("bhij,bhic->bhjc", p, d_heads),
    }
    d_x = sum(
        np.einsum("bhtc,xhc->btx", g, w)
        for g, w in zip(grads.values(), (w_q, w_k, w_v), strict=True)
    )
    d_params = {}
    for name, g in grads.items():
        d_params["w_" + name] = np.einsum("btx,bhtc->xhc", x, g).reshape(x.shape[-1], H * d)
        d_params["b_" + name] = np.einsum("bhtc->hc", g).reshape(-1)
    d_params["w_o"] = np.einsum("bthc,bto->hco", heads, d_out).reshape(H * d, -1)
    d_params["b_o"] = np.einsum("bto->o", d_out)
    return d_x, params._replace(**d_params)


def loops_over_sequences_and_heads(d_out, params, saved):
    d_params = params._make([np.zeros_like(p) for p in params])
    d_x = np.zeros_like(saved.x)
    B, H, T, d = saved.q.shape
    for b in range(B):
        x, g = saved.x[b], d_out[b]
        d_params.w_o[:] += saved.merged[b].T @ g
        d_params.b_o[:] += g.sum(axis=0)
        for h in range(H):
            at = slice(h * d, (h + 1) * d)
            q, k, v, p = (a[b, h] for a in (saved.q, saved.k, saved.v, saved.weights))
            d_head = g @ params.w_o[at].T
            d_p = d_head @ v.T
            d_s = p * (d_p - (p * d_p).sum(axis=1, keepdims=True)) / np.sqrt(d)
            for letter, grad in ("q", d_s @ k), ("k", d_s.T @ q), ("v", p.T @ d_head):
                d_x[b] += grad @ getattr(params, "w_" + letter)[:, at].T
                getattr(d_params, "w_" + letter)[:, at] += x.T @ grad
                getattr(d_params, "b_" + letter)[at] += grad.sum(axis=0)
    return d_x, d_params


def loops_over_numbers(d_out, params, saved):
    B, H, T, d = saved.q.shape
    D, D_out = saved.x.shape[2], d_out.shape[2]
    w_q, w_k, w_v, w_o = (getattr(params, "w_" + n).tolist() for n in "qkvo")
    d_merged = np.zeros((B, T, H * d))
    d_w_o, d_b_o = np.zeros((H * d, D_out)), np.zeros(D_out)
    for b, t, o in np.ndindex(B, T, D_out):
        d_b_o[o] += d_out[b, t, o]
        for m in range(H * d):
            d_merged[b, t, m] += d_out[b, t, o] * w_o[m][o]
            d_w_o[m, o] += d_out[b, t, o] * saved.merged[b, t, m]
    d_q, d_k, d_v = np.zeros((3, B, T, H * d))
    for b, h, i in np.ndindex(B, H, T):
        p = saved.weights[b, h, i].tolist()
        d_p = [
            sum(d_merged[b, i, h * d + c] * saved.v[b, h, j, c] for c in range(d)) for j in range(T)
        ]
        dot = sum(p[j] * d_p[j] for j in range(T))
        for j in range(T):
            d_s = p[j] * (d_p[j] - dot) / d**0.5
            for c in range(d):
                d_q[b, i, h * d + c] += d_s * saved.k[b, h, j, c]
                d_k[b, j, h * d + c] += d_s * saved.q[b, h, i, c]
                d_v[b, j, h * d + c] += p[j] * d_merged[b, i, h * d + c]
    d_x = np.zeros((B, T, D))
    d_params = []
    for grad, w in (d_q, w_q), (d_k, w_k), (d_v, w_v):
        d_w, d_b = np.zeros((D, H * d)), np.zeros(H * d)
        for b, t, m in np.ndindex(B, T, H * d):
            d_b[m] += grad[b, t, m]
            for n in range(D):
                d_x[b, t, n] += grad[b, t, m] * w[n][m]
                d_w[n, m] += grad[b, t, m] * saved.x[b, t, n]
        d_params += [d_w, d_b]
    return d_x, (*d_params, d_w_o, d_b_o)


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


def fused_projection(d_out, params, saved):
    B, H, T, d = saved.q.shape
    d_heads = split(d_out @ params.w_o.T, H)
    d_weights = d_heads @ saved.v.swapaxes(2, 3)
    heads = split(saved.merged, H)
    row_dot = (d_heads * heads).sum(axis=3, keepdims=True)
    d_scores = saved.weights * (d_weights - row_dot) / np.sqrt(d)
    d_qkv = np.concatenate([
        merge(d_scores @ saved.k),
        merge(d_scores.swapaxes(2, 3) @ saved.q),
        merge(saved.weights.swapaxes(2, 3) @ d_heads),
    ], axis=2)  # fmt: skip
    d_x = d_qkv @ np.hstack([params.w_q, params.w_k, params.w_v]).T
    d_w_q, d_w_k, d_w_v = np.split(np.tensordot(saved.x, d_qkv, axes=([0, 1], [0, 1])), 3, axis=1)
    d_b_q, d_b_k, d_b_v = np.split(d_qkv.sum(axis=(0, 1)), 3)
    d_w_o = np.tensordot(saved.merged, d_out, axes=([0, 1], [0, 1]))
    d_b_o = d_out.sum(axis=(0, 1))
    return d_x, (d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o)


def in_longdouble(d_out, params, saved):
    def times(a, b):
        return np.einsum("...ij,...jk->...ik", a, b)

    wide = [np.asarray(a, np.longdouble) for a in (d_out, *params, saved.x, saved.merged)]
    d_out, w_q, _, w_k, _, w_v, _, w_o, _, x, merged = wide
    q, k, v, p = (np.longdouble(a) for a in (saved.q, saved.k, saved.v, saved.weights))
    d_heads = split(times(d_out, w_o.T), q.shape[1])
    d_p = times(d_heads, v.swapaxes(2, 3))
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) / np.sqrt(np.longdouble(q.shape[-1]))
    branches = times(d_s, k), times(d_s.swapaxes(2, 3), q), times(p.swapaxes(2, 3), d_heads)
    d_x, d_params = 0, []
    for grad, w in zip(map(merge, branches), (w_q, w_k, w_v), strict=True):
        d_x = d_x + times(grad, w.T)
        d_params += [times(x.swapaxes(1, 2), grad).sum(0), grad.sum((0, 1))]
    d_params += [times(merged.swapaxes(1, 2), d_out).sum(0), d_out.sum((0, 1))]
    return d_x.astype(float), params._make(grad.astype(float) for grad in d_params)


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


def tokens_before_heads(d_out, params, saved):
    B, H, T, d = saved.q.shape
    q, k, v = (a.transpose(0, 2, 1, 3) for a in (saved.q, saved.k, saved.v))  # (B, T, H, d)
    p = saved.weights.transpose(0, 2, 1, 3)  # (B, T_q, H, T_k)
    g = np.matmul(d_out, params.w_o.T).reshape(B, T, H, d)
    d_p = np.einsum("bihc,bjhc->bihj", g, v)
    d_s = p * (d_p - np.sum(d_p * p, -1, keepdims=True)) / np.sqrt(d)
    d_q = np.einsum("bihj,bjhc->bihc", d_s, k).reshape(B, T, -1)
    d_k = np.einsum("bihj,bihc->bjhc", d_s, q).reshape(B, T, -1)
    d_v = np.einsum("bihj,bihc->bjhc", p, g).reshape(B, T, -1)
    d_x = np.inner(d_q, params.w_q) + np.inner(d_k, params.w_k) + np.inner(d_v, params.w_v)
    d_w = [np.einsum("bto,bti->oi", grad, saved.x).T for grad in (d_q, d_k, d_v)]  # views
    d_b = [np.add.reduce(grad, axis=(0, 1)) for grad in (d_q, d_k, d_v)]
    d_w.append(np.einsum("bto,bti->oi", d_out, saved.merged).T)
    d_b.append(np.add.reduce(d_out, axis=(0, 1)))
    pairs = zip(d_w, d_b, strict=True)
    return d_x, tuple(grad for pair in pairs for grad in pair)


def jacobian_of_each_row(d_out, params, saved):
    d_heads = split(d_out @ params.w_o.T, saved.q.shape[1])
    d_scores = np.zeros(saved.weights.shape)
    for b, h, i in np.ndindex(d_heads.shape[:3]):
        p = saved.weights[b, h, i]
        jacobian = np.diag(p) - np.outer(p, p)
        d_scores[b, h, i] = jacobian @ (saved.v[b, h] @ d_heads[b, h, i])
    scaled_q, scaled_k = (a / np.sqrt(a.shape[-1]) for a in (saved.q, saved.k))
    d_q, d_k = d_scores @ scaled_k, np.swapaxes(d_scores, 2, 3) @ scaled_q
    d_v = np.swapaxes(saved.weights, 2, 3) @ d_heads
    grads = [np.concatenate(list(merge(g))) for g in (d_q, d_k, d_v)]
    rows = np.concatenate(list(saved.x))
    d_x = sum(g @ w.T for g, w in zip(grads, params[0:6:2], strict=True))
    d_params = [part for g in grads for part in (rows.T @ g, np.ones(len(g)) @ g)]
    last = np.concatenate(list(d_out))
    d_params += [np.concatenate(list(saved.merged)).T @ last, np.ones(len(last)) @ last]
    return d_x.reshape(saved.x.shape), params._make(d_params)


def one_sequence(d_out, params, x, q, k, v, weights, merged):
    H, T, d = q.shape
    d_heads = np.stack(np.hsplit(np.dot(d_out, params.w_o.T), H))
    d_p = np.stack([np.dot(d_heads[h], v[h].T) for h in range(H)])
    d_s = weights * (d_p - (weights * d_p).sum(-1)[..., None]) / np.sqrt(d)
    d_q = np.hstack([d_s[h].dot(k[h]) for h in range(H)])
    d_k = np.hstack([d_s[h].T.dot(q[h]) for h in range(H)])
    d_v = np.hstack([weights[h].T.dot(d_heads[h]) for h in range(H)])
    d_x = d_q.dot(params.w_q.T) + d_k.dot(params.w_k.T) + d_v.dot(params.w_v.T)
    grads = x.T.dot(d_q), d_q.sum(0), x.T.dot(d_k), d_k.sum(0), x.T.dot(d_v), d_v.sum(0)
    return d_x, (*grads, merged.T.dot(d_out), d_out.sum(0))


def sequence_by_sequence(d_out, params, saved, backward=one_sequence):
    names = "x", "q", "k", "v", "weights", "merged"
    arrays = [getattr(saved, name) for name in names]
    parts = [backward(g, params, *given) for g, *given in zip(d_out, *arrays, strict=True)]
    d_x, d_params = zip(*parts, strict=True)
    return {
        "d_params": params._make(map(sum, zip(*d_params, strict=True))),
        "d_x": np.stack(d_x),
    }


class MultiHeadBackward:
    def __init__(self, order="C"):
        self.order = order

    def __call__(self, d_out, params, saved):
        self.d_params = {}
        d_merged = self.linear("o", d_out, saved.merged, params)
        d_heads = d_merged.reshape(*d_merged.shape[:2], saved.q.shape[1], -1).swapaxes(1, 2)
        d_q, d_k, d_v = self.attention(d_heads, saved)
        d_x = np.zeros(saved.x.shape, order=self.order)
        for letter, grad in zip("qkv", (d_q, d_k, d_v), strict=True):
            d_x += self.linear(letter, merge(grad), saved.x, params)
        return d_x, self.d_params

    def linear(self, letter, d_out, x, params):
        outer = x[..., :, None] * d_out[..., None, :]
        self.d_params["w_" + letter] = np.asarray(outer.sum(axis=(0, 1)), order=self.order)
        self.d_params["b_" + letter] = d_out.sum(axis=(0, 1))
        return (d_out[..., None, :] * getattr(params, "w_" + letter)).sum(axis=-1)

    def attention(self, d_heads, saved):
        d_p = (d_heads[:, :, :, None] * saved.v[:, :, None]).sum(-1)
        d_s = saved.weights * (d_p - (saved.weights * d_p).sum(-1, keepdims=True))
        d_s *= saved.q.shape[-1] ** -0.5
        d_q = (d_s[..., None] * saved.k[:, :, None]).sum(3)
        d_k = (d_s[..., None] * saved.q[:, :, :, None]).sum(2)
        return d_q, d_k, (saved.weights[..., None] * d_heads[:, :, :, None]).sum(2)


RIGHT = [
    textbook,
    einsum_with_head_axes,
    loops_over_sequences_and_heads,
    loops_over_numbers,
    tokens_in_place,
    rows_of_a_matrix,
    fused_projection,
    in_longdouble,
    tape,
    complex_step,
    tokens_before_heads,
    jacobian_of_each_row,
    partial(sequence_by_sequence, backward=one_sequence),
    MultiHeadBackward("F"),
]
