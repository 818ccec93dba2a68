# attention-backward: diagonal of the Jacobian alone


def my_attention_backward(d_heads, q, k, v, weights):
    scale = 1 / np.sqrt(q.shape[-1])
    d_weights = d_heads @ v.swapaxes(-1, -2)
    d_v = weights.swapaxes(-1, -2) @ d_heads
    d_scores = weights * (1 - weights) * d_weights  # the diagonal of softmax's Jacobian only
    return scale * d_scores @ k, scale * d_scores.swapaxes(-1, -2) @ q, d_v
