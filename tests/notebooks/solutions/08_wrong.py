# masks: q_offset ignored


def my_make_mask(lengths, T_q, T_k, q_offset, left):
    query, key = np.arange(T_q)[:, None], np.arange(T_k)  # top left
    near = (key <= query) & (key >= query - left)
    return near & (key < lengths[:, None, None, None])
