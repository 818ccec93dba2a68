import math
from collections import defaultdict
from functools import partial, reduce

import numpy as np


def reshape_to_five_axes(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    return d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d).sum(axis=2)


def loop_over_query_heads(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    d_shared = np.zeros((B, num_kv_heads, T, d))
    for h in range(H):
        d_shared[:, h // (H // num_kv_heads)] += d_per_query_head[:, h]
    return d_shared


def loop_over_kv_heads(g, n):
    group = g.shape[1] // n
    out = np.empty((g.shape[0], n, g.shape[2], g.shape[3]))
    for j in range(n):
        out[:, j] = g[:, j * group : (j + 1) * group].sum(axis=1)
    return out


def loops_over_numbers(d_heads, num_kv_heads):
    B, H, T, d = d_heads.shape
    G = H // num_kv_heads
    out = np.zeros((B, num_kv_heads, T, d))
    for b in range(B):
        for j in range(num_kv_heads):
            for t in range(T):
                for c in range(d):
                    out[b, j, t, c] = math.fsum(d_heads[b, j * G + g, t, c] for g in range(G))
    return out


def members_by_strided_slices(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    return sum(d_per_query_head[:, member::G] for member in range(G))


def add_at(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    d_shared = np.zeros((B, num_kv_heads, T, d))
    owner = np.repeat(np.arange(num_kv_heads), H // num_kv_heads)
    np.add.at(d_shared, (slice(None), owner), d_per_query_head)
    return d_shared


def reduceat(d_per_query_head, num_kv_heads):
    H = d_per_query_head.shape[1]
    return np.add.reduceat(d_per_query_head, range(0, H, H // num_kv_heads), axis=1)


def matmul_with_membership(d_per_query_head, num_kv_heads):
    H = d_per_query_head.shape[1]
    owner = np.arange(H) // (H // num_kv_heads)
    belongs = (owner == np.arange(num_kv_heads)[:, None]).astype(float)  # (H_kv, H)
    d_shared = belongs @ d_per_query_head.swapaxes(1, 2)  # (B, T, H_kv, d)
    return d_shared.swapaxes(1, 2)


def einsum_with_kron(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    belongs = np.kron(np.eye(num_kv_heads), np.ones(G))
    return np.einsum("kh,bhtd->bktd", belongs, d_per_query_head)


def tensordot(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    grouped = np.reshape(d_per_query_head, (B, num_kv_heads, -1, T, d))
    return np.tensordot(grouped, np.ones(H // num_kv_heads), axes=(2, 0))


def split_and_stack(d_per_query_head, num_kv_heads):
    groups = np.split(d_per_query_head, num_kv_heads, axis=1)
    return np.stack([group.sum(1) for group in groups], axis=1)


def concatenate_with_keepdims(d_per_query_head, num_kv_heads):
    groups = np.array_split(d_per_query_head, num_kv_heads, axis=1)
    return np.concatenate([np.add.reduce(g, axis=1, keepdims=True) for g in groups], axis=1)


def differences_of_running_sums(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    ends = np.cumsum(d_per_query_head, axis=1)[:, G - 1 :: G]
    return np.diff(ends, axis=1, prepend=0)


def recursion_over_heads(d_per_query_head, num_kv_heads):
    if num_kv_heads == 1:
        return d_per_query_head.sum(axis=1, keepdims=True)
    first = d_per_query_head.shape[1] // num_kv_heads
    head = recursion_over_heads(d_per_query_head[:, :first], 1)
    rest = recursion_over_heads(d_per_query_head[:, first:], num_kv_heads - 1)
    return np.hstack([head, rest])


def in_longdouble(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    grouped = d_per_query_head.astype(np.longdouble).reshape(B, num_kv_heads, -1, T, d)
    return np.float64(grouped.sum(axis=-3))


def dict_of_heads(d_per_query_head, num_kv_heads):
    H = d_per_query_head.shape[1]
    found = defaultdict(float)
    for h, grad in enumerate(np.moveaxis(d_per_query_head, 1, 0)):
        found[h * num_kv_heads // H] = found[h * num_kv_heads // H] + grad
    return np.array([found[j] for j in range(num_kv_heads)]).transpose(1, 0, 2, 3)


def fortran_axis_moved(d_per_query_head, num_kv_heads):
    B, H, T, d = d_per_query_head.shape
    heads_last = np.moveaxis(d_per_query_head, 1, -1).reshape(B, T, d, num_kv_heads, -1)
    return np.asfortranarray(np.moveaxis(heads_last.sum(-1), -1, 1))


def in_place_on_a_copy(d_per_query_head, num_kv_heads):
    grads = d_per_query_head.copy()
    G = grads.shape[1] // num_kv_heads
    for h in range(grads.shape[1]):
        if h % G:
            grads[:, h - h % G] += grads[:, h]
    return grads[:, ::G]


def its_own_input_for_groups_of_one(d_per_query_head, num_kv_heads):
    G, rest = divmod(d_per_query_head.shape[1], num_kv_heads)
    assert rest == 0
    if G == 1:
        return d_per_query_head
    last = d_per_query_head[:, G - 1 :: G]
    return last + sum(d_per_query_head[:, member::G] for member in range(G - 1))


class SumOverGroup:
    def __call__(self, d_per_query_head, num_kv_heads):
        G = d_per_query_head.shape[1] // num_kv_heads
        heads = range(num_kv_heads)
        return np.stack([self.group(d_per_query_head, j * G, G) for j in heads]).swapaxes(0, 1)

    def group(self, grads, start, G):
        return reduce(np.add, (grads[:, start + member] for member in range(G)))


def along(d_per_query_head, num_kv_heads, axis):
    shape = list(d_per_query_head.shape)
    shape[axis : axis + 1] = [num_kv_heads, shape[axis] // num_kv_heads]
    return np.sum(d_per_query_head.reshape(shape), axis=axis + 1)


RIGHT = [
    reshape_to_five_axes,
    loop_over_query_heads,
    loop_over_kv_heads,
    loops_over_numbers,
    members_by_strided_slices,
    add_at,
    reduceat,
    matmul_with_membership,
    einsum_with_kron,
    tensordot,
    split_and_stack,
    concatenate_with_keepdims,
    differences_of_running_sums,
    recursion_over_heads,
    in_longdouble,
    dict_of_heads,
    fortran_axis_moved,
    in_place_on_a_copy,
    its_own_input_for_groups_of_one,
    SumOverGroup(),
    partial(along, axis=1),
    lambda g, n: np.einsum("bkgtc->bktc", g.reshape(len(g), n, -1, *g.shape[2:])),
]
