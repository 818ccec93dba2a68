"""The output gate: a token decides how much of what its heads found goes on."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.pair import Pair
from mha_numpy.dtypes import Array


def output_gate_steps(merged: Array, gate_logits: Array) -> tuple[Array, Array]:
    """Gate each number of (B, T_q, H*d_v), or each head if the logits are (B, T_q, H)."""
    # 1. sigmoid, by tanh, which does not overflow
    gate = (1 + np.tanh(gate_logits / 2)) / 2
    # 2. multiply, all d_v numbers of a head by one gate if each head has only one
    spread = merged.shape[-1] // gate.shape[-1]
    return gate, merged * gate.repeat(spread, axis=-1)


def output_gate_steps_backward(d_out: Array, merged: Array, gate: Array) -> tuple[Array, Array]:
    """Pull the gradient back to the merged heads, and to the logits."""
    # 2. out = merged * gate: a gate collects from all numbers that it multiplied
    spread = merged.shape[-1] // gate.shape[-1]
    d_merged = d_out * gate.repeat(spread, axis=-1)
    d_gate = (d_out * merged).reshape(*gate.shape, spread).sum(axis=-1)
    # 1. gate = sigmoid(gate_logits), whose slope is gate (1 - gate)
    d_gate_logits = d_gate * gate * (1 - gate)
    return d_merged, d_gate_logits


def output_gate_steps_jvp(
    merged_dot: Array, gate_logits_dot: Array, merged: Array, gate: Array
) -> Array:
    """Push the tangents of the merged heads and the logits forward."""
    # 1. gate = sigmoid(gate_logits)
    gate_dot = gate_logits_dot * gate * (1 - gate)
    # 2. out = merged * gate
    spread = merged.shape[-1] // gate.shape[-1]
    return merged_dot * gate.repeat(spread, axis=-1) + merged * gate_dot.repeat(spread, axis=-1)


class OutputGateCache(NamedTuple):
    """What backward needs."""

    merged: Array  # (B, T_q, H*d_v)
    gate: Array  # (B, T_q, H*d_v) or (B, T_q, H)
    dtype: np.dtype[Any]


class OutputGateGrads(NamedTuple):
    """Gradients, in the order of the inputs."""

    d_merged: Array
    d_gate_logits: Array


OUTPUT_GATE = Pair(
    output_gate_steps,
    output_gate_steps_backward,
    output_gate_steps_jvp,
    OutputGateCache,
    OutputGateGrads,
    inputs={"merged": "B T_q H*d_v", "gate_logits": "B T_q gates"},
    computes="gate out",
    like="merged",
    shapes=lambda cache: {"merged": cache.merged.shape, "gate_logits": cache.gate.shape},
)
