"""Right ways to write params as GPT-2 stores them."""

from functools import reduce
from typing import NamedTuple

import numpy as np


def by_concatenate(params):
    c_attn_w = np.concatenate([params.w_q, params.w_k, params.w_v], axis=1)
    c_attn_b = np.concatenate([params.b_q, params.b_k, params.b_v])
    return c_attn_w, c_attn_b, params.w_o, params.b_o


def by_hstack(params):
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = params
    return [np.hstack((w_q, w_k, w_v)), np.hstack((b_q, b_k, b_v)), w_o, b_o]


def by_step_of_two(params):
    w, b = params[0:6:2], params[1:6:2]
    return np.concatenate(w, axis=-1), np.concatenate(b, axis=-1), *params[6:]


def by_empty(params):
    D = params.w_o.shape[1]
    c_attn_w, c_attn_b = np.empty((D, 3 * D)), np.empty(3 * D)
    for n, letter in enumerate("qkv"):
        c_attn_w[:, n * D : (n + 1) * D] = getattr(params, f"w_{letter}")
        c_attn_b[n * D : (n + 1) * D] = getattr(params, f"b_{letter}")
    return {
        "c_attn_w": c_attn_w,
        "c_attn_b": c_attn_b,
        "c_proj_w": params.w_o.copy(),
        "c_proj_b": params.b_o.copy(),
    }


def by_stack_and_reshape(params):
    D = len(params.w_q)
    p = params._asdict()
    c_attn_w = np.stack([p["w_q"], p["w_k"], p["w_v"]], axis=1).reshape(D, 3 * D)
    c_attn_b = np.stack([p["b_q"], p["b_k"], p["b_v"]]).ravel()
    return c_attn_w, c_attn_b, p["w_o"], p["b_o"]


def by_scalar_loops(params):
    D = params.b_q.size
    c_attn_w, c_attn_b = np.zeros((D, 3 * D)), np.zeros(3 * D)
    ws, bs = (params.w_q, params.w_k, params.w_v), (params.b_q, params.b_k, params.b_v)
    for column in range(3 * D):
        n, o = divmod(column, D)
        c_attn_b[column] = bs[n][o]
        for i in range(D):
            c_attn_w[i, column] = ws[n][i, o]
    return c_attn_w, c_attn_b, params.w_o, params.b_o


def by_block(params):
    both = np.block([[params.w_q, params.w_k, params.w_v], [params.b_q, params.b_k, params.b_v]])
    return both[:-1], both[-1], params.w_o, params.b_o


def by_selection_matrices(params):
    D = params.b_q.size
    chosen = np.split(np.eye(3 * D), 3)
    c_attn_w = sum(w @ rows for w, rows in zip(params[:6:2], chosen, strict=True))
    c_attn_b = sum(b @ rows for b, rows in zip(params[1:6:2], chosen, strict=True))
    return c_attn_w, c_attn_b, params.w_o, params.b_o


def by_append(params):
    def beside(one, other):
        return np.append(one, other, axis=-1)

    return reduce(beside, params[:6:2]), reduce(beside, params[1:6:2]), params[6], params[7]


def as_transposed_view(params):
    rows = np.vstack([w.T for w in (params.w_q, params.w_k, params.w_v)])
    return rows.T, np.r_[params.b_q, params.b_k, params.b_v], params.w_o, params.b_o


class Stored(NamedTuple):
    c_attn_w: np.ndarray
    c_attn_b: np.ndarray
    c_proj_w: np.ndarray
    c_proj_b: np.ndarray


def as_own_named_tuple(params):
    w = np.column_stack([params.w_q, params.w_k, params.w_v])
    b = np.array([params.b_q, params.b_k, params.b_v]).reshape(-1)
    return Stored(w, b, c_proj_w=params.w_o, c_proj_b=params.b_o)


RIGHT = [
    by_concatenate, by_hstack, by_step_of_two, by_empty, by_stack_and_reshape, by_scalar_loops,
    by_block, by_selection_matrices, by_append, as_transposed_view, as_own_named_tuple,
]  # fmt: skip
