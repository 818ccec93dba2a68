"""The feed-forward network of a transformer, forward and backward."""

import math
from functools import partial
from typing import Any, NamedTuple

from mha_numpy.checks import check_choice, check_shape, check_type
from mha_numpy.core.linear import LinearCache, linear_backward, linear_forward
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.layers.arrays import axes_of, check_width, sum_equation
from mha_numpy.layers.gelu import gelu_backward, gelu_forward
from mha_numpy.layers.relu import relu_backward, relu_forward
from mha_numpy.layers.swiglu import swiglu_backward, swiglu_forward
from mha_numpy.steps import constant, is_watched, renamed, step

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


# in the order in which they are checked
AXES = {"w_in": "D F", "b_in": "F", "w_out": "F D", "b_out": "D", "w_gate": "D F", "b_gate": "F"}


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
    x: Array, params: FeedForwardParams, *, activation: str = "gelu"
) -> tuple[Array, FeedForwardCache]:
    """Widen each token to F features, activate, and narrow it again.

    ``out = activation(x w_in + b_in) w_out + b_out``; with "swiglu"
    ``(silu(x w_gate + b_gate) * (x w_in + b_in)) w_out + b_out``.

    Parameters
    ----------
    x : (..., D) float array
    params : FeedForwardParams
        Its `w_gate` is an array for "swiglu", and None otherwise.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu"}

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
    The network works on each token alone; only attention moves information between tokens. A token
    takes 4 D F floating-point operations, 6 D F with a gate. Source: Vaswani et al. 2017,
    eq. 2; gated: Shazeer 2020. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> import numpy as np
    >>> params = FeedForwardParams(np.ones((3, 12)), np.zeros(12), np.ones((12, 3)), np.zeros(3))
    >>> out, cache = feed_forward_forward(np.ones((2, 5, 3)), params, activation="relu")
    >>> out.shape, out[0, 0]
    ((2, 5, 3), array([36., 36., 36.]))
    """
    x, params = _check_inputs(x, params, activation)
    w_in, b_in, w_out, b_out, w_gate, b_gate = params
    activate, _ = ACTIVATIONS[activation]
    # 1. widen
    hidden, into = linear_forward(x, w_in, b_in)  # (..., F)
    gate = gate_cache = None
    if w_gate is not None:
        gate, gate_cache = linear_forward(x, w_gate, b_gate)
    if is_watched():
        _record_widening(x, params, hidden, gate)

    # 2. activate
    with renamed(x="hidden", out="activated"):
        inputs = (hidden,) if gate is None else (gate, hidden)
        activated, activation_cache = activate(*inputs)

    # 3. narrow
    out, narrow = linear_forward(activated, w_out, b_out)
    if is_watched():
        step("out", out, axes_of(x), "activated @ w_out" + _plus("b_out", b_out))
    return out, FeedForwardCache(into, gate_cache, activation, activation_cache, narrow)


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
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Notes
    -----
    Backward takes about twice forward's operations. Derivation: ``docs/blocks.md``.

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

    # 2. activated = activate(hidden), or activate(gate, hidden)
    if is_watched():
        _record_narrowing(d_out, d_activated, d_w_out, d_b_out)
    with renamed(x="hidden", out="activated"):
        d_hidden = activate_backward(d_activated, cache.activated)

    # 1. hidden = x @ w_in + b_in, and gate likewise
    d_x, d_w_in, d_b_in = linear_backward(d_hidden.d_x, cache.into)
    d_w_gate = d_b_gate = None
    if cache.gate is not None:
        d_x_gate, d_w_gate, d_b_gate = linear_backward(d_hidden.d_gate, cache.gate)
        d_x = d_x + d_x_gate
    d_params = FeedForwardParams(d_w_in, d_b_in, d_w_out, d_b_out, d_w_gate, d_b_gate)
    if is_watched():
        _record_widening_backward(d_x, d_params)
    return FeedForwardGrads(d_x, d_params)


def _check_inputs(
    x: Any, params: FeedForwardParams, activation: str
) -> tuple[Array, FeedForwardParams]:
    """Return x and params as arrays that fit; with a gate just where the activation wants one."""
    check_choice("activation", activation, ACTIVATIONS)
    if not isinstance(params, FeedForwardParams):
        raise ConfigError(f"params: expected FeedForwardParams; got {describe(params)}")
    if (params.w_gate is None) == (activation == "swiglu"):
        expected = "an array (D, F)" if activation == "swiglu" else "None"
        raise ConfigError(
            f"w_gate: expected {expected} with activation={activation!r}; "
            f"got {describe(params.w_gate)}"
        )
    if params.w_gate is None and params.b_gate is not None:
        raise ConfigError(f"b_gate: expected None without w_gate; got {describe(params.b_gate)}")
    x, sizes = as_float_array("x", x), dict[str, int]()
    arrays = dict[str, Any]()
    for name, axes in AXES.items():
        param = getattr(params, name)
        if param is not None or name in ("w_in", "w_out"):
            param = as_float_array(name, param)
            check_shape(name, param, axes, sizes, to_match="w_in" if sizes else "")
        arrays[name] = param
    check_width(x, sizes["D"], f"w_in {arrays['w_in'].shape}")
    return x, FeedForwardParams(**arrays)


def _plus(name: str, b: Array | None) -> str:
    """Write the bias of a linear map, where there is one."""
    return "" if b is None else f" + {name}"


def _record_widening(
    x: Array, params: FeedForwardParams, hidden: Array, gate: Array | None
) -> None:
    """Record the params and the linear maps before the activation."""
    axes = axes_of(x, "F")
    step("x", x, axes_of(x))
    for name, param in params._asdict().items():
        if param is not None:
            constant(name, param, AXES[name])
    if gate is not None:
        step("gate", gate, axes, "x @ w_gate" + _plus("b_gate", params.b_gate))
    step("hidden", hidden, axes, "x @ w_in" + _plus("b_in", params.b_in))


def _record_narrowing(
    d_out: Array, d_activated: Array, d_w_out: Array, d_b_out: Array | None
) -> None:
    """Record the way back through the last linear map."""
    step("d_out", d_out, axes_of(d_out))
    step("d_activated", d_activated, axes_of(d_out, "F"), "d_out @ w_out.T")
    _record_map_backward("out", "activated", d_out, d_w_out, d_b_out)


def _record_widening_backward(d_x: Array, d_params: FeedForwardParams) -> None:
    """Record the way back through the linear maps before the activation."""
    _record_map_backward("in", "x", d_x, d_params.w_in, d_params.b_in, "d_hidden")
    by_gate = ""
    if d_params.w_gate is not None:
        _record_map_backward("gate", "x", d_x, d_params.w_gate, d_params.b_gate, "d_gate")
        by_gate = " + d_gate @ w_gate.T"
    step("d_x", d_x, axes_of(d_x), f"d_hidden @ w_in.T{by_gate}")


def _record_map_backward(
    letter: str, x: str, tokens: Array, d_w: Array, d_b: Array | None, d_mapped: str = "d_out"
) -> None:
    """Record the gradients of the params of one linear map."""
    inputs, outputs = AXES[f"w_{letter}"].split()
    rows = math.prod(tokens.shape[:-1])
    product = f"{x}.reshape({rows}, {inputs}).T @ {d_mapped}.reshape({rows}, {outputs})"
    step(f"d_w_{letter}", d_w, f"{inputs} {outputs}", product)
    if d_b is not None:
        step(f"d_b_{letter}", d_b, outputs, sum_equation(d_mapped, tokens))
