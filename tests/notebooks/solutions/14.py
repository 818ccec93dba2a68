def my_linear_backward(d_out, x, w):
    d_x = d_out @ w.T
    d_w = np.einsum("bti,bto->io", x, d_out)
    d_b = d_out.sum(axis=(0, 1))
    return d_x, d_w, d_b
