"""Right ways to write params as GPT-2 stores them."""

import numpy as np


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


RIGHT = [
    by_scalar_loops,
    by_empty,
    by_block,
    by_selection_matrices,
]
