"""Layer norm over a chosen axis."""

import numpy as np


def layer_norm_over(x, gain, bias, axis, eps):
    """Give the numbers along one axis mean 0 and variance 1, then scale and shift them.

    ``out = (x - mean) / sqrt(variance + eps) * gain + bias``. Mean and variance are those of the
    numbers along `axis`; the variance is the mean of the squared distances from the mean.

    Parameters
    ----------
    x : (A, B, C)
    gain, bias : (A, 1, 1), (1, B, 1) or (1, 1, C)
        A number for each place along the axis.
    axis : int
        From -3 to 2.
    eps : float
        Above 0; not always small compared with the variance.

    Returns
    -------
    out : (A, B, C)
    """
    mean = np.mean(x, axis, keepdims=True)
    variance = np.var(x, axis, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * gain + bias
