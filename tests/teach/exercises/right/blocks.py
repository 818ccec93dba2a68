"""Right solutions in unusual styles: blocks."""

import numpy as np


def embedding_backward_by_bincount(d_out, ids, V):
    columns = np.moveaxis(d_out, -1, 0).reshape(d_out.shape[-1], -1)
    return np.array([np.bincount(ids.ravel(), column, minlength=V) for column in columns]).T


def gelu_backward_complex_step(d_out, x):
    z = x + 1e-30j
    out = z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2
    return d_out * out.imag / 1e-30
