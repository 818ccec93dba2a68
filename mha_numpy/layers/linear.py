"""A linear map as a layer."""

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_flag
from mha_numpy.core import linear_backward, linear_forward
from mha_numpy.core.pair import Records, Values, plus, record, sum_equation
from mha_numpy.dtypes import Array
from mha_numpy.layers.layer import Layer, make_rng


class Linear(Layer):
    """``x w + b`` with its own params.

    Parameters
    ----------
    inputs, outputs : int
        I and O.
    bias : bool
        Whether the map has a `b`.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

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
        record({"x": self._cache.x, "w": w, "b": b, "out": out}, _records)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        grads = linear_backward(d_out, self.forward_cache)
        record({"d_out": d_out, **grads._asdict()}, _records_backward)
        self.accumulate("w", grads.d_w, copy=False)
        self.accumulate("b", grads.d_b, copy=False)
        return grads.d_x


def _records(values: Values) -> Records:
    yield "x", "... I", ""
    yield "w", "I O"
    yield "b", "O"
    yield "out", "... O", "x @ w" + plus("b", values["b"])


def _records_backward(values: Values) -> Records:
    yield "d_out", "... O", ""
    yield "d_x", "... I", "d_out @ w.T"
    yield "d_w", "I O", "x.reshape(-1, I).T @ d_out.reshape(-1, O)"
    yield "d_b", "O", sum_equation("d_out", values["d_out"])
