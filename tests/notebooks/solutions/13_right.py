def my_linear_backward(d_out, x, w):
    d_x = d_out @ w.T
    d_w = np.einsum("bti,bto->io", x, d_out)
    d_b = d_out.sum(axis=(0, 1))
    return d_x, d_w, d_b


def my_input_gradient(d_q, d_k, d_v, params):
    branches = ((d_q, params.w_q), (d_k, params.w_k), (d_v, params.w_v))
    return sum(merge_heads(d_heads) @ w.T for d_heads, w in branches)
