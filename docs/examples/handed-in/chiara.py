import numpy as np


def layer_norm_over(x, gain, bias, axis, eps):
    n = x.shape[axis]
    centred = x - x.sum(axis, keepdims=True) / n
    variance = (centred * centred).sum(axis, keepdims=True) / (n - 1)
    return centred / np.sqrt(variance + eps) * gain + bias
