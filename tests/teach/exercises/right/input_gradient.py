"""Right ways to add the input's gradients of three projections."""

from functools import reduce
from operator import add

import numpy as np


def einsum_with_head_axes(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = 0
    for grad, w in (d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v):
        d_x = d_x + np.einsum("bhtc,xhc->btx", grad, w.reshape(-1, H, d))
    return d_x


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


def reduce_by_operator_add(d_q, d_k, d_v, params):
    def parts():
        for grad, name in (d_q, "w_q"), (d_k, "w_k"), (d_v, "w_v"):
            w = np.split(getattr(params, name), grad.shape[1], axis=1)
            yield from (grad[:, h] @ w[h].T for h in range(grad.shape[1]))

    return reduce(add, parts())


def add_at_tokens(d_q, d_k, d_v, params):
    B, H, T, d = d_q.shape
    d_x = np.zeros((B, T, params.w_q.shape[0]))
    b, h, t = np.indices((B, H, T)).reshape(3, -1)
    for grad, w in (d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v):
        of_head = w.T.reshape(H, d, -1)[h]  # (B*H*T, d, D)
        np.add.at(d_x, (b, t), np.einsum("nc,ncx->nx", grad[b, h, t], of_head))
    return d_x


def transposed_view(d_q, d_k, d_v, params):
    d_x_T = np.zeros((params.w_q.shape[0], d_q.shape[2], d_q.shape[0]))  # (D, T, B)
    for grad, w in zip([d_q, d_k, d_v], params[0:6:2], strict=True):
        merged_T = grad.transpose(1, 3, 2, 0).reshape(-1, *d_x_T.shape[1:])
        d_x_T += np.tensordot(w, merged_T, axes=1)
    return d_x_T.T


RIGHT = [
    loops_over_numbers,
    einsum_with_head_axes,
    reduce_by_operator_add,
    add_at_tokens,
    transposed_view,
]
