import numpy as np


def layer_norm_over(x, gain, bias, axis, eps):
    centred = x - np.mean(x, axis, keepdims=True)
    variance = np.sum(centred**2, axis, keepdims=True)
    return centred / np.sqrt(variance + eps) * gain + bias
