"""Root-mean-square normalisation, forward, forward mode and backward."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_number
from mha_numpy.core.pair import Pair, Records, Values, sum_equation
from mha_numpy.core.tangents import shape_of
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError


def rms_norm_steps(x: Array, gain: Array | None, eps: float) -> tuple[Array, Array, Array]:
    """Normalise each token (..., D) by its own root mean square."""
    # 1. divide by the root of the mean square
    inverse_rms = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # (..., 1)
    x_hat = x * inverse_rms

    # 2. scale
    out = x_hat if gain is None else x_hat * gain
    return inverse_rms, x_hat, out


def rms_norm_steps_backward(
    d_out: Array, x_hat: Array, inverse_rms: Array, gain: Array | None
) -> tuple[Array, Array | None]:
    """Pull the gradient (..., D) back to x and gain."""
    # 2. out = x_hat * gain
    d_gain = None if gain is None else sum_over_tokens(d_out * x_hat)
    d_x_hat = d_out if gain is None else d_out * gain

    # 1. x_hat = x * inverse_rms: each feature also moves the root mean square of its token
    by_rms = x_hat * (d_x_hat * x_hat).mean(axis=-1, keepdims=True)
    d_x = inverse_rms * (d_x_hat - by_rms)
    return d_x, d_gain


def rms_norm_steps_jvp(
    x_dot: Array, gain_dot: Array | None, x_hat: Array, inverse_rms: Array, gain: Array | None
) -> Array:
    """Push the tangents of x and gain forward to the output (..., D)."""
    # 1. x_hat = x * inverse_rms: what goes along x_hat itself is divided away
    along = x_hat * (x_dot * x_hat).mean(axis=-1, keepdims=True)
    x_hat_dot = inverse_rms * (x_dot - along)

    # 2. out = x_hat * gain
    return x_hat_dot if gain is None else x_hat_dot * gain + x_hat * gain_dot


def sum_over_tokens(per_token: Array) -> Array:
    """Sum (..., D) over every token of every sequence: a param serves them all."""
    return per_token.sum(axis=tuple(range(per_token.ndim - 1)))


class RMSNormCache(NamedTuple):
    """What `rms_norm_backward` needs."""

    x_hat: Array  # (..., D), in the dtype of the computation
    inverse_rms: Array  # (..., 1)
    gain: Array | None  # (D,)
    dtype: np.dtype[Any]
    backend: str


class RMSNormGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_gain: Array | None  # (D,)


def rms_norm_forward(
    x: Array, gain: Array | None = None, *, eps: float = 1e-6
) -> tuple[Array, RMSNormCache]:
    """Give each token mean square 1, then scale each feature.

    ``out = x / sqrt(mean(x^2) + eps) * gain``, with the mean over each token's D features.

    Parameters
    ----------
    x : (..., D) float array
        Any number of leading axes; (B, T, D) for tokens.
    gain : (D,) float array, optional
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

    `d_gain` is None if there was no gain.

    Examples
    --------
    >>> out, cache = rms_norm_forward(np.array([[3.0, -4.0]]), np.ones(2))
    >>> d_x, d_gain = rms_norm_backward(out, cache)  # along the token: its length is normalised
    >>> bool(np.allclose(d_x, 0, atol=1e-6))
    True
    """
    return RMS_NORM.backward(d_out, cache)


def rms_norm_jvp(tangents: Any, cache: RMSNormCache) -> Array:
    """Push tangents through the normalisation: ``out_dot = x_hat_dot * gain + x_hat * gain_dot``.

    ``x_hat_dot = (x_dot - x_hat * mean(x_dot * x_hat)) / rms``.

    Parameters
    ----------
    tangents : tuple or dict
        ``(x_dot, gain_dot)``, or by name: ``{"x": x_dot}``. None does not move.
    cache : RMSNormCache

    Returns
    -------
    out_dot : (..., D) array

    Examples
    --------
    >>> x = np.array([[3.0, -4.0]])
    >>> out, cache = rms_norm_forward(x)
    >>> bool(np.allclose(rms_norm_jvp({"x": x}, cache), 0, atol=1e-6))  # longer, not elsewhere
    True
    """
    return RMS_NORM.jvp(tangents, cache)


def check_features(values: Values) -> None:
    """Check that a token has features: there is no mean of none."""
    if values["x"].shape[-1] == 0:
        name, axes = ("x", "(..., D)") if values["gain"] is None else ("gain", "(D,)")
        raise ShapeError(f"{name}: expected {axes} with D >= 1; got {values[name].shape}")


def _rms_norm_records(values: Values) -> Records:
    yield "x", "... D", ""
    yield "gain", "D"
    yield "eps", ""
    root = "np.sqrt((x ** 2).mean(axis=-1, keepdims=True) + eps)"
    yield "inverse_rms", "... 1", f"1 / {root}"
    yield "x_hat", "... D", "x * inverse_rms"
    yield "out", "... D", f"x_hat{_times_gain(values)}"


def _rms_norm_records_backward(values: Values) -> Records:
    yield "d_out", "... D", ""
    yield "d_gain", "D", sum_equation("d_out * x_hat", values["d_out"])
    d_x_hat = f"d_out{_times_gain(values)}"
    by_rms = f"x_hat * ({d_x_hat} * x_hat).mean(axis=-1, keepdims=True)"
    yield "d_x", "... D", f"inverse_rms * ({d_x_hat} - {by_rms})"


def _times_gain(values: Values) -> str:
    return "" if values["gain"] is None else " * gain"


def _rms_norm_kernel(kernels: Any, x: Array, gain: Array | None, eps: float) -> Any:
    return kernels.norm(x, _ones_without(gain, x), None, eps, centres=False)


def _rms_norm_kernel_backward(
    kernels: Any, d_out: Array, x_hat: Array, inverse_rms: Array, gain: Array | None
) -> Any:
    given = d_out, x_hat, inverse_rms, _ones_without(gain, x_hat)
    d_x, d_gain, _ = kernels.norm_backward(*given, centres=False)
    return d_x, None if gain is None else d_gain


def _ones_without(gain: Array | None, x: Array) -> Array:
    return np.ones(x.shape[-1], x.dtype) if gain is None else gain


RMS_NORM = Pair(
    rms_norm_steps,
    rms_norm_steps_backward,
    rms_norm_steps_jvp,
    RMSNormCache,
    RMSNormGrads,
    inputs={"gain": "D", "x": "... D"},
    optional=("gain",),
    options={"eps": partial(check_number, positive=True)},
    check=check_features,
    computes="inverse_rms x_hat out",
    like="x_hat",
    shapes=lambda cache: {"x": cache.x_hat.shape, "gain": shape_of(cache.gain)},
    records=_rms_norm_records,
    records_backward=_rms_norm_records_backward,
    kernel=_rms_norm_kernel,
    kernel_backward=_rms_norm_kernel_backward,
)
