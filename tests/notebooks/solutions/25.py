def my_cost_table(B, T, D, H, H_kv, d, itemsize):
    params = 2 * D * H * d + 2 * D * H_kv * d
    return {
        "attention_params": params,
        "projection_flops": 2 * B * T * params,
        "score_flops": 2 * (2 * B * H * T * T * d),
        "weights_bytes": B * H * T * T * itemsize,
        "kv_cache_bytes": 2 * B * H_kv * T * d * itemsize,
    }
