def my_cross_attention(y, x, params, num_heads):
    q = split_heads(y @ params.w_q + params.b_q, num_heads)
    k = split_heads(x @ params.w_k + params.b_k, num_heads)
    v = split_heads(x @ params.w_v + params.b_v, num_heads)
    heads, _ = attention_forward(q, k, v)
    B, H, T_y, d_v = heads.shape
    merged = heads.transpose(0, 2, 1, 3).reshape(B, T_y, H * d_v)
    return merged @ params.w_o + params.b_o
