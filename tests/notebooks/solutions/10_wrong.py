# head-importance: absolute value after the mean


def my_head_importance(d_gated, heads):
    of_each = (d_gated * heads).sum(axis=(2, 3))
    return np.abs(of_each.mean(axis=0))  # a head that helps and hurts vanishes
