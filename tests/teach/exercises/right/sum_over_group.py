"""Right ways to sum gradients over a group of query heads."""

import math

import numpy as np


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


def einsum_with_kron(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    belongs = np.kron(np.eye(num_kv_heads), np.ones(G))
    return np.einsum("kh,bhtd->bktd", belongs, d_per_query_head)


def differences_of_running_sums(d_per_query_head, num_kv_heads):
    G = d_per_query_head.shape[1] // num_kv_heads
    ends = np.cumsum(d_per_query_head, axis=1)[:, G - 1 :: G]
    return np.diff(ends, axis=1, prepend=0)


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


RIGHT = [
    loops_over_numbers,
    einsum_with_kron,
    differences_of_running_sums,
    in_place_on_a_copy,
    its_own_input_for_groups_of_one,
]
