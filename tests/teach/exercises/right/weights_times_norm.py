"""Right ways to measure what a head takes from each token."""

from math import hypot

import numpy as np


def by_scalar_loops(weights, v, w_o):
    B, H, T_q, T_k = weights.shape
    d_v, D = v.shape[-1], w_o.shape[1]
    brought = np.zeros(weights.shape)
    for b, h, j in np.ndindex(B, H, T_k):
        written = [sum(v[b, h, j, c] * w_o[h * d_v + c, o] for c in range(d_v)) for o in range(D)]
        for i in range(T_q):
            brought[b, h, i, j] = weights[b, h, i, j] * hypot(*written)
    return brought


def by_the_products_of_rows(weights, v, w_o):
    blocks = np.array(np.split(w_o, v.shape[1]))
    gram = blocks @ blocks.swapaxes(1, 2)  # (H, d_v, d_v): lengths without the D features
    return weights * np.sqrt(np.einsum("bhjc,hce,bhje->bhj", v, gram, v))[:, :, np.newaxis]


def each_term_written_out(weights, v, w_o):
    H = v.shape[1]
    heads = []
    for h, rows in enumerate(np.vsplit(w_o, H)):
        terms = weights[:, h, :, :, None] * (v[:, h] @ rows)[:, None]  # (B, T_q, T_k, D)
        heads.append(np.linalg.norm(terms, axis=-1))
    return np.stack(heads, axis=1)


RIGHT = [by_scalar_loops, by_the_products_of_rows, each_term_written_out]
