"""Right solutions in unusual styles: heads."""

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view


def merge_heads_by_block(heads):
    return np.array([np.block([list(sequence)]) for sequence in heads])


def merge_heads_by_filling_a_view(heads):
    B, H, T, d = heads.shape
    merged = np.empty((B, T, H * d))
    merged.reshape(B, T, H, d)[...] = heads.transpose(0, 2, 1, 3)
    return merged


def merge_heads_by_recursion(heads):
    if heads.shape[1] == 1:
        return heads[:, 0]
    return np.concatenate([heads[:, 0], merge_heads_by_recursion(heads[:, 1:])], axis=-1)


def split_heads_by_strides(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    of_b, of_t, of_i = x.strides
    return as_strided(x, (B, num_heads, T, d), (of_b, d * of_i, of_t, of_i))


def split_heads_by_windows(x, num_heads):
    d = x.shape[-1] // num_heads
    windows = sliding_window_view(x, d, axis=2)[:, :, ::d]
    return windows.transpose(0, 2, 1, 3)


def split_heads_by_one_hot_product(x, num_heads):
    width = x.shape[-1]
    selector = np.eye(width).reshape(width, num_heads, width // num_heads)
    return np.tensordot(x, selector, axes=1).transpose((0, 2, 1, 3))
