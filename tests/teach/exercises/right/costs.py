"""Right solutions in unusual styles: costs."""

from collections import Counter

import numpy as np


def cost_table_by_numpy_integers(B, T, D, H, H_kv, d, itemsize):
    params = D * d * np.array([H, H_kv, H_kv, H], dtype=np.int64)
    keys_and_values = np.array([[B, H_kv, T, d]] * 2, dtype=np.int64)
    return {
        "attention_params": params.sum(),
        "projection_flops": (params * 2 * B * T).sum(),
        "score_flops": np.prod([2, 2, B, H, T, T, d], dtype=np.int64),
        "weights_bytes": np.prod([B, H, T, T, itemsize], dtype=np.int64),
        "kv_cache_bytes": keys_and_values.prod(axis=1).sum() * itemsize,
    }


def cost_table_by_loops(B, T, D, H, H_kv, d, itemsize):
    counted = Counter()
    for heads in (H, H_kv, H_kv, H):
        for _ in range(heads):
            counted["attention_params"] += D * d
            counted["projection_flops"] += 2 * B * T * D * d
    for _ in range(B):
        for _ in range(H):
            counted["score_flops"] += 2 * T * T * d  # q k^T
            counted["score_flops"] += 2 * T * T * d  # weights v
            counted["weights_bytes"] += T * T * itemsize
        for _ in range(H_kv):
            counted["kv_cache_bytes"] += T * d * itemsize + T * d * itemsize
    return counted
