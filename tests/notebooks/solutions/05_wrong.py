# museum-softmax-axis: scale missing


def my_attention(q, k, v):
    def softmax(scores, axis):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    weights = softmax(q @ k.T, axis=-1)  # one bug mended, another made
    return weights @ v
