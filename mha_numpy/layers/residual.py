"""The residual connection: a layer adds its output to its input."""

from typing import Any

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, find_kernels
from mha_numpy.checks import check_flag
from mha_numpy.core.pair import axes_of
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import MhaError, ShapeError
from mha_numpy.layers.dropout import Dropout
from mha_numpy.layers.layer import Layer, check_layer
from mha_numpy.steps import record_sum, step


class Residual(Layer):
    """``x + layer(norm(x))``, or ``norm(x + layer(x))``, or ``x + post_norm(layer(x))``.

    Parameters
    ----------
    layer : Layer
        Its backward returns the gradient of x first.
    norm : Layer, optional
    norm_first : bool
        Whether `norm` normalises the layer's input (pre-norm), or the sum (post-norm).
    post_norm : Layer, optional
        Normalises the layer's output before it is added: beside `norm` in Gemma 2, without it in
        OLMo 2.
    dropout_p : float
        Share of the layer's output to drop while training.
    rng : int or numpy Generator, optional
        Draws the numbers to drop: the same seed drops the same. Default: fresh randomness.

    Notes
    -----
    The gradient of the sum goes both ways: through the layer and past it. Sources: He et al.
    2016; post-norm: Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020, section 3.

    Examples
    --------
    >>> from mha_numpy.layers import FeedForward, LayerNorm
    >>> layer = Residual(FeedForward(4), LayerNorm(4))
    >>> layer(np.ones((2, 5, 4))).shape
    (2, 5, 4)
    """

    at_its_place = "layer"

    def __init__(
        self,
        layer: Layer,
        norm: Layer | None,
        *,
        norm_first: bool = True,
        post_norm: Layer | None = None,
        dropout_p: float = 0.0,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        check_layer("layer", layer)
        for name, each in (("norm", norm), ("post_norm", post_norm)):
            if each is not None:
                check_layer(name, each)
        self.norm, self.post_norm = norm, post_norm
        self.layer: Any = layer
        self.dropout = Dropout(dropout_p, rng=rng)
        self.norm_first = check_flag("norm_first", norm_first)

    def forward(self, x: Array, *others: Array, **options: Any) -> Array:
        """Add the layer's output to `x`; `others` and options are the layer's."""
        x = as_float_array("x", x)
        step("skip", x, axes_of(x, "... D"))
        inner = self.norm(x) if self.norm and self.norm_first else x
        found = self.layer(inner, *others, **options)
        added = self.dropout(self.post_norm(found) if self.post_norm else found)
        if added.shape != x.shape:
            raise ShapeError(f"layer: expected an output like x {x.shape}; got {added.shape}")
        total = add(x, added)
        record_sum("sum", total, axes_of(total, "... D"), x, added)
        return self.norm(total) if self.norm and not self.norm_first else total

    def backward(self, d_out: Array) -> tuple[Array, ...]:
        """Return the gradient of `x`, then those of the others."""
        d_out = as_float_array("d_out", d_out)
        d_sum = self.norm.backward(d_out) if self.norm and not self.norm_first else d_out
        step("d_sum", d_sum, axes_of(d_sum, "... D"))
        d_found = self.dropout.backward(d_sum)
        d_layer = self.layer.backward(
            self.post_norm.backward(d_found) if self.post_norm else d_found
        )
        d_x, *d_others = d_layer if isinstance(d_layer, tuple) else (d_layer,)
        if d_x is None:
            raise MhaError(
                f"layer: expected backward of a {type(self.layer).__name__} to return the gradient "
                "of x; got None"
            )
        if self.norm and self.norm_first:
            d_x = self.norm.backward(d_x)
        d_skip = add(d_sum, d_x)
        record_sum("d_skip", d_skip, axes_of(d_skip, "... D"), d_sum, d_x)
        return d_skip, *d_others


def add(a: Array, b: Array) -> Array:
    """Return the sum of two arrays, by a kernel if they have the same shape."""
    kernels = find_kernels(ONE_PASS_KERNELS, a, b)
    return a + b if kernels is None or a.shape != b.shape else kernels.add(a, b)
