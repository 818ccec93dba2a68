"""SwiGLU: one half of the features gates the other; forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_type
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import is_watched, step


class SwigluSteps(NamedTuple):
    """What forward's steps compute."""

    share: Array  # (..., F): sigmoid of the gate
    silu: Array  # (..., F)
    out: Array  # (..., F)


def swiglu_steps(gate: Array, x: Array) -> SwigluSteps:
    """Multiply (..., F) by the SiLU of its gate."""
    # 1. sigmoid, by tanh, which does not overflow
    share = (1 + np.tanh(gate / 2)) / 2

    # 2. SiLU
    silu = gate * share

    # 3. multiply
    out = silu * x
    return SwigluSteps(share, silu, out)


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

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        An argument is not a float array, or the shapes differ.

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
    dtype, (gate, x) = as_computed(gate=gate, x=x)
    if gate.shape != x.shape:
        raise ShapeError(f"x: expected {gate.shape}, as gate; got {x.shape}")
    kernels = find_kernels(ONE_PASS_KERNELS, gate, x)
    share, silu, out = (swiglu_steps if kernels is None else kernels.swiglu)(gate, x)
    if is_watched():
        axes = axes_of(x, "F")
        step("gate", gate, axes)
        step("x", x, axes)
        step("share", share, axes, "1 / (1 + np.exp(-gate))")
        step("silu", silu, axes, "gate * share")
        step("out", out, axes, "silu * x")
    cache = SwigluCache(gate, x, share, silu, dtype, chosen_backend())
    return out.astype(dtype, copy=False), cache


def swiglu_backward(d_out: Array, cache: SwigluCache) -> SwigluGrads:
    """Pull a gradient back through SwiGLU.

    ``d_gate = d_out * x * (share + gate * share * (1 - share))`` with ``share = sigmoid(gate)``,
    and ``d_x = d_out * gate * share``.

    Parameters
    ----------
    d_out : (..., F) float array
    cache : SwigluCache

    Returns
    -------
    SwigluGrads
        ``d_gate`` and ``d_x``.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output; `cache` is not forward's.

    Notes
    -----
    Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> out, cache = swiglu_forward(np.array([0.0]), np.array([2.0]))
    >>> swiglu_backward(np.array([1.0]), cache)
    SwigluGrads(d_gate=array([1.]), d_x=array([0.]))
    """
    check_type("cache", cache, SwigluCache, "swiglu_forward")
    gate, x, share, silu, dtype, backend = cache
    d_out = as_gradient(d_out, x.shape, x.dtype)
    kernels = find_kernels(ONE_PASS_KERNELS, d_out, x, backend=backend)
    steps_backward = swiglu_steps_backward if kernels is None else kernels.swiglu_backward
    d_gate, d_x = steps_backward(d_out, gate, x, share, silu)
    if is_watched():
        axes = axes_of(x, "F")
        step("d_out", d_out, axes)
        step("d_gate", d_gate, axes, "d_out * x * (share + gate * share * (1 - share))")
        step("d_x", d_x, axes, "d_out * silu")
    return SwigluGrads(d_gate.astype(dtype, copy=False), d_x.astype(dtype, copy=False))
