"""Layer normalisation, forward, forward mode and backward, and both norms as layers."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag, check_number
from mha_numpy.core.pair import Pair, Records, Values, plus, sum_equation
from mha_numpy.core.rms_norm import (
    check_features,
    rms_norm_backward,
    rms_norm_forward,
    sum_over_tokens,
)
from mha_numpy.core.tangents import Shapes
from mha_numpy.dtypes import Array
from mha_numpy.layers.layer import Layer


def layer_norm_steps(
    x: Array, gain: Array, bias: Array | None, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Normalise each token (..., D) by its own mean and variance."""
    # 1. centre
    centred = x - x.mean(axis=-1, keepdims=True)

    # 2. divide by the standard deviation
    inverse_std = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = centred * inverse_std

    # 3. scale and shift
    out = x_hat * gain if bias is None else x_hat * gain + bias
    return centred, inverse_std, x_hat, out


def layer_norm_steps_backward(
    d_out: Array, x_hat: Array, inverse_std: Array, gain: Array, has_bias: bool
) -> tuple[Array, Array, Array | None]:
    """Pull the gradient (..., D) back to x, gain and bias."""
    # 3. out = x_hat * gain + bias
    d_gain = sum_over_tokens(d_out * x_hat)
    d_bias = sum_over_tokens(d_out) if has_bias else None
    d_x_hat = d_out * gain

    # 2. x_hat = centred * inverse_std: each feature also moves the deviation of its token
    by_std = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    d_centred = inverse_std * (d_x_hat - by_std)

    # 1. centred = x - mean: each feature also moves the mean of its token
    d_x = d_centred - d_centred.mean(axis=-1, keepdims=True)
    return d_x, d_gain, d_bias


def layer_norm_steps_jvp(
    x_dot: Array, gain_dot: Array, bias_dot: Array | None, x_hat: Array, inverse_std: Array,
    gain: Array,
) -> Array:  # fmt: skip
    """Push the tangents of x, gain and bias forward to the output (..., D)."""
    # 1. centred = x - mean
    centred_dot = x_dot - x_dot.mean(axis=-1, keepdims=True)

    # 2. x_hat = centred * inverse_std: what goes along x_hat itself is divided away
    along = x_hat * (centred_dot * x_hat).mean(axis=-1, keepdims=True)
    x_hat_dot = inverse_std * (centred_dot - along)

    # 3. out = x_hat * gain + bias
    out_dot = x_hat_dot * gain + x_hat * gain_dot
    return out_dot if bias_dot is None else out_dot + bias_dot


class LayerNormCache(NamedTuple):
    """What `layer_norm_backward` needs."""

    x_hat: Array  # (..., D), in the dtype of the computation
    inverse_std: Array  # (..., 1)
    gain: Array  # (D,)
    has_bias: bool
    dtype: np.dtype[Any]
    backend: str


class LayerNormGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_gain: Array  # (D,)
    d_bias: Array | None  # (D,)


