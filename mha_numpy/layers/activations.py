"""ReLU, GELU, SwiGLU and softcap: functions of each number separately; three ways through each.

A function of one number has one slope at each, so its forward mode is the equation of its backward:
a tangent times the slope, or a gradient times the slope.
"""

import math
import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_choice, check_number
from mha_numpy.core.pair import Pair, Records, Values
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError
from mha_numpy.layers.erf import erf, erf_slope
from mha_numpy.layers.layer import Layer
from mha_numpy.steps import constant


def relu_steps(x: Array) -> Array:
    """Keep the positive numbers."""
    # 1. cut off below 0
    return np.where(x.real <= 0, 0, x)  # NaN stays NaN


def relu_steps_backward(d_out: Array, x: Array) -> Array:
    """Pull the gradient back to x: it passes where x passed."""
    # 1. out = x where x > 0, else 0
    return np.where(x.real <= 0, 0, d_out)


class ReluCache(NamedTuple):
    """What `relu_backward` needs."""

    x: Array
    dtype: np.dtype[Any]
    backend: str


class ReluGrads(NamedTuple):
    """The gradient of the one input."""

    d_x: Array


def relu_forward(x: Array) -> tuple[Array, ReluCache]:
    """Replace every negative number by 0: ``out = max(x, 0)``.

    Parameters
    ----------
    x : float array of any shape

    Returns
    -------
    out : array like `x`
    cache : ReluCache

    Notes
    -----
    At 0, where there are two slopes, the gradient is 0, as in PyTorch. Source: Nair and Hinton
    2010, *Rectified linear units improve restricted Boltzmann machines*.

    Examples
    --------
    >>> relu_forward(np.array([-2.0, 0.0, 3.0]))[0]
    array([0., 0., 3.])
    """
    return RELU.forward(x=x)


def relu_backward(d_out: Array, cache: ReluCache) -> ReluGrads:
    """Pull a gradient back through ReLU: ``d_x = d_out`` where ``x > 0``, else 0.

    Examples
    --------
    >>> out, cache = relu_forward(np.array([-2.0, 0.0, 3.0]))
    >>> relu_backward(np.array([5.0, 6.0, 7.0]), cache).d_x
    array([0., 0., 7.])
    """
    return RELU.backward(d_out, cache)


def relu_jvp(x_dot: Array, cache: ReluCache) -> Array:
    """Push a tangent through ReLU: ``out_dot = x_dot`` where ``x > 0``, else 0.

    Examples
    --------
    >>> out, cache = relu_forward(np.array([-2.0, 0.0, 3.0]))
    >>> relu_jvp(np.array([5.0, 6.0, 7.0]), cache)
    array([0., 0., 7.])
    """
    return RELU.jvp(x_dot, cache)


RELU = Pair(
    relu_steps,
    relu_steps_backward,
    relu_steps_backward,
    ReluCache,
    ReluGrads,
    inputs={"x": ""},
    like="x",
    records=[("x", "... F", ""), ("out", "... F", "np.maximum(x, 0)")],
    records_backward=[("d_out", "... F", ""), ("d_x", "... F", "np.where(x > 0, d_out, 0)")],
    kernel=lambda kernels, x: kernels.relu(x),
    kernel_backward=lambda kernels, *given: kernels.relu_backward(*given),
)


APPROXIMATIONS = ("none", "tanh")
CUBIC = 0.044715
SLOPE = math.sqrt(2 / math.pi)


def gelu_steps(x: Array, approximate: str) -> tuple[Array, Array]:
    """Multiply each number by the share of normally distributed numbers that lie below it."""
    # 1. share
    if approximate == "tanh":
        share = (1 + np.tanh(SLOPE * x * (1 + CUBIC * x**2))) / 2
    else:
        share = (1 + erf(x / math.sqrt(2))) / 2

    # 2. multiply
    out = x * share
    return share, out


def gelu_steps_backward(d_out: Array, x: Array, share: Array, approximate: str) -> Array:
    """Pull the gradient back to x, which counts twice: as itself and in its share."""
    # 2. out = x * share
    d_x = d_out * share
    d_share = d_out * x

    # 1. share = (1 + tanh(...)) / 2, or the same with erf
    if approximate == "tanh":
        inner_slope = SLOPE * (1 + 3 * CUBIC * x**2)
        slope = 2 * share * (1 - share) * inner_slope  # (1 - tanh^2) / 2 = 2 share (1 - share)
    else:
        slope = erf_slope(x / math.sqrt(2)) / math.sqrt(8)
    return d_x + d_share * slope


