# decode-step: decoded as position 0


def my_decode_step(x, k_past, v_past, params, num_heads):
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    H_kv = k_past.shape[1]
    k_new = split_heads(x @ params.w_k + params.b_k, H_kv)
    v_new = split_heads(x @ params.w_v + params.b_v, H_kv)
    k = np.concatenate([k_past, k_new], axis=2)
    v = np.concatenate([v_past, v_new], axis=2)
    heads, _ = attention_forward(q, k, v, is_causal=True)  # q_offset is missing
    merged = heads.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return merged @ params.w_o + params.b_o, k, v
