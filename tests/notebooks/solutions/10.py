def my_head_importance(d_gated, heads):
    of_each = (d_gated * heads).sum(axis=(2, 3))  # (B, H)
    return np.abs(of_each).mean(axis=0)