def layer_norm_forward(
    x: Array,
    gain: Array,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
) -> tuple[Array, LayerNormCache]:
    """Give each token mean 0 and variance 1, then scale and shift each feature.

    ``out = (x - mean) / sqrt(variance + eps) * gain + bias``, with the mean and variance of
    each token's D features.

    Parameters
    ----------
    x : (..., D) float array
        Any number of leading axes; (B, T, D) for tokens.
    gain : (D,) float array
    bias : (D,) float array, optional
    eps : float
        > 0; keeps a constant token from being divided by 0.

    Returns
    -------
    out : (..., D) array
    cache : LayerNormCache

    Notes
    -----
    The variance divides by D, not by D - 1. Source: Ba, Kiros and Hinton 2016, *Layer
    normalization*, eq. 3. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = layer_norm_forward(np.array([[1.0, 3.0], [5.0, 5.0]]), np.ones(2))
    >>> out.round(3)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    return LAYER_NORM.forward(x=x, gain=gain, bias=bias, eps=eps)


def layer_norm_backward(d_out: Array, cache: LayerNormCache) -> LayerNormGrads:
    """Pull a gradient back through layer normalisation.

    ``d_x = (d_x_hat - mean(d_x_hat) - x_hat * mean(d_x_hat * x_hat)) / std`` with
    ``d_x_hat = d_out * gain``: a change that does not affect the normalised token has no gradient.

    `d_bias` is None if there was no bias.

    Examples
    --------
    >>> out, cache = layer_norm_forward(np.array([[1.0, 3.0, 8.0]]), np.ones(3), np.zeros(3))
    >>> d_x, d_gain, d_bias = layer_norm_backward(np.array([[1.0, 1.0, 1.0]]), cache)
    >>> bool(np.allclose(d_x, 0)), d_bias  # the same shift of all features changes nothing
    (True, array([1., 1., 1.]))
    """
    return LAYER_NORM.backward(d_out, cache)


def layer_norm_jvp(tangents: Any, cache: LayerNormCache) -> Array:
    """Push tangents through layer normalisation.

    ``out_dot = x_hat_dot * gain + x_hat * gain_dot + bias_dot`` with
    ``x_hat_dot = (x_dot - mean(x_dot) - x_hat * mean(x_dot * x_hat)) / std``.

    Parameters
    ----------
    tangents : tuple or dict
        ``(x_dot, gain_dot, bias_dot)``, or by name: ``{"x": x_dot}``. None does not move.
    cache : LayerNormCache

    Returns
    -------
    out_dot : (..., D) array

    Examples
    --------
    >>> out, cache = layer_norm_forward(np.array([[1.0, 3.0, 8.0]]), np.ones(3))
    >>> bool(np.allclose(layer_norm_jvp({"x": np.ones((1, 3))}, cache), 0))  # a shift of all
    True
    """
    return LAYER_NORM.jvp(tangents, cache)


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


def _check(values: Values) -> None:
    check_features(values)
    values["has_bias"] = values.get("bias") is not None


def _layer_norm_records(values: Values) -> Records:
    yield "x", "... D", ""
    yield "gain", "D"
    yield "eps", ""
    yield "centred", "... D", "x - x.mean(axis=-1, keepdims=True)"
    std = "np.sqrt((centred ** 2).mean(axis=-1, keepdims=True) + eps)"
    yield "inverse_std", "... 1", f"1 / {std}"
    yield "x_hat", "... D", "centred * inverse_std"
    yield "bias", "D"
    yield "out", "... D", "x_hat * gain" + plus("bias", values["bias"])


def _layer_norm_records_backward(values: Values) -> Records:
    d_out = values["d_out"]
    yield "d_out", "... D", ""
    yield "d_gain", "D", sum_equation("d_out * x_hat", d_out)
    yield "d_bias", "D", sum_equation("d_out", d_out)
    by_mean = "(d_out * gain).mean(axis=-1, keepdims=True)"
    by_std = "x_hat * (d_out * gain * x_hat).mean(axis=-1, keepdims=True)"
    yield "d_x", "... D", f"inverse_std * (d_out * gain - {by_mean} - {by_std})"


def _layer_norm_kernel(kernels: Any, x: Array, gain: Array, bias: Array | None, eps: float) -> Any:
    return None, *kernels.norm(x, gain, bias, eps, centres=True)  # centred is not kept


def _layer_norm_kernel_backward(kernels: Any, *given: Any) -> Any:
    *arrays, has_bias = given
    d_x, d_gain, d_bias = kernels.norm_backward(*arrays, centres=True)
    return d_x, d_gain, d_bias if has_bias else None


def _layer_norm_shapes(cache: LayerNormCache) -> Shapes:
    gain = cache.gain.shape
    return {"x": cache.x_hat.shape, "gain": gain, "bias": gain if cache.has_bias else None}


LAYER_NORM = Pair(
    layer_norm_steps,
    layer_norm_steps_backward,
    layer_norm_steps_jvp,
    LayerNormCache,
    LayerNormGrads,
    inputs={"gain": "D", "bias": "D", "x": "... D"},
    optional=("bias",),
    options={"eps": partial(check_number, positive=True)},
    check=_check,
    computes="centred inverse_std x_hat out",
    like="x_hat",
    shapes=_layer_norm_shapes,
    records=_layer_norm_records,
    records_backward=_layer_norm_records_backward,
    kernel=_layer_norm_kernel,
    kernel_backward=_layer_norm_kernel_backward,
)
