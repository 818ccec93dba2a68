"""Right ways to split heads."""

from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view


def by_transpose(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    return x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)


def by_swapaxes(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def by_moveaxis(x, num_heads):
    B, T, _ = x.shape
    return np.moveaxis(np.reshape(x, (B, T, num_heads, -1)), 2, 1)


def by_rollaxis(x, num_heads):
    B, T, D = x.shape
    return np.rollaxis(x.reshape(B, T, num_heads, D // num_heads), 2, 1)


def by_split_and_stack(x, num_heads):
    return np.stack(np.split(x, num_heads, axis=-1), axis=1)


def by_array_split_and_concatenate(x, num_heads):
    parts = np.array_split(x, num_heads, axis=2)
    return np.concatenate([part[:, None] for part in parts], axis=1)


def by_dsplit(x, num_heads):
    return np.array(np.dsplit(x, num_heads)).swapaxes(0, 1)


def by_hsplit_of_each_sequence(x, num_heads):
    return np.stack([np.stack(np.hsplit(sequence, num_heads)) for sequence in x])


def by_loop_over_heads(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    heads = np.empty((B, num_heads, T, d))
    for h in range(num_heads):
        heads[:, h] = x[:, :, h * d : (h + 1) * d]
    return heads


def by_loop_over_tokens(x, num_heads):
    B, T, width = x.shape
    heads = np.zeros((B, num_heads, T, width // num_heads), dtype=x.dtype)
    for b in range(B):
        for t in range(T):
            heads[b, :, t] = x[b, t].reshape(num_heads, -1)
    return heads


def by_scalar_loops(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    heads = np.zeros((B, num_heads, T, d))
    for b in range(B):
        for t in range(T):
            for column in range(width):
                h, i = divmod(column, d)
                heads[b, h, t, i] = x[b, t, column]
    return heads


def by_nested_lists(x, num_heads):
    d = x.shape[-1] // num_heads
    return np.array(
        [
            [[token[h * d : (h + 1) * d] for token in sequence] for h in range(num_heads)]
            for sequence in x.tolist()
        ]
    )


def by_einsum(x, num_heads):
    B, T, width = x.shape
    return np.einsum("bthd->bhtd", x.reshape(B, T, num_heads, width // num_heads))


def by_strides(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    of_b, of_t, of_i = x.strides
    return as_strided(x, (B, num_heads, T, d), (of_b, d * of_i, of_t, of_i))


def by_windows(x, num_heads):
    d = x.shape[-1] // num_heads
    windows = sliding_window_view(x, d, axis=2)[:, :, ::d]
    return windows.transpose(0, 2, 1, 3)


def by_indices(x, num_heads):
    B, T, width = x.shape
    columns = np.arange(width).reshape(1, num_heads, 1, -1)
    batch = np.arange(B)[:, None, None, None]
    tokens = np.arange(T)[:, None]
    return x[batch, tokens, columns]


def by_take(x, num_heads):
    columns = np.arange(x.shape[-1]).reshape(num_heads, -1)
    return np.take(x, columns, axis=2).transpose(0, 2, 1, 3)


def by_one_hot_product(x, num_heads):
    width = x.shape[-1]
    selector = np.eye(width).reshape(width, num_heads, width // num_heads)
    return np.tensordot(x, selector, axes=1).transpose((0, 2, 1, 3))


def by_broadcast_selection(x, num_heads):
    width = x.shape[-1]
    is_of_head = np.repeat(np.eye(num_heads, dtype=bool), width // num_heads, axis=1)
    return np.stack([x[:, :, columns] for columns in is_of_head], axis=1)


def by_fromfunction(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    shape = (B, num_heads, T, d)
    return np.fromfunction(lambda b, h, t, i: x[b, t, h * d + i], shape, dtype=int)


def by_recursion(x, num_heads):
    if num_heads == 1:
        return x[:, None]
    d = x.shape[-1] // num_heads
    return np.append(x[:, None, :, :d], by_recursion(x[:, :, d:], num_heads - 1), axis=1)


def by_out_argument(x, num_heads):
    B, T, width = x.shape
    heads = np.empty((num_heads, B, T, width // num_heads))
    np.stack(np.split(x, num_heads, axis=2), out=heads)
    return heads.transpose(1, 0, 2, 3)


def in_fortran_order(x, num_heads):
    B, T, _ = x.shape
    return np.asfortranarray(x.reshape(B, T, num_heads, -1).transpose(0, 2, 1, 3))


def by_transposing_before_reshaping(x, num_heads):
    B, T, _ = x.shape
    return x.transpose(0, 2, 1).reshape(B, num_heads, -1, T).swapaxes(-1, -2)


class Splitter:
    def __init__(self, axis):
        self.axis = axis

    def __call__(self, x, num_heads):
        heads = np.split(x, num_heads, axis=-1)
        return np.stack(heads, axis=self.axis)


def _split(num_sequence_axes, x, num_heads):
    shape = x.shape[:num_sequence_axes] + (num_heads, x.shape[-1] // num_heads)  # noqa: RUF005
    return x.reshape(shape).swapaxes(-2, -3)


by_class = Splitter(axis=1)
by_partial = partial(_split, 2)

RIGHT = [
    by_transpose, by_swapaxes, by_moveaxis, by_rollaxis, by_split_and_stack,
    by_array_split_and_concatenate, by_dsplit, by_hsplit_of_each_sequence, by_loop_over_heads,
    by_loop_over_tokens, by_scalar_loops, by_nested_lists, by_einsum, by_strides, by_windows,
    by_indices, by_take, by_one_hot_product, by_broadcast_selection, by_fromfunction, by_recursion,
    by_out_argument, in_fortran_order, by_transposing_before_reshaping, by_class, by_partial,
]  # fmt: skip
