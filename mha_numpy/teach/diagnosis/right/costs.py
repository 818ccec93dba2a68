"""What a layer of attention costs: params, floating-point operations, bytes."""

import numpy as np


def cost_table(
    B: int, T: int, D: int, H: int, H_kv: int, d: int, itemsize: int
) -> dict[str, np.int64]:
    """Count the params of w_q, w_k, w_v, w_o, the operations of a forward, and bytes."""
    params = count_params(D, H, H_kv, d)
    counts = {
        "attention_params": params,
        "projection_flops": projection_flops(B, T, params),
        "score_flops": score_flops(B, T, H, d),
        "weights_bytes": weights_bytes(B, T, H, itemsize),
        "kv_cache_bytes": kv_cache_bytes(B, T, H_kv, d, itemsize),
    }
    return {name: np.int64(count) for name, count in counts.items()}


def count_params(D: int, H: int, H_kv: int, d: int) -> int:
    """Count the numbers in w_q, w_k and w_v, and w_o."""
    return D * H * d + 2 * D * H_kv * d + H * d * D


def projection_flops(B: int, T: int, params: int) -> int:
    """Count a multiplication and an addition for each param and token."""
    tokens = B * T
    return 2 * tokens * params


def score_flops(B: int, T: int, H: int, d: int) -> int:
    """Count the operations of q k^T and of weights v."""
    cells = H * T * T
    products = 2
    return 2 * products * B * cells * d


def weights_bytes(B: int, T: int, H: int, itemsize: int) -> int:
    """Count the bytes of all weights."""
    numbers = B * H * (T * T)
    return numbers * itemsize


def kv_cache_bytes(B: int, T: int, H_kv: int, d: int, itemsize: int) -> int:
    """Count the bytes of the keys and values of all tokens."""
    numbers = 2 * B * H_kv * T * d
    return itemsize * numbers
