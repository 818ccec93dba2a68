def my_attention_backward(d_heads, q, k, v, weights):
    scale = 1 / np.sqrt(q.shape[-1])
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - row_mean)
    return scale * d_scores @ k, scale * d_scores.swapaxes(-1, -2) @ q, d_v
