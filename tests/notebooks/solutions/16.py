def my_grouped_attention(q, k, v):
    B, H, T_q, d = q.shape
    H_kv = k.shape[1]
    in_groups = q.reshape(B, H_kv, H // H_kv, T_q, d)
    scores = in_groups @ k[:, :, None].swapaxes(-1, -2) / np.sqrt(d)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers / powers.sum(axis=-1, keepdims=True) @ v[:, :, None]
    return heads.reshape(B, H, T_q, v.shape[-1])


def my_sum_over_group(d_per_query_head, num_kv_heads):
    B, H, T_k, d = d_per_query_head.shape
    return d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T_k, d).sum(axis=2)
