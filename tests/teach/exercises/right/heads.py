"""Right solutions in unusual styles: heads."""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def merge_heads_by_block(heads):
    return np.array([np.block([list(sequence)]) for sequence in heads])


def merge_heads_by_recursion(heads):
    if heads.shape[1] == 1:
        return heads[:, 0]
    return np.concatenate([heads[:, 0], merge_heads_by_recursion(heads[:, 1:])], axis=-1)


def split_heads_by_strides(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    of_b, of_t, of_i = x.strides
    return as_strided(x, (B, num_heads, T, d), (of_b, d * of_i, of_t, of_i))


def split_heads_by_one_hot_product(x, num_heads):
    width = x.shape[-1]
    selector = np.eye(width).reshape(width, num_heads, width // num_heads)
    return np.tensordot(x, selector, axes=1).transpose((0, 2, 1, 3))
