"""What a layer of attention costs: params, floating-point operations, bytes."""

import numpy as np

from mha_numpy.mistakes.flawed.made import RIGHT, Made


def cost_table(
    B: int, T: int, D: int, H: int, H_kv: int, d: int, itemsize: int, made: Made = RIGHT
) -> dict[str, np.int64]:
    """Count the params of w_q, w_k, w_v, w_o, the operations of a forward, and bytes."""
    params = _params(D, H, H_kv, d, made)
    of_batch = {
        name: 1 if f"B left out of {name}" in made or "B left out" in made else B
        for name in ("projection_flops", "score_flops", "weights_bytes", "kv_cache_bytes")
    }
    per_step = 1 if "a multiply-add counted once" in made else 2
    itemsize = 1 if "numbers for bytes" in made else itemsize

    products = 1 if "only q k^T counted" in made else 2
    score_heads = 1 if "H left out of score_flops" in made else H
    if "H_kv for H in score_flops" in made:
        score_heads = H_kv
    score_cells = T if "T for T^2 in score_flops" in made else T * T

    weights_heads = 1 if "H left out of weights_bytes" in made else H
    if "H_kv for H in weights_bytes" in made:
        weights_heads = H_kv
    weights_cells = T if "T for T^2 in weights_bytes" in made else T * T

    kept = 1 if "keys alone in the KV cache" in made else 2
    kept_heads = H if "H for H_kv in the KV cache" in made else H_kv
    tokens = 1 if "T left out of projection_flops" in made else T
    counts = {
        "attention_params": params,
        "projection_flops": per_step * of_batch["projection_flops"] * tokens * params,
        "score_flops": (
            per_step * products * of_batch["score_flops"] * score_heads * score_cells * d
        ),
        "weights_bytes": of_batch["weights_bytes"] * weights_heads * weights_cells * itemsize,
        "kv_cache_bytes": kept * of_batch["kv_cache_bytes"] * kept_heads * T * d * itemsize,
    }
    return {name: np.int64(count) for name, count in counts.items()}


def _params(D: int, H: int, H_kv: int, d: int, made: Made) -> int:
    """Count the numbers in w_q, w_k, w_v, w_o."""
    if "4 D^2 whatever the heads" in made:
        return 4 * D * D
    if "H for H_kv in the params" in made:
        H_kv = H
    params = D * H * d + 2 * D * H_kv * d
    if "w_o not counted" not in made:
        params += H * d * D
    if "biases counted" in made:
        params += H * d + 2 * H_kv * d + D
    return params
