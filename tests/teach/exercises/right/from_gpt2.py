"""Right ways to read the params of GPT-2."""

import numpy as np

from mha_numpy.core import MultiHeadParams


def by_slices(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = len(c_proj_b)
    return (
        c_attn_w[:, :D], c_attn_b[:D], c_attn_w[:, D : 2 * D], c_attn_b[D : 2 * D],
        c_attn_w[:, 2 * D :], c_attn_b[2 * D :], c_proj_w, c_proj_b,
    )  # fmt: skip


def by_dict(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    params = {"w_o": c_proj_w, "b_o": c_proj_b}
    for letter, w, b in zip("qkv", np.hsplit(c_attn_w, 3), np.hsplit(c_attn_b, 3), strict=True):
        params[f"w_{letter}"], params[f"b_{letter}"] = w, b
    return params


def by_scalar_loops(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = c_attn_w.shape[0]
    w, b = np.zeros((3, D, D)), np.zeros((3, D))
    for n in range(3):
        for o in range(D):
            b[n, o] = c_attn_b[n * D + o]
            for i in range(D):
                w[n, i, o] = c_attn_w[i, n * D + o]
    return w[0], b[0], w[1], b[1], w[2], b[2], c_proj_w, c_proj_b


def by_selection_matrices(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    chosen = np.split(np.eye(c_attn_b.size), 3, axis=1)
    params = [a @ columns for columns in chosen for a in (c_attn_w, c_attn_b)]
    return MultiHeadParams(*params, c_proj_w, c_proj_b)


RIGHT = [
    by_scalar_loops,
    by_slices,
    by_selection_matrices,
    by_dict,
]
