"""Right solutions in unusual styles: bridges."""

import numpy as np

from mha_numpy.core import MultiHeadParams


def from_gpt2_by_selection_matrices(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    chosen = np.split(np.eye(c_attn_b.size), 3, axis=1)
    params = [a @ columns for columns in chosen for a in (c_attn_w, c_attn_b)]
    return MultiHeadParams(*params, c_proj_w, c_proj_b)


def to_gpt2_by_selection_matrices(params):
    D = params.b_q.size
    chosen = np.split(np.eye(3 * D), 3)
    c_attn_w = sum(w @ rows for w, rows in zip(params[:6:2], chosen, strict=True))
    c_attn_b = sum(b @ rows for b, rows in zip(params[1:6:2], chosen, strict=True))
    return c_attn_w, c_attn_b, params.w_o, params.b_o


def to_gpt2_by_block(params):
    both = np.block([[params.w_q, params.w_k, params.w_v], [params.b_q, params.b_k, params.b_v]])
    return both[:-1], both[-1], params.w_o, params.b_o
