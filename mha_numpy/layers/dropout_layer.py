"""Dropout as a layer, and its random mask."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mha_numpy.checks import check_share
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.layers.dropout import dropout_backward, dropout_forward
from mha_numpy.layers.layer import Layer, make_rng


def draw_dropout_mask(
    shape: tuple[int, ...], p: float, rng: np.random.Generator, dtype: npt.DTypeLike
) -> Array:
    """Draw 0 with probability `p`, else ``1 / (1 - p)``, so that the mean stays 1."""
    kept = rng.random(shape) >= p
    return (kept / (1 - p)).astype(dtype)


def check_dropout_p(p: Any) -> float:
    """Return the share of numbers to drop, or raise a ConfigError."""
    return check_share("dropout_p", p, symbol="p")


class Dropout(Layer):
    """Drop a share of the numbers while ``layer.training``; do nothing otherwise.

    Parameters
    ----------
    dropout_p : float
        0 <= p < 1.
    rng : int or numpy Generator, optional
        Draws what is dropped: the same seed drops the same. Default: fresh randomness.

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
        self.dropout_p = check_dropout_p(dropout_p)
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
