from mha_numpy import MultiHeadParams


def my_from_gpt2(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1)
    b_q, b_k, b_v = np.split(c_attn_b, 3)
    return MultiHeadParams(w_q, b_q, w_k, b_k, w_v, b_v, c_proj_w, c_proj_b)


def my_to_gpt2(params):
    c_attn_w = np.concatenate([params.w_q, params.w_k, params.w_v], axis=1)
    c_attn_b = np.concatenate([params.b_q, params.b_k, params.b_v])
    return c_attn_w, c_attn_b, params.w_o, params.b_o
