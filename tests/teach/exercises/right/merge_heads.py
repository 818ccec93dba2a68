"""Right ways to merge heads."""

from itertools import product

import numpy as np


def by_block(heads):
    return np.array([np.block([list(sequence)]) for sequence in heads])


def by_scalar_loops(heads):
    B, H, T, d = heads.shape
    merged = np.zeros((B, T, H * d))
    for b, h, t, i in product(range(B), range(H), range(T), range(d)):
        merged[b, t, h * d + i] = heads[b, h, t, i]
    return merged


def by_filling_a_view(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d))
    merged.reshape(B, T, H, d)[...] = heads.transpose(0, 2, 1, 3)
    return merged


def by_einsum_with_one_hot(heads):
    _, H, _, d = heads.shape
    place = np.eye(H * d).reshape(H, d, H * d)
    return np.einsum("bhtd,hdm->btm", heads, place)


def by_recursion(heads):
    if heads.shape[1] == 1:
        return heads[:, 0]
    return np.concatenate([heads[:, 0], by_recursion(heads[:, 1:])], axis=-1)


RIGHT = [
    by_scalar_loops,
    by_einsum_with_one_hot,
    by_filling_a_view,
    by_block,
    by_recursion,
]
