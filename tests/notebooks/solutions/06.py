def my_scores(q, k):
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


def my_scores_backward(d_scores, q, k):
    scaled = d_scores / np.sqrt(q.shape[-1])
    return scaled @ k, scaled.swapaxes(-1, -2) @ q
