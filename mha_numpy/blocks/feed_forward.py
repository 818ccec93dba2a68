"""The feed-forward network of a transformer, forward and backward."""

from functools import partial
from typing import Any, NamedTuple

from mha_numpy.blocks.gelu import gelu_backward, gelu_forward
from mha_numpy.blocks.relu import relu_backward, relu_forward
from mha_numpy.blocks.swiglu import swiglu_backward, swiglu_forward
from mha_numpy.checks import check_type
from mha_numpy.core.linear import LinearCache, linear_backward, linear_forward
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe

ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "relu": (relu_forward, relu_backward),
    "gelu": (gelu_forward, gelu_backward),
    "gelu_tanh": (partial(gelu_forward, approximate="tanh"), gelu_backward),
    "swiglu": (swiglu_forward, swiglu_backward),
}


class FeedForwardParams(NamedTuple):
    """The params of a feed-forward network; biases and gate may be None."""

    w_in: Array  # (D, F)
    b_in: Array | None  # (F,)
    w_out: Array  # (F, D)
    b_out: Array | None  # (D,)
    w_gate: Array | None = None  # (D, F): for "swiglu"
    b_gate: Array | None = None  # (F,)


class FeedForwardCache(NamedTuple):
    """What `feed_forward_backward` needs: the caches of its parts."""

    into: LinearCache
    gate: LinearCache | None
    activation: str
    activated: Any  # of relu, gelu or swiglu
    out: LinearCache


class FeedForwardGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_x: Array  # (..., D)
    d_params: FeedForwardParams


def feed_forward_forward(
    x: Array, params: FeedForwardParams, *, activation: str = "gelu", backend: str = "numpy"
) -> tuple[Array, FeedForwardCache]:
    """Widen each token to F features, activate, and narrow it again.

    ``out = activation(x w_in + b_in) w_out + b_out``; with "swiglu"
    ``(silu(x w_gate + b_gate) * (x w_in + b_in)) w_out + b_out``.

    Parameters
    ----------
    x : (..., D) float array
    params : FeedForwardParams
        Its `w_gate` is given for "swiglu" and for nothing else.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu"}
    backend : {"numpy", "loops", "numba"}
        Who multiplies, as `linear_forward` explains.

    Returns
    -------
    out : (..., D) array
    cache : FeedForwardCache

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

    Notes
    -----
    Tokens do not meet here: attention moves information between them, this works on each alone.
    4 D F floating-point operations a token, 6 D F with a gate. Source: Vaswani et al. 2017,
    eq. 2; gated: Shazeer 2020. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> import numpy as np
    >>> params = FeedForwardParams(np.ones((3, 12)), np.zeros(12), np.ones((12, 3)), np.zeros(3))
    >>> out, cache = feed_forward_forward(np.ones((2, 5, 3)), params, activation="relu")
    >>> out.shape, out[0, 0]
    ((2, 5, 3), array([36., 36., 36.]))
    """
    w_in, b_in, w_out, b_out, w_gate, b_gate = _check_params(params, activation)
    activate, _ = ACTIVATIONS[activation]
    # 1. widen
    hidden, into = linear_forward(x, w_in, b_in, backend=backend)  # (..., F)

    # 2. activate
    if w_gate is None:
        gate = None
        activated, activation_cache = activate(hidden)
    else:
        gate_input, gate = linear_forward(x, w_gate, b_gate, backend=backend)
        activated, activation_cache = activate(gate_input, hidden)

    # 3. narrow
    out, narrow = linear_forward(activated, w_out, b_out, backend=backend)
    return out, FeedForwardCache(into, gate, activation, activation_cache, narrow)


def feed_forward_backward(d_out: Array, cache: FeedForwardCache) -> FeedForwardGrads:
    """Pull a gradient back through the network: forward's steps, last to first.

    Parameters
    ----------
    d_out : (..., D) float array
    cache : FeedForwardCache

    Returns
    -------
    FeedForwardGrads
        ``d_x`` and ``d_params``, a FeedForwardParams of gradients, None where there is no param.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or has not the shape of the output; `cache` is not forward's.

    Notes
    -----
    About twice forward's operations. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> import numpy as np
    >>> params = FeedForwardParams(np.ones((3, 12)), np.zeros(12), np.ones((12, 3)), np.zeros(3))
    >>> out, cache = feed_forward_forward(np.ones((2, 5, 3)), params, activation="relu")
    >>> d_x, d_params = feed_forward_backward(np.ones_like(out), cache)
    >>> d_x.shape, d_params.w_in.shape, d_params.w_gate
    ((2, 5, 3), (3, 12), None)
    """
    check_type("cache", cache, FeedForwardCache, "feed_forward_forward")
    _, activate_backward = ACTIVATIONS[cache.activation]
    # 3. out = activated @ w_out + b_out
    d_activated, d_w_out, d_b_out = linear_backward(d_out, cache.out)

    # 2. activated = activate(hidden), or activate(gate_input, hidden)
    d_hidden = activate_backward(d_activated, cache.activated)

    # 1. hidden = x @ w_in + b_in, and gate_input likewise
    d_x, d_w_in, d_b_in = linear_backward(d_hidden.d_x, cache.into)
    d_w_gate = d_b_gate = None
    if cache.gate is not None:
        d_x_gate, d_w_gate, d_b_gate = linear_backward(d_hidden.d_gate, cache.gate)
        d_x = d_x + d_x_gate
    return FeedForwardGrads(
        d_x, FeedForwardParams(d_w_in, d_b_in, d_w_out, d_b_out, d_w_gate, d_b_gate)
    )


def _check_params(params: FeedForwardParams, activation: str) -> FeedForwardParams:
    """Return the params; raise unless they have a gate where the activation wants one."""
    check_activation(activation)
    if not isinstance(params, FeedForwardParams):
        raise ConfigError(f"params: expected FeedForwardParams; got {describe(params)}")
    if (params.w_gate is None) == (activation == "swiglu"):
        expected = "an array (D, F)" if activation == "swiglu" else "None"
        raise ConfigError(
            f"w_gate: expected {expected} with activation={activation!r}; "
            f"got {describe(params.w_gate)}"
        )
    return params


def check_activation(activation: Any) -> str:
    """Return the name of an activation, or raise a ConfigError."""
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ConfigError(
            f"activation: expected one of {tuple(ACTIVATIONS)}; got {describe(activation)}"
        )
    return activation
