"""Right ways to merge heads."""

from functools import partial, reduce
from itertools import product

import numpy as np


def by_transpose(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


def by_swapaxes(heads):
    by_token = heads.swapaxes(1, 2)
    return by_token.reshape(*by_token.shape[:2], -1)


def by_moveaxis(heads):
    B, _, T, _ = heads.shape
    return np.reshape(np.moveaxis(heads, 1, -2), (B, T, -1))


def by_rollaxis(heads):
    B, H, T, d = heads.shape
    return np.ascontiguousarray(np.rollaxis(heads, 2, 1)).reshape(B, T, H * d)


def by_concatenate(heads):
    return np.concatenate([heads[:, h] for h in range(heads.shape[1])], axis=-1)


def by_concatenate_of_an_array(heads):
    return np.concatenate(heads.swapaxes(0, 1), axis=2)


def by_dstack(heads):
    return np.dstack([head.squeeze(1) for head in np.split(heads, heads.shape[1], axis=1)])


def by_hstack_of_each_sequence(heads):
    return np.stack([np.hstack(list(sequence)) for sequence in heads])


def by_stack(heads):
    B, _, T, _ = heads.shape
    return np.stack(list(np.moveaxis(heads, 1, 0)), axis=2).reshape(B, T, -1)


def by_block(heads):
    return np.array([np.block([list(sequence)]) for sequence in heads])


def by_loop_over_heads(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d))
    for h in range(H):
        merged[..., h * d : (h + 1) * d] = heads[:, h]
    return merged


def by_loop_over_tokens(heads):
    B, H, T, d = heads.shape
    merged = np.zeros((B, T, H * d))
    for b in range(B):
        for t in range(T):
            merged[b, t] = heads[b, :, t].ravel()
    return merged


def by_scalar_loops(heads):
    B, H, T, d = heads.shape
    merged = np.zeros((B, T, H * d))
    for b, h, t, i in product(range(B), range(H), range(T), range(d)):
        merged[b, t, h * d + i] = heads[b, h, t, i]
    return merged


def by_every_dth_column(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d), dtype=heads.dtype)
    for i in range(d):
        merged[:, :, i::d] = heads[:, :, :, i].swapaxes(1, 2)
    return merged


def by_filling_a_view(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d))
    merged.reshape(B, T, H, d)[...] = heads.transpose(0, 2, 1, 3)
    return merged


def by_einsum(heads):
    B, H, T, d = heads.shape
    return np.einsum("bhtd->bthd", heads).reshape(B, T, H * d)


def by_einsum_with_one_hot(heads):
    _, H, _, d = heads.shape
    place = np.eye(H * d).reshape(H, d, H * d)
    return np.einsum("bhtd,hdm->btm", heads, place)


def by_tensordot(heads):
    _, H, _, d = heads.shape
    place = np.identity(H * d).reshape(H, d, H * d)
    return np.tensordot(heads, place, axes=([1, 3], [0, 1]))


def by_adding_padded_heads(heads):
    _, H, _, d = heads.shape
    return sum(np.pad(heads[:, h], ((0, 0), (0, 0), (h * d, (H - 1 - h) * d))) for h in range(H))


def by_indices(heads):
    B, H, T, d = heads.shape
    column = np.arange(H * d)
    batch, token = np.arange(B)[:, None, None], np.arange(T)[:, None]
    return heads[batch, column // d, token, column % d]


def by_add_at(heads):
    B, H, T, d = heads.shape
    b, h, t, i = np.indices(heads.shape)
    merged = np.zeros((B, T, H * d))
    np.add.at(merged, (b, t, h * d + i), heads)
    return merged


def by_fromiter(heads):
    B, H, T, d = heads.shape
    numbers = (
        heads[b, h, t, i] for b in range(B) for t in range(T) for h in range(H) for i in range(d)
    )
    return np.fromiter(numbers, dtype=float).reshape(B, T, H * d)


def by_reduce(heads):
    return reduce(partial(np.append, axis=-1), heads.swapaxes(0, 1))


def by_recursion(heads):
    if heads.shape[1] == 1:
        return heads[:, 0]
    return np.concatenate([heads[:, 0], by_recursion(heads[:, 1:])], axis=-1)


def in_fortran_order(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d), order="F")
    for h, head in enumerate(np.rollaxis(heads, 1)):
        merged[:, :, h * d : h * d + d] = head
    return merged


def as_transposed_view(heads):
    B, H, T, d = heads.shape
    return heads.transpose(1, 3, 0, 2).reshape(H * d, B, T).transpose(1, 2, 0)


class Merger:
    def __call__(self, heads):
        self.B, self.H, self.T, self.d = heads.shape
        out = np.empty((self.B, self.T, self.H, self.d))
        np.copyto(out, heads.swapaxes(2, 1))
        return out.reshape(self.B, self.T, self.H * self.d)


RIGHT = [
    by_transpose, by_swapaxes, by_moveaxis, by_rollaxis, by_concatenate, by_concatenate_of_an_array,
    by_dstack, by_hstack_of_each_sequence, by_stack, by_block, by_loop_over_heads,
    by_loop_over_tokens, by_scalar_loops, by_every_dth_column, by_filling_a_view, by_einsum,
    by_einsum_with_one_hot, by_tensordot, by_adding_padded_heads, by_indices, by_add_at,
    by_fromiter, by_reduce, by_recursion, in_fortran_order, as_transposed_view, Merger(),
]  # fmt: skip
