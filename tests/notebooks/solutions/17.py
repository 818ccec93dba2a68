def my_decode_step(x, k_past, v_past, params, num_heads):
    B, _, D = x.shape
    H_kv, d = k_past.shape[1], k_past.shape[3]
    q = (x @ params.w_q + params.b_q).reshape(B, H_kv, num_heads // H_kv, d)
    k_new = (x @ params.w_k + params.b_k).reshape(B, H_kv, 1, d)
    v_new = (x @ params.w_v + params.b_v).reshape(B, H_kv, 1, d)
    k = np.concatenate([k_past, k_new], axis=2)
    v = np.concatenate([v_past, v_new], axis=2)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers / powers.sum(axis=-1, keepdims=True) @ v
    return heads.reshape(B, 1, num_heads * d) @ params.w_o + params.b_o, k, v
