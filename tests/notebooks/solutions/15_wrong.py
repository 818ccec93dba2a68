# cross-attention: split without transpose


def my_cross_attention(y, x, params, num_heads):
    def split(projected):
        B, T, width = projected.shape
        return projected.reshape(B, num_heads, T, width // num_heads)  # no transpose

    q = split(y @ params.w_q + params.b_q)
    k = split(x @ params.w_k + params.b_k)
    v = split(x @ params.w_v + params.b_v)
    heads, _ = attention_forward(q, k, v)
    B, H, T_y, d_v = heads.shape
    merged = heads.transpose(0, 2, 1, 3).reshape(B, T_y, H * d_v)
    return merged @ params.w_o + params.b_o
