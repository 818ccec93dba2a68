"""Right solutions in unusual styles: masks."""

import numpy as np


def make_mask_by_cumsum_of_ends(lengths, T_q, T_k, q_offset, left):
    last = np.minimum(np.arange(T_q) + q_offset + 1, lengths[:, None]).clip(0, T_k)
    first = (np.arange(T_q) + q_offset - left).clip(0, T_k)
    ends = np.zeros((len(lengths), T_q, T_k + 1), dtype=int)
    for b, i in np.ndindex(last.shape):
        if first[i] < last[b, i]:
            ends[b, i, first[i]] += 1
            ends[b, i, last[b, i]] -= 1
    return ends.cumsum(axis=-1)[:, None, :, :T_k] == 1


def make_mask_by_sets(lengths, T_q, T_k, q_offset, left):
    rows = [set(range(i + q_offset - left, i + q_offset + 1)) for i in range(T_q)]
    mask = np.zeros((len(lengths), 1, T_q, T_k), dtype=bool)
    for b, n in enumerate(lengths):
        for i, row in enumerate(rows):
            mask[b, 0, i, sorted(row & set(range(n)))] = True
    return mask
