import numpy as np


def layer_norm_over(x, gain, bias, axis, eps):
    mean, std = x.mean(-1, keepdims=True), np.std(x, -1, keepdims=True)
    return (x - mean) / np.sqrt(std**2 + eps) * gain + bias
