"""A linear map as a layer."""

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag
from mha_numpy.core import linear_backward, linear_forward
from mha_numpy.core.linear import LinearGrads
from mha_numpy.dtypes import Array
from mha_numpy.layers.arrays import axes_of, sum_equation
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.steps import constant, is_watched, step


class Linear(Layer):
    """``x w + b`` with params of its own.

    Parameters
    ----------
    inputs, outputs : int
        I and O.
    bias : bool
        Whether there is `b`.
    backend : {"numpy", "loops", "numba"}, optional
        What multiplies, as `linear_forward` explains.
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Notes
    -----
    `w` is uniform within ``1 / sqrt(inputs)``, `b` is zero.

    Examples
    --------
    >>> layer = Linear(3, 4)
    >>> layer(np.ones((2, 5, 3))).shape, layer.num_parameters
    ((2, 5, 4), 16)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool = True,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        inputs, outputs = check_count("inputs", inputs), check_count("outputs", outputs)
        bound = 1 / np.sqrt(inputs)
        w = make_rng(rng).uniform(-bound, bound, (inputs, outputs))
        self.params["w"] = w
        if check_flag("bias", bias):
            self.params["b"] = np.zeros(outputs)
        self.backend = check_backend(backend)

    def forward(self, x: Array) -> Array:
        """Map every vector of `x`: (..., I) -> (..., O)."""
        w, b = self.params["w"], self.params.get("b")
        out, self._cache = linear_forward(x, w, b)
        if is_watched():
            step("x", self._cache.x, axes_of(self._cache.x, "I"))
            constant("w", w, "I O")
            if b is not None:
                constant("b", b, "O")
            step("out", out, axes_of(out, "O"), "x @ w" + (" + b" if b is not None else ""))
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        grads = linear_backward(d_out, self.forward_cache)
        if is_watched():
            _record_backward(d_out, grads)
        self.accumulate("w", grads.d_w)
        self.accumulate("b", grads.d_b)
        return grads.d_x


def _record_backward(d_out: Array, grads: LinearGrads) -> None:
    """Record backward's steps."""
    step("d_out", d_out, axes_of(d_out, "O"))
    step("d_x", grads.d_x, axes_of(grads.d_x, "I"), "d_out @ w.T")
    step("d_w", grads.d_w, "I O", "x.reshape(-1, I).T @ d_out.reshape(-1, O)")
    if grads.d_b is not None:
        step("d_b", grads.d_b, "O", sum_equation("d_out", d_out))
