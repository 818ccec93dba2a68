# multi-head: merge without transpose


def my_multi_head(x, params, num_heads, mask):
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    k = split_heads(x @ params.w_k + params.b_k, num_heads)
    v = split_heads(x @ params.w_v + params.b_v, num_heads)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights, _ = softmax_forward(scores, mask=mask)
    heads = weights @ v
    merged = heads.reshape(len(x), x.shape[1], -1)  # no transpose
    return merged @ params.w_o + params.b_o