class GeluCache(NamedTuple):
    """What `gelu_backward` needs."""

    x: Array
    share: Array
    approximate: str
    dtype: np.dtype[Any]
    backend: str


class GeluGrads(NamedTuple):
    """The gradient of the one input."""

    d_x: Array


def gelu_forward(x: Array, *, approximate: str = "none") -> tuple[Array, GeluCache]:
    """Multiply each number by the probability that a normal one is smaller.

    ``out = x * (1 + erf(x / sqrt(2))) / 2``; with ``approximate="tanh"``
    ``out = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2``.

    Parameters
    ----------
    x : float array of any shape
    approximate : {"none", "tanh"}
        GPT-2 was trained with "tanh", BERT with "none"; they differ by at most 0.0005.

    Returns
    -------
    out : array like `x`
    cache : GeluCache

    Notes
    -----
    GELU is a smooth ReLU. NumPy has no erf, so the exact form computes it by a series.
    Source: Hendrycks and Gimpel 2016, *Gaussian error linear units*, section 2. Derivation:
    ``docs/blocks.md``.

    Examples
    --------
    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(4)
    array([-0.1587,  0.    ,  0.8413])
    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]), approximate="tanh")[0].round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    return GELU.forward(x=x, approximate=approximate)


def gelu_backward(d_out: Array, cache: GeluCache) -> GeluGrads:
    """Pull a gradient back through GELU: ``d_x = d_out * (share + x * slope of share)``.

    Notes
    -----
    The share's slope is the normal density ``e^(-x^2 / 2) / sqrt(2 pi)``. Derivation:
    ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = gelu_forward(np.array([-1.0, 0.0, 1.0]))
    >>> gelu_backward(np.ones(3), cache).d_x.round(4)
    array([-0.0833,  0.5   ,  1.0833])
    """
    return GELU.backward(d_out, cache)


def gelu_jvp(x_dot: Array, cache: GeluCache) -> Array:
    """Push a tangent through GELU: ``out_dot = x_dot * (share + x * slope of share)``.

    Examples
    --------
    >>> out, cache = gelu_forward(np.array([-1.0, 0.0, 1.0]))
    >>> gelu_jvp(np.ones(3), cache).round(4)
    array([-0.0833,  0.5   ,  1.0833])
    """
    return GELU.jvp(x_dot, cache)


def _gelu_records(values: Values) -> Records:
    yield "x", "... F", ""
    if values["approximate"] == "tanh":
        constant("slope", SLOPE)
        constant("cubic", CUBIC)
        yield "share", "... F", "(1 + np.tanh(slope * x * (1 + cubic * x ** 2))) / 2"
    else:
        yield "share", "... F", "(1 + erf(x / np.sqrt(2))) / 2"
    yield "out", "... F", "x * share"


def _gelu_records_backward(values: Values) -> Records:
    yield "d_out", "... F", ""
    slope = "np.exp(-(x ** 2) / 2) / np.sqrt(2 * np.pi)"
    if values["approximate"] == "tanh":
        slope = "2 * share * (1 - share) * slope * (1 + 3 * cubic * x ** 2)"
    yield "d_x", "... F", f"d_out * (share + x * {slope})"


GELU = Pair(
    gelu_steps,
    gelu_steps_backward,
    gelu_steps_backward,
    GeluCache,
    GeluGrads,
    inputs={"x": ""},
    options={"approximate": partial(check_choice, choices=APPROXIMATIONS)},
    computes="share out",
    like="x",
    records=_gelu_records,
    records_backward=_gelu_records_backward,
    kernel=lambda kernels, *given: kernels.gelu(*given),
    kernel_backward=lambda kernels, *given: kernels.gelu_backward(*given),
)


def swiglu_steps(gate: Array, x: Array) -> tuple[Array, Array, Array]:
    """Multiply (..., F) by the SiLU of its gate."""
    # 1. sigmoid, by tanh, which does not overflow
    share = (1 + np.tanh(gate / 2)) / 2

    # 2. SiLU
    silu = gate * share

    # 3. multiply
    out = silu * x
    return share, silu, out


def swiglu_steps_backward(
    d_out: Array, gate: Array, x: Array, share: Array, silu: Array
) -> tuple[Array, Array]:
    """Pull the gradient (..., F) back to gate and x."""
    # 3. out = silu * x
    d_silu = d_out * x
    d_x = d_out * silu

    # 2. silu = gate * share
    d_gate = d_silu * share
    d_share = d_silu * gate

    # 1. share = sigmoid(gate), whose slope is share (1 - share)
    d_gate = d_gate + d_share * share * (1 - share)
    return d_gate, d_x


def swiglu_steps_jvp(
    gate_dot: Array, x_dot: Array, gate: Array, x: Array, share: Array, silu: Array
) -> Array:
    """Push the tangents of gate and x forward (..., F)."""
    # 1. share = sigmoid(gate), whose slope is share (1 - share)
    share_dot = gate_dot * share * (1 - share)

    # 2. silu = gate * share
    silu_dot = gate_dot * share + gate * share_dot

    # 3. out = silu * x
    return silu_dot * x + silu * x_dot


class SwigluCache(NamedTuple):
    """What `swiglu_backward` needs."""

    gate: Array  # (..., F)
    x: Array  # (..., F)
    share: Array  # (..., F)
    silu: Array  # (..., F)
    dtype: np.dtype[Any]
    backend: str


class SwigluGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_gate: Array  # (..., F)
    d_x: Array  # (..., F)


def swiglu_forward(gate: Array, x: Array) -> tuple[Array, SwigluCache]:
    """Let a gate decide how much of each feature passes: ``out = gate * sigmoid(gate) * x``.

    Parameters
    ----------
    gate, x : (..., F) float arrays of one shape
        Two linear maps of the same tokens; `feed_forward_forward` computes them.

    Returns
    -------
    out : (..., F) array
    cache : SwigluCache

    Notes
    -----
    ``gate * sigmoid(gate)`` is SiLU, also called Swish. Source: Shazeer 2020, *GLU variants
    improve transformer*, eq. 6. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = swiglu_forward(np.array([-9.0, 0.0, 9.0]), np.array([2.0, 2.0, 2.0]))
    >>> print(out.round(1))
    [-0.  0. 18.]
    """
    return SWIGLU.forward(gate=gate, x=x)


def swiglu_backward(d_out: Array, cache: SwigluCache) -> SwigluGrads:
    """Pull a gradient back through SwiGLU.

    ``d_gate = d_out * x * (share + gate * share * (1 - share))`` with ``share = sigmoid(gate)``,
    and ``d_x = d_out * gate * share``.

    Examples
    --------
    >>> out, cache = swiglu_forward(np.array([0.0]), np.array([2.0]))
    >>> swiglu_backward(np.array([1.0]), cache)
    SwigluGrads(d_gate=array([1.]), d_x=array([0.]))
    """
    return SWIGLU.backward(d_out, cache)


def swiglu_jvp(tangents: Any, cache: SwigluCache) -> Array:
    """Push tangents through SwiGLU, in the order gate, x; or by name: ``{"gate": gate_dot}``.

    Examples
    --------
    >>> out, cache = swiglu_forward(np.array([0.0]), np.array([2.0]))
    >>> swiglu_jvp({"gate": np.array([1.0])}, cache)
    array([1.])
    """
    return SWIGLU.jvp(tangents, cache)


def _check_gated(values: Values) -> None:
    gate, x = values["gate"], values["x"]
    if gate.shape != x.shape:
        raise ShapeError(f"x: expected {gate.shape}, as gate; got {x.shape}")


SWIGLU = Pair(
    swiglu_steps,
    swiglu_steps_backward,
    swiglu_steps_jvp,
    SwigluCache,
    SwigluGrads,
    inputs={"gate": "", "x": ""},
    check=_check_gated,
    computes="share silu out",
    like="x",
    records=[
        ("gate", "... F", ""),
        ("x", "... F", ""),
        ("share", "... F", "1 / (1 + np.exp(-gate))"),
        ("silu", "... F", "gate * share"),
        ("out", "... F", "silu * x"),
    ],
    records_backward=[
        ("d_out", "... F", ""),
        ("d_gate", "... F", "d_out * x * (share + gate * share * (1 - share))"),
        ("d_x", "... F", "d_out * silu"),
    ],
    kernel=lambda kernels, *given: kernels.swiglu(*given),
    kernel_backward=lambda kernels, *given: kernels.swiglu_backward(*given),
)


def geglu_steps(gate: Array, x: Array, approximate: str) -> tuple[Array, Array, Array]:
    """Multiply (..., F) by the GELU of its gate."""
    # 1. GELU
    share, gelu = gelu_steps(gate, approximate)
    # 2. multiply
    return share, gelu, gelu * x


def geglu_steps_backward(
    d_out: Array, gate: Array, x: Array, share: Array, gelu: Array, approximate: str
) -> tuple[Array, Array]:
    """Pull the gradient (..., F) back to gate and x."""
    # 2. out = gelu * x
    d_gelu = d_out * x
    d_x = d_out * gelu
    # 1. gelu = gate * share
    return gelu_steps_backward(d_gelu, gate, share, approximate), d_x


def geglu_steps_jvp(
    gate_dot: Array, x_dot: Array, gate: Array, x: Array, share: Array, gelu: Array,
    approximate: str,
) -> Array:  # fmt: skip
    """Push the tangents of gate and x forward (..., F)."""
    # 1. gelu = gate * share
    gelu_dot = gelu_steps_backward(gate_dot, gate, share, approximate)
    # 2. out = gelu * x
    return gelu_dot * x + gelu * x_dot


class GegluCache(NamedTuple):
    """What `geglu_backward` needs."""

    gate: Array  # (..., F)
    x: Array  # (..., F)
    share: Array  # (..., F)
    gelu: Array  # (..., F)
    approximate: str
    dtype: np.dtype[Any]


class GegluGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_gate: Array  # (..., F)
    d_x: Array  # (..., F)


def geglu_forward(gate: Array, x: Array, *, approximate: str = "none") -> tuple[Array, GegluCache]:
    """Let a gate decide how much of each feature passes: ``out = gelu(gate) * x``.

    Parameters
    ----------
    gate, x : (..., F) float arrays of one shape
    approximate : {"none", "tanh"}
        As in `gelu_forward`. "tanh" is in Gemma.

    Returns
    -------
    out : (..., F) array
    cache : GegluCache

    Notes
    -----
    Source: Shazeer 2020, *GLU variants improve transformer*, eq. 5.

    Examples
    --------
    >>> out, cache = geglu_forward(np.array([-9.0, 0.0, 9.0]), np.array([2.0, 2.0, 2.0]))
    >>> print(out.round(1))
    [-0.  0. 18.]
    """
    return GEGLU.forward(gate=gate, x=x, approximate=approximate)


def geglu_backward(d_out: Array, cache: GegluCache) -> GegluGrads:
    """Pull a gradient back through GeGLU.

    Examples
    --------
    >>> out, cache = geglu_forward(np.array([0.0]), np.array([2.0]))
    >>> geglu_backward(np.array([1.0]), cache)
    GegluGrads(d_gate=array([1.]), d_x=array([0.]))
    """
    return GEGLU.backward(d_out, cache)


def geglu_jvp(tangents: Any, cache: GegluCache) -> Array:
    """Push tangents through GeGLU, in the order gate, x; or by name: ``{"gate": gate_dot}``.

    Examples
    --------
    >>> out, cache = geglu_forward(np.array([0.0]), np.array([2.0]))
    >>> geglu_jvp({"gate": np.array([1.0])}, cache)
    array([1.])
    """
    return GEGLU.jvp(tangents, cache)


def _geglu_records(values: Values) -> Records:
    yield "gate", "... F", ""
    yield "x", "... F", ""
    share, gelu = (equation for _, _, equation in _gelu_records(values) if equation)
    yield "share", "... F", in_gate(share)
    yield "gelu", "... F", in_gate(gelu)
    yield "out", "... F", "gelu * x"


def _geglu_records_backward(values: Values) -> Records:
    yield "d_out", "... F", ""
    *_, (_, _, equation) = _gelu_records_backward(values)
    yield "d_gate", "... F", in_gate(equation).replace("d_out", "d_out * x")
    yield "d_x", "... F", "d_out * gelu"


def in_gate(equation: str) -> str:
    """Write an equation in x for the gate."""
    return re.sub(r"\bx\b", "gate", equation)


GEGLU = Pair(
    geglu_steps,
    geglu_steps_backward,
    geglu_steps_jvp,
    GegluCache,
    GegluGrads,
    inputs={"gate": "", "x": ""},
    options={"approximate": GELU.options["approximate"]},
    check=_check_gated,
    computes="share gelu out",
    like="x",
    records=_geglu_records,
    records_backward=_geglu_records_backward,
)


def softcap_steps(x: Array, cap: float) -> tuple[Array, Array]:
    """Bound each number smoothly."""
    # 1. squash to -1 ... 1
    squashed = np.tanh(x / cap)
    # 2. stretch
    return squashed, cap * squashed


def softcap_steps_backward(d_out: Array, squashed: Array) -> Array:
    """Pull the gradient back to x: beyond the bound, hardly anything passes."""
    # 2. and 1. out = cap * tanh(x / cap), whose slope is 1 - tanh^2: cap cancels
    return d_out * (1 - squashed**2)


class SoftcapCache(NamedTuple):
    """What `softcap_backward` needs."""

    squashed: Array
    dtype: np.dtype[Any]


class SoftcapGrads(NamedTuple):
    """The gradient of the one input."""

    d_x: Array


def softcap_forward(x: Array, *, cap: float) -> tuple[Array, SoftcapCache]:
    """Bound each number smoothly: ``out = cap * tanh(x / cap)``.

    Parameters
    ----------
    x : float array of any shape
    cap : float
        > 0; every output is between ``-cap`` and ``cap``.

    Returns
    -------
    out : array like `x`
    cache : SoftcapCache

    Notes
    -----
    Numbers much smaller than `cap` stay nearly as they are. Source: Gemma Team 2024, *Gemma 2*,
    section 2, for the scores of attention (the option `softcap`) and of the next token.

    Examples
    --------
    >>> softcap_forward(np.array([0.1, 30.0, 1000.0]), cap=30.0)[0].round(3)
    array([ 0.1  , 22.848, 30.   ])
    """
    return SOFTCAP.forward(x=x, cap=cap)


def softcap_backward(d_out: Array, cache: SoftcapCache) -> SoftcapGrads:
    """Pull a gradient back: ``d_x = d_out * (1 - tanh(x / cap)^2)``.

    Examples
    --------
    >>> out, cache = softcap_forward(np.array([0.0, 1000.0]), cap=30.0)
    >>> softcap_backward(np.ones(2), cache).d_x
    array([1., 0.])
    """
    return SOFTCAP.backward(d_out, cache)


def softcap_jvp(x_dot: Array, cache: SoftcapCache) -> Array:
    """Push a tangent through: ``out_dot = x_dot * (1 - tanh(x / cap)^2)``.

    Examples
    --------
    >>> out, cache = softcap_forward(np.array([0.0, 1000.0]), cap=30.0)
    >>> softcap_jvp(np.ones(2), cache)
    array([1., 0.])
    """
    return SOFTCAP.jvp(x_dot, cache)


SOFTCAP = Pair(
    softcap_steps,
    softcap_steps_backward,
    softcap_steps_backward,
    SoftcapCache,
    SoftcapGrads,
    inputs={"x": ""},
    options={"cap": partial(check_number, positive=True)},
    computes="squashed out",
    like="squashed",
    shapes=lambda cache: {"x": cache.squashed.shape},
    records=[
        ("x", "... F", ""),
        ("cap", ""),
        ("squashed", "... F", "np.tanh(x / cap)"),
        ("out", "... F", "cap * squashed"),
    ],
    records_backward=[("d_out", "... F", ""), ("d_x", "... F", "d_out * (1 - squashed ** 2)")],
)


class Softcap(Layer):
    """`softcap_forward` with its bound.

    Parameters
    ----------
    cap : float

    Examples
    --------
    >>> Softcap(2.0)(np.array([-1000.0, 0.0]))
    array([-2.,  0.])
    """

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = check_number("cap", cap, positive=True)

    def forward(self, x: Array) -> Array:
        """Bound each number: (...) -> (...)."""
        out, self._cache = softcap_forward(x, cap=self.cap)
        return out

    def backward(self, d_out: Array) -> Array:
        """Return the gradient of `x`."""
        return softcap_backward(d_out, self.forward_cache).d_x


ACTIVATIONS: dict[str, tuple[Any, Any, Any]] = {
    "relu": (relu_forward, relu_jvp, relu_backward),
    "gelu": (gelu_forward, gelu_jvp, gelu_backward),
    "gelu_tanh": (partial(gelu_forward, approximate="tanh"), gelu_jvp, gelu_backward),
    "swiglu": (swiglu_forward, swiglu_jvp, swiglu_backward),
    "geglu_tanh": (partial(geglu_forward, approximate="tanh"), geglu_jvp, geglu_backward),
}
GATED = ("swiglu", "geglu_tanh")  # those of two arrays


class Activation(Layer):
    """An activation function, applied to each number separately.

    Parameters
    ----------
    activation : {"relu", "gelu", "gelu_tanh"}
    backend : {"numpy", "loops", "numba"}, optional

    Examples
    --------
    >>> import numpy as np
    >>> Activation("relu")(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    def __init__(self, activation: str = "gelu", *, backend: str | None = None) -> None:
        super().__init__()
        of_one_array = [name for name in ACTIVATIONS if name not in GATED]
        self.activation = check_choice("activation", activation, of_one_array)
        self.backend = check_backend(backend)

    def forward(self, x: Array) -> Array:
        """Apply the function: (...) -> (...)."""
        activate, *_ = ACTIVATIONS[self.activation]
        out, self._cache = activate(x)
        return out

    def backward(self, d_out: Array) -> Array:
        """Return the gradient of `x`."""
        *_, activate_backward = ACTIVATIONS[self.activation]
        return activate_backward(d_out, self.forward_cache).d_x
