"""The feed-forward network as a layer."""

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_choice, check_count, check_flag
from mha_numpy.dtypes import Array
from mha_numpy.layers.feed_forward import (
    ACTIVATIONS,
    FeedForwardParams,
    feed_forward_backward,
    feed_forward_forward,
)
from mha_numpy.layers.layer import Layer, make_rng


class FeedForward(Layer):
    """`feed_forward_forward` with params of its own.

    Parameters
    ----------
    embed_dim : int
        D.
    hidden_dim : int, optional
        F; default 4 D.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu"}
    bias : bool
        Whether the linear maps have biases.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> layer = FeedForward(4, activation="swiglu", bias=False)
    >>> layer(np.ones((2, 5, 4))).shape, list(layer.params)
    ((2, 5, 4), ['w_in', 'w_out', 'w_gate'])
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        D = check_count("embed_dim", embed_dim)
        F = 4 * D if hidden_dim is None else check_count("hidden_dim", hidden_dim)
        self.activation = check_choice("activation", activation, ACTIVATIONS)
        self.backend = check_backend(backend)
        shapes = {"in": (D, F), "out": (F, D)}
        if activation == "swiglu":
            shapes["gate"] = (D, F)
        rng = make_rng(rng)
        for name, (inputs, outputs) in shapes.items():
            bound = 1 / np.sqrt(inputs)
            self.params[f"w_{name}"] = rng.uniform(-bound, bound, (inputs, outputs))
            if check_flag("bias", bias):
                self.params[f"b_{name}"] = np.zeros(outputs)

    def forward(self, x: Array) -> Array:
        """Widen, activate and narrow each token: (..., D) -> (..., D)."""
        params = FeedForwardParams._make(self.params.get(p) for p in FeedForwardParams._fields)
        out, self._cache = feed_forward_forward(x, params, activation=self.activation)
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        d_x, d_params = feed_forward_backward(d_out, self.forward_cache)
        for name, gradient in d_params._asdict().items():
            self.accumulate(name, gradient)
        return d_x
