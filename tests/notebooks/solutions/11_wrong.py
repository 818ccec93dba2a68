# softmax-backward: row sum over queries


def my_softmax_backward(d_weights, weights):
    mean = (d_weights * weights).sum(axis=-2, keepdims=True)  # over the queries
    return weights * (d_weights - mean)
