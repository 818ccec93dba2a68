# from-gpt2: every w transposed
# to-gpt2: every w transposed

from mha_numpy import MultiHeadParams


def my_from_gpt2(c_attn_w, c_attn_b, c_proj_w, c_proj_b):
    w_q, w_k, w_v = np.split(c_attn_w, 3, axis=1)
    b_q, b_k, b_v = np.split(c_attn_b, 3)
    return MultiHeadParams(w_q.T, b_q, w_k.T, b_k, w_v.T, b_v, c_proj_w.T, c_proj_b)  # as PyTorch


def my_to_gpt2(params):
    c_attn_w = np.concatenate([params.w_q.T, params.w_k.T, params.w_v.T], axis=1)
    c_attn_b = np.concatenate([params.b_q, params.b_k, params.b_v])
    return c_attn_w, c_attn_b, params.w_o.T, params.b_o
