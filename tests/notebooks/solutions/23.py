def my_weights_times_norm(weights, v, w_o):
    rows_of_head = w_o.reshape(v.shape[1], v.shape[3], -1)  # (H, d_v, D)
    norms = np.linalg.norm(v @ rows_of_head, axis=-1)  # (B, H, T_k)
    return weights * norms[:, :, None]
