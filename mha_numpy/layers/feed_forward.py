"""The feed-forward network of a transformer, forward, forward mode and backward."""

import math
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_choice, check_count, check_flag, check_shape, check_type
from mha_numpy.core.linear import (
    LinearCache,
    linear_backward,
    linear_forward,
    linear_jvp,
    linear_shapes,
)
from mha_numpy.core.pair import Records, Values, plus, record, sum_equation
from mha_numpy.core.tangents import tangents_with_params
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.layers.activations import ACTIVATIONS, GATED
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.steps import renamed


class FeedForwardParams(NamedTuple):
    """The params of a feed-forward network; biases and gate may be None."""

    w_in: Array  # (D, F)
    b_in: Array | None  # (F,)
    w_out: Array  # (F, D)
    b_out: Array | None  # (D,)
    w_gate: Array | None = None  # (D, F): for "swiglu" and "geglu_tanh"
    b_gate: Array | None = None  # (F,)


# in the order in which they are checked
AXES = {"w_in": "D F", "b_in": "F", "w_out": "F D", "b_out": "D", "w_gate": "D F", "b_gate": "F"}


class FeedForwardCache(NamedTuple):
    """What `feed_forward_backward` needs: the caches of its parts."""

    into: LinearCache
    gate: LinearCache | None
    activation: str
    activated: Any  # of the activation
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
    ``(silu(x w_gate + b_gate) * (x w_in + b_in)) w_out + b_out``, with "geglu_tanh" GELU for SiLU.

    Parameters
    ----------
    x : (..., D) float array
    params : FeedForwardParams
        Its `w_gate` is an array for "swiglu" and "geglu_tanh", and None otherwise.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu", "geglu_tanh"}

    Returns
    -------
    out : (..., D) array
    cache : FeedForwardCache

    Notes
    -----
    The network works on each token separately; only attention moves information between tokens. A
    token takes 4 D F floating-point operations, 6 D F with a gate. Source: Vaswani et al. 2017,
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
    activate, *_ = ACTIVATIONS[activation]
    # 1. widen
    hidden, into = linear_forward(x, w_in, b_in)  # (..., F)
    gate = gate_cache = None
    if w_gate is not None:
        gate, gate_cache = linear_forward(x, w_gate, b_gate)
    values = {"x": x, "hidden": hidden, "gate": gate, **params._asdict()}
    record(values, _widening)

    # 2. activate
    with renamed(x="hidden", out="activated"):
        inputs = (hidden,) if gate is None else (gate, hidden)
        activated, activation_cache = activate(*inputs)

    # 3. narrow
    out, narrow = linear_forward(activated, w_out, b_out)
    record({"out": out, **params._asdict()}, _narrowing)
    return out, FeedForwardCache(into, gate_cache, activation, activation_cache, narrow)


