"""Root-mean-square normalisation, forward and backward."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_number
from mha_numpy.core.pair import Pair, Records, Values, sum_equation
from mha_numpy.dtypes import Array
from mha_numpy.layers.layer import Layer
from mha_numpy.layers.layer_norm import check_gain, sum_over_tokens


def rms_norm_steps(x: Array, gain: Array, eps: float) -> tuple[Array, Array, Array]:
    """Normalise each token (..., D) by its own root mean square."""
    # 1. divide by the root of the mean square
    inverse_rms = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = x * inverse_rms

    # 2. scale
    out = x_hat * gain
    return inverse_rms, x_hat, out


def rms_norm_steps_backward(
    d_out: Array, x_hat: Array, inverse_rms: Array, gain: Array
) -> tuple[Array, Array]:
    """Pull the gradient (..., D) back to x and gain."""
    # 2. out = x_hat * gain
    d_gain = sum_over_tokens(d_out * x_hat)
    d_x_hat = d_out * gain

    # 1. x_hat = x * inverse_rms: each feature also moves the root mean square of its token
    by_rms = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    d_x = inverse_rms * (d_x_hat - by_rms)
    return d_x, d_gain


class RMSNormCache(NamedTuple):
    """What `rms_norm_backward` needs."""

    x_hat: Array  # (..., D), in the dtype of the computation
    inverse_rms: Array  # (..., 1)
    gain: Array  # (D,)
    dtype: np.dtype[Any]
    backend: str


class RMSNormGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_gain: Array  # (D,)


def rms_norm_forward(x: Array, gain: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormCache]:
    """Give each token mean square 1, then scale each feature.

    ``out = x / sqrt(mean(x^2) + eps) * gain``, the mean over the D features of each token alone.

    Parameters
    ----------
    x : (..., D) float array
        Any number of leading axes; (B, T, D) for tokens.
    gain : (D,) float array
    eps : float
        > 0; keeps a token of zeros from being divided by 0.

    Returns
    -------
    out : (..., D) array
    cache : RMSNormCache

    Notes
    -----
    It is layer normalisation without centring and without a bias. Source: Zhang and Sennrich 2019,
    *Root mean square layer normalization*, eq. 4. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = rms_norm_forward(np.array([[3.0, -4.0]]), np.ones(2))
    >>> out.round(3)  # divided by the root of 12.5
    array([[ 0.849, -1.131]])
    """
    return RMS_NORM.forward(x=x, gain=gain, eps=eps)


def rms_norm_backward(d_out: Array, cache: RMSNormCache) -> RMSNormGrads:
    """Pull a gradient back through the normalisation.

    ``d_x = (d_x_hat - x_hat * mean(d_x_hat * x_hat)) / rms`` with ``d_x_hat = d_out * gain``.

    Examples
    --------
    >>> out, cache = rms_norm_forward(np.array([[3.0, -4.0]]), np.ones(2))
    >>> d_x, d_gain = rms_norm_backward(out, cache)  # along the token: its length is normalised
    >>> bool(np.allclose(d_x, 0, atol=1e-6))
    True
    """
    return RMS_NORM.backward(d_out, cache)


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


def _records(values: Values) -> Records:
    yield "x", "... D", ""
    yield "gain", "D"
    yield "eps", ""
    root = "np.sqrt((x ** 2).mean(axis=-1, keepdims=True) + eps)"
    yield "inverse_rms", "... 1", f"1 / {root}"
    yield "x_hat", "... D", "x * inverse_rms"
    yield "out", "... D", "x_hat * gain"


def _records_backward(values: Values) -> Records:
    yield "d_out", "... D", ""
    yield "d_gain", "D", sum_equation("d_out * x_hat", values["d_out"])
    by_rms = "x_hat * (d_out * gain * x_hat).mean(axis=-1, keepdims=True)"
    yield "d_x", "... D", f"inverse_rms * (d_out * gain - {by_rms})"


RMS_NORM = Pair(
    rms_norm_steps,
    rms_norm_steps_backward,
    RMSNormCache,
    RMSNormGrads,
    inputs={"gain": "D", "x": "... D"},
    options={"eps": partial(check_number, positive=True)},
    check=lambda values: check_gain(values["gain"]),
    computes="inverse_rms x_hat out",
    like="x_hat",
    records=_records,
    records_backward=_records_backward,
    kernel=lambda kernels, x, gain, eps: kernels.norm(x, gain, None, eps, centres=False),
    kernel_backward=lambda kernels, *given: kernels.norm_backward(*given, centres=False)[:2],
)
