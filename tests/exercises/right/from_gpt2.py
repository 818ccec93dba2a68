"""Right ways to read the params of GPT-2."""

from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.core import MultiHeadParams

NAMES = ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")


def by_split(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1)
    b_q, b_k, b_v = np.split(c_attn_b, 3)
    return MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, c_proj_w, c_proj_b)


def by_slices(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = len(c_proj_b)
    return (
        c_attn_w[:, :D], c_attn_b[:D], c_attn_w[:, D : 2 * D], c_attn_b[D : 2 * D],
        c_attn_w[:, 2 * D :], c_attn_b[2 * D :], c_proj_w, c_proj_b,
    )  # fmt: skip


def by_copies_in_a_list(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = c_proj_w.shape[0]
    params = []
    for start in (0, D, 2 * D):
        params.append(c_attn_w[:, start : start + D].copy())
        params.append(c_attn_b[start : start + D].copy())
    return [*params, c_proj_w.copy(), c_proj_b.copy()]


def by_reshape(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = c_attn_w.shape[0]
    w, b = c_attn_w.reshape(D, 3, D), c_attn_b.reshape(3, D)
    return MultiHeadParams(w[:, 0], b[0], w[:, 1], b[1], w[:, 2], b[2], c_proj_w, c_proj_b)


def by_dict(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    params = {"w_o": c_proj_w, "b_o": c_proj_b}
    for letter, w, b in zip("qkv", np.hsplit(c_attn_w, 3), np.hsplit(c_attn_b, 3), strict=True):
        params[f"w_{letter}"], params[f"b_{letter}"] = w, b
    return params


def by_keywords(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    w, b = np.moveaxis(c_attn_w.reshape(len(c_attn_w), 3, -1), 1, 0), c_attn_b.reshape(3, -1)
    w_and_b = {f"{kind}_{c}": a[i] for kind, a in (("w", w), ("b", b)) for i, c in enumerate("qkv")}
    return MultiHeadParams(**w_and_b, w_o=c_proj_w, b_o=c_proj_b)


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


def in_fortran_order(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    q, k, v = np.vstack([c_attn_w, c_attn_b]).T.reshape(3, -1, len(c_attn_w) + 1)
    w_and_b = [a for part in (q, k, v) for a in (part[:, :-1].T, part[:, -1])]
    return MultiHeadParams(*w_and_b, np.asfortranarray(c_proj_w), c_proj_b)


class Params(NamedTuple):
    w_q: np.ndarray
    b_q: np.ndarray
    w_k: np.ndarray
    b_k: np.ndarray
    w_v: np.ndarray
    b_v: np.ndarray
    w_o: np.ndarray
    b_o: np.ndarray


def as_own_named_tuple(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    D = c_attn_w.shape[0]
    columns = [np.arange(n * D, (n + 1) * D) for n in range(3)]
    pairs = [(c_attn_w[:, c], c_attn_b[c]) for c in columns]
    return Params(*pairs[0], *pairs[1], *pairs[2], c_proj_w, c_proj_b)


def _from_gpt2(make, c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    parts = zip(np.array_split(c_attn_w, 3, -1), np.array_split(c_attn_b, 3), strict=True)
    return make(zip(NAMES, [*sum(parts, ()), c_proj_w, c_proj_b], strict=True))


by_partial = partial(_from_gpt2, dict)

RIGHT = [
    by_split, by_slices, by_copies_in_a_list, by_reshape, by_dict, by_keywords, by_scalar_loops,
    by_selection_matrices, in_fortran_order, as_own_named_tuple, by_partial,
]  # fmt: skip