def feed_forward_backward(d_out: Array, cache: FeedForwardCache) -> FeedForwardGrads:
    """Pull a gradient back through the network: forward's steps, last to first.

    `d_params` is a FeedForwardParams of gradients, None where there is no param. Backward takes
    about twice forward's operations.

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
    *_, activate_backward = ACTIVATIONS[cache.activation]
    # 3. out = activated @ w_out + b_out
    d_activated, d_w_out, d_b_out = linear_backward(d_out, cache.out)

    # 2. activated = activate(hidden), or activate(gate, hidden)
    values = {"d_out": d_out, "d_activated": d_activated, "d_w_out": d_w_out, "d_b_out": d_b_out}
    record(values, _narrowing_backward)
    with renamed(x="hidden", out="activated"):
        d_hidden = activate_backward(d_activated, cache.activated)

    # 1. hidden = x @ w_in + b_in, and gate likewise
    d_x, d_w_in, d_b_in = linear_backward(d_hidden.d_x, cache.into)
    d_w_gate = d_b_gate = None
    if cache.gate is not None:
        d_x_gate, d_w_gate, d_b_gate = linear_backward(d_hidden.d_gate, cache.gate)
        d_x = d_x + d_x_gate
    d_params = FeedForwardParams(d_w_in, d_b_in, d_w_out, d_b_out, d_w_gate, d_b_gate)
    values = {f"d_{name}": gradient for name, gradient in d_params._asdict().items()}
    record({"d_x": d_x, **values}, _widening_backward)
    return FeedForwardGrads(d_x, d_params)


def feed_forward_jvp(tangents: Any, cache: FeedForwardCache) -> Array:
    """Push tangents through the network: forward's steps, first to last.

    Parameters
    ----------
    tangents : tuple or dict
        ``(x_dot, params_dot)``, or by name. `params_dot` is a FeedForwardParams, or a dict by the
        names of its fields. None does not move.
    cache : FeedForwardCache

    Returns
    -------
    out_dot : (..., D) array

    Examples
    --------
    >>> import numpy as np
    >>> params = FeedForwardParams(np.ones((3, 12)), np.zeros(12), np.ones((12, 3)), np.zeros(3))
    >>> out, cache = feed_forward_forward(np.ones((2, 5, 3)), params, activation="relu")
    >>> feed_forward_jvp({"params": {"b_out": np.array([1.0, 2.0, 3.0])}}, cache)[0, 0]
    array([1., 2., 3.])
    """
    check_type("cache", cache, FeedForwardCache, "feed_forward_forward")
    _, activate_jvp, _ = ACTIVATIONS[cache.activation]
    into, gate, out = cache.into, cache.gate, cache.out
    shapes: dict[str, Any] = {"w_gate": None, "b_gate": None}
    for letter, part in (("in", into), ("gate", gate), ("out", out)):
        if part is not None:
            of = linear_shapes(part)
            shapes |= {f"w_{letter}": of["w"], f"b_{letter}": of["b"]}
    in_order = {name: shapes[name] for name in FeedForwardParams._fields}
    given, of_params = tangents_with_params(
        tangents, FeedForwardGrads._fields, {"x": into.x.shape}, in_order, into.x.dtype
    )
    x_dot, dots = given["x"], FeedForwardParams(**of_params)

    # 1. hidden = x @ w_in + b_in, and gate likewise
    hidden_dot = linear_jvp((x_dot, dots.w_in, dots.b_in), into)

    # 2. activated = activate(hidden), or activate(gate, hidden)
    moving: Any = hidden_dot
    if gate is not None:
        moving = linear_jvp((x_dot, dots.w_gate, dots.b_gate), gate), hidden_dot
    activated_dot = activate_jvp(moving, cache.activated)

    # 3. out = activated @ w_out + b_out
    return linear_jvp((activated_dot, dots.w_out, dots.b_out), out)


class FeedForward(Layer):
    """`feed_forward_forward` with its own params.

    Parameters
    ----------
    embed_dim : int
        D.
    hidden_dim : int, optional
        F; default 4 D.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu", "geglu_tanh"}
    bias : bool
        Whether the linear maps have biases.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

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
        if activation in GATED:
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
            self.accumulate(name, gradient, copy=False)
        return d_x


def _check_inputs(
    x: Any, params: FeedForwardParams, activation: str
) -> tuple[Array, FeedForwardParams]:
    """Return x and params as arrays that fit; with a gate just where the activation wants one."""
    check_choice("activation", activation, ACTIVATIONS)
    if not isinstance(params, FeedForwardParams):
        raise ConfigError(f"params: expected FeedForwardParams; got {describe(params)}")
    if (params.w_gate is None) == (activation in GATED):
        expected = "an array (D, F)" if activation in GATED else "None"
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
    check_shape("x", x, "... D", sizes, to_match=f"w_in {arrays['w_in'].shape}")
    return x, FeedForwardParams(**arrays)


def _widening(values: Values) -> Records:
    yield "x", "... D", ""
    yield from AXES.items()
    yield "gate", "... F", "x @ w_gate" + plus("b_gate", values["b_gate"])
    yield "hidden", "... F", "x @ w_in" + plus("b_in", values["b_in"])


def _narrowing(values: Values) -> Records:
    yield "out", "... D", "activated @ w_out" + plus("b_out", values["b_out"])


def _narrowing_backward(values: Values) -> Records:
    yield "d_out", "... D", ""
    yield "d_activated", "... F", "d_out @ w_out.T"
    yield from _map_backward("out", "activated", values["d_out"], "d_out")


def _widening_backward(values: Values) -> Records:
    d_x = values["d_x"]
    yield from _map_backward("in", "x", d_x, "d_hidden")
    yield from _map_backward("gate", "x", d_x, "d_gate")
    by_gate = "" if values["d_w_gate"] is None else " + d_gate @ w_gate.T"
    yield "d_x", "... D", f"d_hidden @ w_in.T{by_gate}"


def _map_backward(letter: str, x: str, tokens: Array, d_mapped: str) -> Records:
    """Yield the gradients of the params of one linear map."""
    inputs, outputs = AXES[f"w_{letter}"].split()
    rows = math.prod(tokens.shape[:-1])
    product = f"{x}.reshape({rows}, {inputs}).T @ {d_mapped}.reshape({rows}, {outputs})"
    yield f"d_w_{letter}", f"{inputs} {outputs}", product
    yield f"d_b_{letter}", outputs, sum_equation(d_mapped, tokens)
