"""Normalisation as layers."""

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag, check_number
from mha_numpy.dtypes import Array
from mha_numpy.layers.layer import Layer
from mha_numpy.layers.layer_norm import layer_norm_backward, layer_norm_forward
from mha_numpy.layers.rms_norm import rms_norm_backward, rms_norm_forward


class LayerNorm(Layer):
    """`layer_norm_forward` with a gain, first 1, and a bias, first 0.

    Parameters
    ----------
    embed_dim : int
        D.
    eps : float
    bias : bool
        Whether there is a bias.
    backend : {"numpy", "loops", "numba"}, optional

    Examples
    --------
    >>> LayerNorm(2)(np.array([[1.0, 3.0]])).round(3)
    array([[-1.,  1.]])
    """

    def __init__(
        self, embed_dim: int, *, eps: float = 1e-5, bias: bool = True, backend: str | None = None
    ) -> None:
        super().__init__()
        self.params["gain"] = np.ones(check_count("embed_dim", embed_dim))
        if check_flag("bias", bias):
            self.params["bias"] = np.zeros(embed_dim)
        self.eps = check_number("eps", eps, positive=True)
        self.backend = check_backend(backend)

    def forward(self, x: Array) -> Array:
        """Normalise each token: (..., D) -> (..., D)."""
        gain, bias = self.params["gain"], self.params.get("bias")
        out, self._cache = layer_norm_forward(x, gain, bias, eps=self.eps)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        d_x, d_gain, d_bias = layer_norm_backward(d_out, self.forward_cache)
        self.accumulate("gain", d_gain)
        self.accumulate("bias", d_bias)
        return d_x


class RMSNorm(Layer):
    """`rms_norm_forward` with a gain, first 1.

    Parameters
    ----------
    embed_dim : int
        D.
    eps : float
    backend : {"numpy", "loops", "numba"}, optional

    Examples
    --------
    >>> RMSNorm(2)(np.array([[3.0, -4.0]])).round(3)
    array([[ 0.849, -1.131]])
    """

    def __init__(self, embed_dim: int, *, eps: float = 1e-6, backend: str | None = None) -> None:
        super().__init__()
        self.params["gain"] = np.ones(check_count("embed_dim", embed_dim))
        self.eps = check_number("eps", eps, positive=True)
        self.backend = check_backend(backend)

    def forward(self, x: Array) -> Array:
        """Normalise each token: (..., D) -> (..., D)."""
        out, self._cache = rms_norm_forward(x, self.params["gain"], eps=self.eps)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the gain's gradient and return that of `x`."""
        d_x, d_gain = rms_norm_backward(d_out, self.forward_cache)
        self.accumulate("gain", d_gain)
        return d_x
