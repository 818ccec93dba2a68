"""Right ways to count what multi-head attention costs."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np


def by_formulas(B, T, D, H, H_kv, d, itemsize):
    params = 2 * D * H * d + 2 * D * H_kv * d
    return {
        "attention_params": params,
        "projection_flops": 2 * B * T * params,
        "score_flops": 4 * B * H * T**2 * d,
        "weights_bytes": B * H * T * T * itemsize,
        "kv_cache_bytes": 2 * B * H_kv * T * d * itemsize,
    }


def by_shapes(B, T, D, H, H_kv, d, itemsize):
    maps = [(D, H * d), (D, H_kv * d), (D, H_kv * d), (H * d, D)]
    size = math.prod
    return dict(  # noqa: C408
        attention_params=sum(map(size, maps)),
        projection_flops=sum(2 * B * T * n_in * n_out for n_in, n_out in maps),
        score_flops=2 * size((B, H, T, T, d)) + 2 * size((B, H, T, d, T)),
        weights_bytes=size((B, H, T, T)) * itemsize,
        kv_cache_bytes=2 * size((B, H_kv, T, d)) * itemsize,
    )  # fmt: skip


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


def by_nbytes_of_views(B, T, D, H, H_kv, d, itemsize):
    number = np.zeros(1, dtype=f"V{itemsize}")

    def nbytes(*shape):
        return np.broadcast_to(number, shape).nbytes

    params = sum(
        np.broadcast_to(number, shape).size
        for shape in ((D, H * d), (D, H_kv * d), (D, H_kv * d), (H * d, D))
    )
    return {
        "attention_params": params,
        "projection_flops": params * B * T * 2,
        "score_flops": nbytes(B, H, T, T) // itemsize * d * 2 * 2,
        "weights_bytes": nbytes(B, H, T, T),
        "kv_cache_bytes": nbytes(2, B, H_kv, T, d),
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


class Costs(NamedTuple):
    attention_params: int
    projection_flops: int
    score_flops: int
    weights_bytes: int
    kv_cache_bytes: int


def by_named_tuple_as_dict(B, T, D, H, H_kv, d, itemsize):
    tokens, group = B * T, H // H_kv
    kv_params = D * H_kv * d
    params = 2 * (1 + group) * kv_params
    cells = tokens * H * T
    return Costs(
        params,
        2 * tokens * params,
        4 * cells * d,
        cells * itemsize,
        2 * tokens * H_kv * d * itemsize,
    )._asdict()


def by_zip(*sizes):
    B, T, D, H, H_kv, d, itemsize = (int(size) for size in sizes)
    names = "attention_params projection_flops score_flops weights_bytes kv_cache_bytes".split()  # noqa: SIM905
    params = D * (H * d) + D * (H_kv * d) * 2 + (H * d) * D
    flops = params * B * T << 1, B * H * d * T * T << 2
    memory = B * H * T * T * itemsize, B * H_kv * T * d * itemsize << 1
    return dict(zip(names, (params, *flops, *memory), strict=True))


RIGHT = [
    by_formulas, by_shapes, by_matmul_counter, by_numpy_integers, by_nbytes_of_views, by_loops,
    by_named_tuple_as_dict, by_zip,
]  # fmt: skip
