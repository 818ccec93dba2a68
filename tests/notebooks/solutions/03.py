def my_multi_head(x, params, num_heads, mask):
    q = split_heads(x @ params.w_q + params.b_q, num_heads)
    k = split_heads(x @ params.w_k + params.b_k, num_heads)
    v = split_heads(x @ params.w_v + params.b_v, num_heads)
    heads, _ = attention_forward(q, k, v, mask=mask)
    return merge_heads(heads) @ params.w_o + params.b_o
