"""Right ways to count what multi-head attention costs."""

from collections import Counter

import numpy as np


def by_matmul_counter(B, T, D, H, H_kv, d, itemsize):
    def matmul(m, n, p):
        return m * p * (n + n)  # n products and n sums for each number

    q, kv = matmul(T, D, H * d), matmul(T, D, H_kv * d)
    o = matmul(T, H * d, D)
    return {
        "projection_flops": B * (q + kv + kv + o),
        "score_flops": B * H * (matmul(T, d, T) + matmul(T, T, d)),
        "attention_params": D * d * (H + H_kv + H_kv + H),
        "kv_cache_bytes": sum([B * H_kv * T * d * itemsize] * 2),
        "weights_bytes": itemsize * B * H * T * T,
    }


def by_numpy_integers(B, T, D, H, H_kv, d, itemsize):
    params = D * d * np.array([H, H_kv, H_kv, H], dtype=np.int64)
    keys_and_values = np.array([[B, H_kv, T, d]] * 2, dtype=np.int64)
    return {
        "attention_params": params.sum(),
        "projection_flops": (params * 2 * B * T).sum(),
        "score_flops": np.prod([2, 2, B, H, T, T, d], dtype=np.int64),
        "weights_bytes": np.prod([B, H, T, T, itemsize], dtype=np.int64),
        "kv_cache_bytes": keys_and_values.prod(axis=1).sum() * itemsize,
    }


def by_loops(B, T, D, H, H_kv, d, itemsize):
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


def by_zip(*sizes):
    B, T, D, H, H_kv, d, itemsize = (int(size) for size in sizes)
    names = (
        "attention_params",
        "projection_flops",
        "score_flops",
        "weights_bytes",
        "kv_cache_bytes",
    )
    params = D * (H * d) + D * (H_kv * d) * 2 + (H * d) * D
    flops = params * B * T << 1, B * H * d * T * T << 2
    memory = B * H * T * T * itemsize, B * H_kv * T * d * itemsize << 1
    return dict(zip(names, (params, *flops, *memory), strict=True))


RIGHT = [
    by_matmul_counter,
    by_numpy_integers,
    by_loops,
    by_zip,
]
