def my_prune_heads(params, num_heads, heads):
    stays = ~np.isin(np.arange(num_heads), heads)
    of_qk = np.repeat(stays, params.w_q.shape[1] // num_heads)
    of_v = np.repeat(stays, params.w_v.shape[1] // num_heads)
    return params._replace(
        w_q=params.w_q[:, of_qk], b_q=params.b_q[of_qk],
        w_k=params.w_k[:, of_qk], b_k=params.b_k[of_qk],
        w_v=params.w_v[:, of_v], b_v=params.b_v[of_v], w_o=params.w_o[of_v],
    )  # fmt: skip
