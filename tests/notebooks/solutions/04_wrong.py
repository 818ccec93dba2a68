# input-gradient: branch of v forgotten


def my_input_gradient(d_q, d_k, d_v, params):
    return merge_heads(d_q) @ params.w_q.T + merge_heads(d_k) @ params.w_k.T  # and the third?
