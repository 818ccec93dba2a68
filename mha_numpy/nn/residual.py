"""The residual connection: a layer adds to what flows past it."""

from typing import Any

import numpy as np

from mha_numpy.blocks.arrays import add
from mha_numpy.checks import check_flag
from mha_numpy.dtypes import Array
from mha_numpy.nn.dropout import Dropout
from mha_numpy.nn.layer import Layer


class Residual(Layer):
    """``x + layer(norm(x))``, or ``norm(x + layer(x))``.

    Parameters
    ----------
    layer : Layer
        Its backward returns the gradient of x first.
    norm : Layer
    norm_first : bool
        Whether the layer's input is normalised (pre-norm), or the sum (post-norm).
    dropout_p : float
        Share of the layer's output that is dropped while training.
    rng : int or numpy Generator, optional
        Draws what is dropped: the same seed drops the same. Default: fresh randomness.

    Notes
    -----
    The gradient of the sum goes both ways: through the layer and past it. Sources: He et al.
    2016; post-norm: Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020, section 3.

    Examples
    --------
    >>> from mha_numpy.nn import FeedForward, LayerNorm
    >>> layer = Residual(FeedForward(4), LayerNorm(4))
    >>> layer(np.ones((2, 5, 4))).shape
    (2, 5, 4)
    """

    def __init__(
        self,
        layer: Layer,
        norm: Layer,
        *,
        norm_first: bool = True,
        dropout_p: float = 0.0,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.norm, self.backend = norm, norm.backend
        self.layer: Any = layer
        self.dropout = Dropout(dropout_p, rng=rng)
        self.norm_first = check_flag("norm_first", norm_first)

    def forward(self, x: Array, *others: Array, **options: Any) -> Array:
        """Add the layer's output to `x`; `others` and options are the layer's."""
        if self.norm_first:
            added = self.dropout(self.layer(self.norm(x), *others, **options))
            return add(x, added, backend=self.backend)
        added = self.dropout(self.layer(x, *others, **options))
        return self.norm(add(x, added, backend=self.backend))

    def backward(self, d_out: Array) -> tuple[Array, ...]:
        """Return the gradient of `x`, then those of the others."""
        d_sum = d_out if self.norm_first else self.norm.backward(d_out)
        d_layer = self.layer.backward(self.dropout.backward(d_sum))
        d_x, *d_others = d_layer if isinstance(d_layer, tuple) else (d_layer,)
        if self.norm_first:
            d_x = self.norm.backward(d_x)
        return add(d_sum, d_x, backend=self.backend), *d_others
