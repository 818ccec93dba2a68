"""Dropout, forward, forward mode and backward."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mha_numpy.checks import check_broadcast, check_share
from mha_numpy.core.pair import Pair, Records, Values, axes_of
from mha_numpy.core.shapes import broadcast_axes
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.layers.layer import Layer, make_rng


def dropout_steps(x: Array, dropout_mask: Array) -> Array:
    """Drop some numbers and enlarge the others."""
    # 1. multiply by 0 or 1 / (1 - p)
    return x * dropout_mask


def dropout_steps_backward(d_out: Array, dropout_mask: Array) -> Array:
    """Pull the gradient back to x: dropped numbers have none."""
    # 1. out = x * dropout_mask
    return d_out * dropout_mask


class DropoutCache(NamedTuple):
    """What `dropout_backward` needs."""

    dropout_mask: Array  # 0 or 1 / (1 - p), broadcasts to the output
    shape: tuple[int, ...]  # of the output
    dtype: np.dtype[Any]


class DropoutGrads(NamedTuple):
    """The gradient of the one differentiable input."""

    d_x: Array


def dropout_forward(x: Array, dropout_mask: Array) -> tuple[Array, DropoutCache]:
    """Multiply by a mask of 0 and ``1 / (1 - p)``: ``out = x * dropout_mask``.

    Parameters
    ----------
    x : float array of any shape
    dropout_mask : float array that broadcasts to `x`
        Drawn outside, by the layer, so that gradients can be checked.

    Returns
    -------
    out : array like `x`
    cache : DropoutCache

    Notes
    -----
    Source: Srivastava et al. 2014, *Dropout*; scaling what is kept: section 10, "inverted".

    Examples
    --------
    >>> dropout_forward(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0]))[0]
    array([0., 4., 6.])
    """
    return DROPOUT.forward(x=x, dropout_mask=dropout_mask)


def dropout_backward(d_out: Array, cache: DropoutCache) -> DropoutGrads:
    """Pull a gradient back through dropout, with the same mask: ``d_x = d_out * dropout_mask``.

    Examples
    --------
    >>> out, cache = dropout_forward(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0]))
    >>> dropout_backward(np.ones(3), cache).d_x
    array([0., 2., 2.])
    """
    return DROPOUT.backward(d_out, cache)


def dropout_jvp(x_dot: Array, cache: DropoutCache) -> Array:
    """Push a tangent through dropout, with the same mask: ``out_dot = x_dot * dropout_mask``.

    Examples
    --------
    >>> out, cache = dropout_forward(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 2.0]))
    >>> dropout_jvp(np.ones(3), cache)
    array([0., 2., 2.])
    """
    return DROPOUT.jvp(x_dot, cache)


def draw_dropout_mask(
    shape: tuple[int, ...], p: float, rng: np.random.Generator, dtype: npt.DTypeLike
) -> Array:
    """Draw 0 with probability `p`, else ``1 / (1 - p)``, so that the mean stays 1."""
    kept = rng.random(shape) >= p
    return (kept / (1 - p)).astype(dtype)


class Dropout(Layer):
    """Drop a share of the numbers while ``layer.training``; do nothing otherwise.

    Parameters
    ----------
    dropout_p : float
        0 <= p < 1.
    rng : int or numpy Generator, optional
        Draws the numbers to drop: the same seed drops the same. Default: fresh randomness.

    Examples
    --------
    >>> layer = Dropout(0.5, rng=0)
    >>> layer(np.ones(6)), layer.eval()(np.ones(6))
    (array([2., 0., 0., 0., 2., 2.]), array([1., 1., 1., 1., 1., 1.]))
    """

    def __init__(
        self, dropout_p: float = 0.0, *, rng: int | np.random.Generator | None = None
    ) -> None:
        super().__init__()
        self.dropout_p = check_share("dropout_p", dropout_p, symbol="p")
        self.rng = make_rng(rng)

    def forward(self, x: Array) -> Array:
        """Multiply by 0 or ``1 / (1 - p)``: (...) -> (...)."""
        if not self.training or self.dropout_p == 0:
            self._cache = ()  # nothing is dropped
            return x
        x = as_float_array("x", x)
        dropout_mask = draw_dropout_mask(x.shape, self.dropout_p, self.rng, x.dtype)
        out, self._cache = dropout_forward(x, dropout_mask)
        return out

    def backward(self, d_out: Array) -> Array:
        """Return the gradient of `x`."""
        cache = self.forward_cache
        return dropout_backward(d_out, cache).d_x if cache else d_out


def _check(values: Values) -> None:
    x = values["x"]
    check_broadcast("dropout_mask", values["dropout_mask"], x.shape, axes_of(x, "... D"))
    values["shape"] = x.shape


def _records(values: Values) -> Records:
    x = values["x"]
    yield "x", "... D", ""
    yield "dropout_mask", broadcast_axes(values["dropout_mask"].shape, axes_of(x, "... D"), x.shape)
    yield "out", "... D", "x * dropout_mask"


DROPOUT = Pair(
    dropout_steps,
    dropout_steps_backward,
    dropout_steps_backward,  # a tangent meets the same mask
    DropoutCache,
    DropoutGrads,
    inputs={"x": "", "dropout_mask": ""},
    check=_check,
    like=lambda cache: (cache.shape, cache.dropout_mask.dtype),
    shapes=lambda cache: {"x": cache.shape},
    records=_records,
    records_backward=[("d_out", "... D", ""), ("d_x", "... D", "d_out * dropout_mask")],
)
