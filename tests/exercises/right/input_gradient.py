from functools import partial, reduce
from operator import add

import numpy as np


def merge_and_matmul(d_q, d_k, d_v, params):
    def merge(heads):
        B, H, T, d = heads.shape
        return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)

    return merge(d_q) @ params.w_q.T + merge(d_k) @ params.w_k.T + merge(d_v) @ params.w_v.T


def einsum_with_head_axes(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = 0
    for grad, w in (d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v):
        d_x = d_x + np.einsum("bhtc,xhc->btx", grad, w.reshape(-1, H, d))
    return d_x


def one_wide_matmul(dq, dk, dv, p):
    wide = np.concatenate([dq, dk, dv], axis=1)  # 3H heads
    wide = np.moveaxis(wide, 1, 2).reshape(dq.shape[0], dq.shape[2], -1)
    return wide @ np.hstack([p.w_q, p.w_k, p.w_v]).T


def rows_below_each_other(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    flat = [g.swapaxes(1, 2).reshape(B * T, H * d) for g in (d_q, d_k, d_v)]
    flat_w = np.vstack([params.w_q.T, params.w_k.T, params.w_v.T])
    return np.matmul(np.hstack(flat), flat_w).reshape(B, T, -1)


def loops_over_numbers(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    D = params.w_q.shape[0]
    d_x = np.zeros((B, T, D))
    for b in range(B):
        for t in range(T):
            for n in range(D):
                total = 0.0
                for h in range(H):
                    for c in range(d):
                        total += d_q[b, h, t, c] * params.w_q[n, h * d + c]
                        total += d_k[b, h, t, c] * params.w_k[n, h * d + c]
                        total += d_v[b, h, t, c] * params.w_v[n, h * d + c]
                d_x[b, t, n] = total
    return d_x


def heads_by_column_slices(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = np.zeros((B, T, len(params.w_q)))
    for h in range(H):
        columns = slice(h * d, (h + 1) * d)
        d_x += d_q[:, h] @ params.w_q[:, columns].T
        d_x += d_k[:, h] @ params.w_k[:, columns].T
        d_x += d_v[:, h] @ params.w_v[:, columns].T
    return d_x


def tokens_in_place(d_q, d_k, d_v, params):
    B, _, T, _ = d_q.shape
    d_x = np.zeros((B, T, params.w_q.shape[0]))
    for b in range(B):
        for t in range(T):
            d_x[b, t] += params.w_q @ d_q[b, :, t].ravel()
            d_x[b, t] += params.w_k @ d_k[b, :, t].ravel()
            d_x[b, t] += params.w_v @ d_v[b, :, t].ravel()
    return d_x


def tensordot(d_q, d_k, d_v, params):
    heads, width = d_q.shape[1], d_q.shape[3]
    parts = [
        np.tensordot(grad, w.reshape(len(w), heads, width), axes=([1, 3], [1, 2]))
        for grad, w in zip((d_q, d_k, d_v), (params.w_q, params.w_k, params.w_v), strict=True)
    ]
    return np.sum(parts, axis=0)


def reduce_by_operator_add(d_q, d_k, d_v, params):
    def parts():
        for grad, name in (d_q, "w_q"), (d_k, "w_k"), (d_v, "w_v"):
            w = np.split(getattr(params, name), grad.shape[1], axis=1)
            yield from (grad[:, h] @ w[h].T for h in range(grad.shape[1]))

    return reduce(add, parts())


def broadcast_and_sum(d_q, d_k, d_v, params):
    def pull(grad, w):
        grad = grad.transpose(0, 2, 1, 3)
        grad = grad.reshape(*grad.shape[:2], 1, -1)  # (B, T, 1, H*d)
        return (grad * w).sum(axis=-1)

    return pull(d_q, params.w_q) + pull(d_k, params.w_k) + pull(d_v, params.w_v)


def in_longdouble(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = np.zeros((B, T, len(params.w_q)), dtype=np.longdouble)
    for grad, w in (d_v, params.w_v), (d_k, params.w_k), (d_q, params.w_q):
        merged = np.concatenate([grad[:, h] for h in range(H)], axis=-1).astype(np.longdouble)
        d_x += merged @ w.T.astype(np.longdouble)
    return d_x.astype(np.float64)


def add_at_tokens(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = np.zeros((B, T, params.w_q.shape[0]))
    b, h, t = np.indices((B, H, T)).reshape(3, -1)
    for grad, w in (d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v):
        of_head = w.T.reshape(H, d, -1)[h]  # (B*H*T, d, D)
        np.add.at(d_x, (b, t), np.einsum("nc,ncx->nx", grad[b, h, t], of_head))
    return d_x


def one_unit_vector_at_a_time(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape

    def project(x, w):
        return (x @ w).reshape(H, d)

    d_x = np.zeros((B, T, len(params.w_q)))
    for n, unit in enumerate(np.eye(len(params.w_q))):
        d_x[..., n] += np.einsum("bhtc,hc->bt", d_q, project(unit, params.w_q))
        d_x[..., n] += np.einsum("bhtc,hc->bt", d_k, project(unit, params.w_k))
        d_x[..., n] += np.einsum("bhtc,hc->bt", d_v, project(unit, params.w_v))
    return d_x


def transposed_view(d_q, d_k, d_v, params):
    d_x_T = np.zeros((params.w_q.shape[0], d_q.shape[2], d_q.shape[0]))  # (D, T, B)
    for grad, w in zip([d_q, d_k, d_v], params[0:6:2], strict=True):
        merged_T = grad.transpose(1, 3, 2, 0).reshape(-1, *d_x_T.shape[1:])
        d_x_T += np.tensordot(w, merged_T, axes=1)
    return d_x_T.T


def sequence_by_sequence(d_q, d_k, d_v, params):
    w_q, _, w_k, _, w_v, *_ = params
    d_x = []
    for grads in zip(d_q, d_k, d_v, strict=True):
        q, k, v = (np.hstack(list(grad)) for grad in grads)  # (T, H*d)
        d_x.append(np.dot(q, w_q.T) + np.dot(k, w_k.T) + np.dot(v, w_v.T))
    return np.stack(d_x)


def stacked_branches(d_q, d_k, d_v, params):
    grads = np.stack([d_q, d_k, d_v])  # (3, B, H, T, d)
    w = np.stack([params.w_q, params.w_k, params.w_v])  # (3, D, H*d)
    w = w.reshape(3, w.shape[1], *d_q.shape[1::2])
    return np.einsum("nbhtc,nxhc->btx", grads, w)


class InputGradient:
    def __init__(self, order="C"):
        self.order = order

    def branch(self, grad, w):
        merged = np.rollaxis(grad, 2, 1).reshape(grad.shape[0] * grad.shape[2], -1)
        return merged @ w.T

    def __call__(self, d_q, d_k, d_v, params):
        d_x = self.branch(d_q, params.w_q)
        d_x += self.branch(d_k, params.w_k)
        d_x += self.branch(d_v, params.w_v)
        d_x = d_x.reshape(len(d_q), d_q.shape[2], -1)
        return np.asarray(d_x, order=self.order)


def any_branches(d_q, d_k, d_v, params, names=()):
    grads = {"q": d_q, "k": d_k, "v": d_v}
    merged = {n: np.swapaxes(grads[n], 1, 2) for n in names}
    merged = {n: g.reshape(*g.shape[:2], -1) for n, g in merged.items()}
    return sum(merged[n] @ getattr(params, f"w_{n}").T for n in names)


RIGHT = [
    merge_and_matmul,
    einsum_with_head_axes,
    one_wide_matmul,
    rows_below_each_other,
    loops_over_numbers,
    heads_by_column_slices,
    tokens_in_place,
    tensordot,
    reduce_by_operator_add,
    broadcast_and_sum,
    in_longdouble,
    add_at_tokens,
    one_unit_vector_at_a_time,
    transposed_view,
    sequence_by_sequence,
    stacked_branches,
    InputGradient("F"),
    partial(any_branches, names="vkq"),
]
