def my_input_gradient(d_q, d_k, d_v, params):
    branches = ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v))
    return sum(merge_heads(d_heads) @ w.T for d_heads, w in branches)
