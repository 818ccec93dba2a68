def my_make_mask(lengths, T_q, T_k, q_offset, left):
    query, key = np.arange(T_q)[:, None] + q_offset, np.arange(T_k)
    near = (key <= query) & (key >= query - left)
    return near & (key < lengths[:, None, None, None])
