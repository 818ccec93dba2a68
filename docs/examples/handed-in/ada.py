import numpy as np


def layer_norm_over(x, gain, bias, axis, eps):
    centred = x - x.mean(axis=axis, keepdims=True)
    variance = (centred**2).mean(axis=axis, keepdims=True)
    return gain * centred / np.sqrt(variance + eps) + bias
