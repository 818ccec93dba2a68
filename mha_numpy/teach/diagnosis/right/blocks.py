"""What stands beside attention in a transformer: GELU, and the way back into an embedding."""

import math

import numpy as np

from mha_numpy.dtypes import Array


def gelu(x: Array) -> Array:
    """Let of each number pass about the share of normally distributed numbers below it."""
    return x * (1 + np.tanh(gelu_argument(x))) / 2


def gelu_backward(d_out: Array, x: Array) -> Array:
    """Pull back through GELU: x counts as itself, and in the share of it that passes."""
    tanh = np.tanh(gelu_argument(x))
    share = (1 + tanh) / 2
    share_slope = (1 - tanh**2) / 2 * gelu_argument_slope(x)
    return d_out * (share + x * share_slope)


def gelu_argument(x: Array) -> Array:
    """Return what tanh is taken of."""
    root = math.sqrt(2 / math.pi)
    return root * (x + 0.044715 * x**3)


def gelu_argument_slope(x: Array) -> Array:
    """Return the derivative of what tanh is taken of."""
    slope = math.sqrt(2 / math.pi)
    return slope * (1 + 3 * 0.044715 * x**2)


def embedding_backward(d_out: Array, ids: Array, V: int) -> Array:
    """Add the gradient of each token (B, T, D) to the row of the table (V, D) that it took."""
    d_table = np.zeros((V, d_out.shape[-1]))
    np.add.at(d_table, ids, d_out)
    return d_table
