"""Forward mode of attention: how fast its output moves while its inputs do.

The steps have forward's numbers, in forward's order, and each restates the line it differentiates.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import chosen_backend
from mha_numpy.checks import check_type
from mha_numpy.core.attention import AttentionCache, sink_weight
from mha_numpy.core.attention_recording import AttentionCells, record_attention_jvp
from mha_numpy.core.grouped import shared_matmul
from mha_numpy.core.kernel_calls import find_attention_kernels, kernel_jvp
from mha_numpy.core.masks import only_visible
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.softmax import softmax_steps_jvp
from mha_numpy.core.tangents import shape_of, tangents_of
from mha_numpy.dtypes import Array
from mha_numpy.steps import is_watched

MOVING = ("q", "k", "v", "bias", "sink", "head_gate")  # the inputs that have tangents


class AttentionStepsJvp(NamedTuple):
    """The tangents of arrays that steps 1 to 6 compute, each like its array."""

    scores_dot: Array  # (B, H, T_q, T_k), and so on to dropped_dot
    capped_dot: Array
    biased_dot: Array
    weights_dot: Array
    dropped_dot: Array
    heads_dot: Array  # (B, H, T_q, d_v)
    lse_dot: Array  # (B, H, T_q)


@np.errstate(invalid="ignore")  # inf - inf: NaN says it, where somebody sees the cell
def attention_steps_jvp(
    dots: dict[str, Any], cells: AttentionCells, lse: Array, inputs: AttentionInputs
) -> AttentionStepsJvp:
    """Push tangents through steps 1 to 6."""
    q, k, v, scale = inputs.q, inputs.k, inputs.v, inputs.scale
    visible, capped, weights, dropped = cells

    # 1. scores = scale * q @ k^T: what q moves, and what k moves
    by_q = shared_matmul(dots["q"], k.swapaxes(-1, -2))
    by_k = shared_matmul(q, dots["k"].swapaxes(-1, -2))
    scores_dot = only_visible(scale * (by_q + by_k), visible)  # (B, H, T_q, T_k)

    # 2. capped = softcap * tanh(scores / softcap)
    capped_dot = scores_dot
    if inputs.softcap is not None and capped is not None:
        capped_dot = only_visible(scores_dot * (1 - (capped / inputs.softcap) ** 2), visible)

    # 3. biased = capped + bias
    biased_dot = capped_dot if dots["bias"] is None else capped_dot + dots["bias"]

    # 4. weights, lse = softmax(biased); the sink is one more score: it changes lse and the weights
    # of the keys
    weights_dot, lse_dot = softmax_steps_jvp(biased_dot, weights, visible)
    if inputs.sink is not None:
        by_sink = sink_weight(inputs.sink, lse) * dots["sink"][..., None]  # (B, H, T_q)
        lse_dot = lse_dot + by_sink
        weights_dot = only_visible(weights_dot - weights * by_sink[..., None], visible)

    # 5. dropped = weights * dropout_mask
    dropped_dot = weights_dot
    if inputs.dropout_mask is not None:
        dropped_dot = only_visible(weights_dot * inputs.dropout_mask, visible)

    # 6. heads = dropped @ v
    by_weights = shared_matmul(dropped_dot, v, visible)
    heads_dot = by_weights + shared_matmul(dropped, dots["v"], visible)  # (B, H, T_q, d_v)
    return AttentionStepsJvp(
        scores_dot, capped_dot, biased_dot, weights_dot, dropped_dot, heads_dot, lse_dot
    )


def attention_tangents(tangents: Any, inputs: AttentionInputs) -> dict[str, Any]:
    """Return the tangent of each input by name, None for one that was not passed."""
    shapes = {name: shape_of(getattr(inputs, name)) for name in MOVING}
    dots = tangents_of(tangents, shapes, inputs.q.dtype)
    if inputs.sink is not None and (inputs.sink == -np.inf).any():  # its tangent has no effect
        dots["sink"] = np.where(inputs.sink == -np.inf, 0, dots["sink"])
    return dots


def gate_heads_jvp(
    heads_dot: Array, gate_dot: Array | None, heads: Array, head_gate: Array | None, lse: Array
) -> Array:
    """Push tangents through step 7."""
    # 7. gated = heads * head_gate; a row that sees nothing stays 0
    if head_gate is None or gate_dot is None:
        return heads_dot
    sees_any = (lse != -np.inf)[..., None]  # (B, H, T_q, 1)
    moved = heads_dot * head_gate[..., None, None] + heads * gate_dot[..., None, None]
    return only_visible(moved, sees_any)


class AttentionTangents(NamedTuple):
    """Tangents of what attention returns."""

    out_dot: Array  # (B, H, T_q, d_v)
    lse_dot: Array  # (B, H, T_q): of ``cache.lse``


def attention_jvp(
    tangents: Any, cache: AttentionCache, *, backend: str | None = None
) -> AttentionTangents:
    """Push tangents through attention: how fast the output moves while the inputs do.

    A backward goes from one output to all inputs, so it gives a row of the Jacobian; this goes from
    one direction of the inputs to all outputs, a column.

    Parameters
    ----------
    tangents : tuple or dict
        ``(q_dot, k_dot, v_dot, bias_dot, sink_dot, head_gate_dot)``, or by the names of the inputs:
        ``{"q": q_dot}``. Each has the shape of its input. An input whose tangent is None or missing
        does not move.
    cache : AttentionCache
        From any backend's forward.
    backend : {"numpy", "loops", "numba"}, optional
        The backend that computes; default that of forward.

    Returns
    -------
    AttentionTangents
        ``out_dot`` and ``lse_dot``. A row that sees nothing does not move.

    Notes
    -----
    With a kernel it takes five products of the size of forward's two, and memory that grows with T.
    Its rounding errors are relative to lse_dot: where a row has one weight near 1, so that out_dot
    is nearly 0, the equations keep more digits.
    Without sink and head gate ``out_dot = dropped_dot v + dropped v_dot`` with
    ``weights_dot = weights (biased_dot - lse_dot)``, ``lse_dot = sum_j weights_j biased_dot_j`` and
    ``scores_dot = scale (q_dot k^T + q k_dot^T)``. Source: Griewank and Walther 2008, *Evaluating
    derivatives*, section 3.1. Derivation: ``docs/forward-mode.md``.

    Examples
    --------
    >>> from mha_numpy import attention_forward
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[0.0], [8.0]])
    >>> out, cache = attention_forward(q, k, v, scale=1.0)
    >>> attention_jvp({"q": np.array([[0.0, 1.0]])}, cache).out_dot  # towards the second key
    array([[2.]])
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    inputs, heads, lse, cells, own_backend = cache
    backend = own_backend if backend is None else chosen_backend(backend)
    dots = attention_tangents(tangents, inputs)
    kernels, steps = find_attention_kernels(inputs, backend), None
    if kernels is None:
        steps = attention_steps_jvp(dots, cache.find_cells(), lse, inputs)
        heads_dot, lse_dot = steps.heads_dot, steps.lse_dot
    else:
        if cells is not None:  # the equations' output is its caller's to change: mix once more
            heads = shared_matmul(cells.dropped, inputs.v, cells.visible)
        heads_dot, lse_dot = kernel_jvp(kernels, dots, heads, lse, inputs)
    out_dot = gate_heads_jvp(heads_dot, dots["head_gate"], heads, inputs.head_gate, lse)
    if steps is not None and is_watched():
        of_inputs = {f"{name}_dot": dot for name, dot in dots.items()}
        tangents = {**of_inputs, **steps._asdict(), "gated_dot": out_dot}
        record_attention_jvp(inputs, cache.find_cells().visible, tangents)
    return AttentionTangents._make(
        dot.astype(inputs.dtype, copy=False) for dot in (out_dot, lse_dot)
    )
