"""Second derivatives of attention: how fast its gradients move while its inputs do.

Backward is a function like any other: it has a forward mode, `attention_backward_jvp`, and a
backward, `attention_double_backward`. The second follows from the first. Backward's
gradients are slopes of one number, ``sum(out * d_out) + sum(lse * d_lse)``, and the matrix of its
second derivatives is symmetric, so multiplying it from the left or from the right gives the same
result.
"""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_type
from mha_numpy.core.attention import (
    AttentionCache,
    AttentionGrads,
    attention_steps_backward,
    gate_heads_backward,
    sink_weight,
)
from mha_numpy.core.attention_jvp import (
    MOVING,
    AttentionStepsJvp,
    attention_jvp,
    attention_steps_jvp,
    attention_tangents,
    gate_heads_jvp,
)
from mha_numpy.core.attention_recording import AttentionCells, AttentionStepsBackward
from mha_numpy.core.grouped import shared_matmul, summed_matmul
from mha_numpy.core.masks import only_visible
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.pair import as_gradient
from mha_numpy.core.shapes import sum_to_shape
from mha_numpy.core.tangents import by_name
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ShapeError


class OfHeads(NamedTuple):
    """What comes back to step 6 and to lse, and the tangents of both."""

    d_heads: Array  # (B, H, T_q, d_v)
    d_lse: Array  # (B, H, T_q)
    d_heads_dot: Array
    d_lse_dot: Array


def attention_steps_backward_jvp(
    dots: dict[str, Any], forward: AttentionStepsJvp, backward: AttentionStepsBackward,
    of_heads: OfHeads, lse: Array, cells: AttentionCells, inputs: AttentionInputs,
) -> dict[str, Array | None]:  # fmt: skip
    """Push tangents through backward's steps 6 to 1, using forward's tangents."""
    q, k, v, scale, softcap = inputs.q, inputs.k, inputs.v, inputs.scale, inputs.softcap
    visible, capped, weights, dropped = cells
    visible_T = None if visible is None else visible.swapaxes(-1, -2)
    leading = k.shape[:-2]
    d_heads, d_lse, d_heads_dot, d_lse_dot = of_heads

    # 6. d_dropped = d_heads @ v^T, d_v = dropped^T @ d_heads
    by_d_heads = shared_matmul(d_heads_dot, v.swapaxes(-1, -2))
    by_v = shared_matmul(d_heads, dots["v"].swapaxes(-1, -2))
    d_dropped_dot = only_visible(by_d_heads + by_v, visible)
    dropped_dot_T, dropped_T = forward.dropped_dot.swapaxes(-1, -2), dropped.swapaxes(-1, -2)
    by_dropped = summed_matmul(dropped_dot_T, d_heads, leading, visible_T)
    d_v_dot = by_dropped + summed_matmul(dropped_T, d_heads_dot, leading, visible_T)

    # 5. d_weights = d_dropped * dropout_mask
    has_dropout = inputs.dropout_mask is not None
    d_weights_dot = d_dropped_dot * inputs.dropout_mask if has_dropout else d_dropped_dot

    # 4. d_biased = weights * (d_weights - row_mean), row_mean = sum_j weights_j d_weights_j - d_lse
    d_weights = only_visible(backward.d_weights, visible)
    d_weights_dot = only_visible(d_weights_dot, visible)
    row_mean = (weights * d_weights).sum(axis=-1) - d_lse  # (B, H, T_q)
    moved = forward.weights_dot * d_weights + weights * d_weights_dot
    row_mean_dot = moved.sum(axis=-1) - d_lse_dot
    by_weights = forward.weights_dot * (d_weights - row_mean[..., None])
    d_biased_dot = by_weights + weights * (d_weights_dot - row_mean_dot[..., None])
    d_biased_dot = only_visible(d_biased_dot, visible)

    # 4. d_sink = -sum_i sink_weight_i row_mean_i
    d_sink_dot = None
    if inputs.sink is not None:
        weight = sink_weight(inputs.sink, lse)
        weight_dot = weight * (dots["sink"][..., None] - forward.lse_dot)
        d_sinks_dot = -(weight_dot * row_mean + weight * row_mean_dot).sum(axis=-1)
        d_sink_dot = sum_to_shape(d_sinks_dot, inputs.sink.shape)

    # 3. d_bias = the sum of d_biased over the cells that share a number
    has_bias = inputs.bias is not None
    d_bias_dot = sum_to_shape(d_biased_dot, dots["bias"].shape) if has_bias else None

    # 2. d_scores = d_capped * slope, slope = 1 - (capped / softcap)^2
    d_scores_dot = d_biased_dot
    if softcap is not None and capped is not None:
        slope, slope_dot = (
            1 - (capped / softcap) ** 2,
            -2 * capped * forward.capped_dot / softcap**2,
        )
        d_scores_dot = only_visible(d_biased_dot * slope + backward.d_biased * slope_dot, visible)

    # 1. d_q = scale * d_scores @ k, d_k = scale * d_scores^T @ q
    d_scores_dot_T, d_scores_T = (x.swapaxes(-1, -2) for x in (d_scores_dot, backward.d_scores))
    by_scores = shared_matmul(d_scores_dot, k, visible)
    d_q_dot = scale * (by_scores + shared_matmul(backward.d_scores, dots["k"], visible))
    by_scores = summed_matmul(d_scores_dot_T, q, leading, visible_T)
    d_k_dot = scale * (by_scores + summed_matmul(d_scores_T, dots["q"], leading, visible_T))
    return {
        "d_q": d_q_dot, "d_k": d_k_dot, "d_v": d_v_dot, "d_bias": d_bias_dot, "d_sink": d_sink_dot
    }  # fmt: skip


def attention_backward_jvp(
    tangents: Any,
    d_out: Array,
    cache: AttentionCache,
    *,
    d_lse: Array | None = None,
    d_out_dot: Array | None = None,
    d_lse_dot: Array | None = None,
) -> AttentionGrads:
    """Push tangents through backward: how fast the gradients move while the inputs do.

    With `d_out` and `d_lse` at rest this is the Hessian of ``sum(out * d_out) + sum(lse * d_lse)``
    times a vector. The whole matrix, with a row and a column for each number of the inputs, is
    never made.

    Parameters
    ----------
    tangents : tuple or dict
        Of the inputs, as `attention_jvp` takes them: ``{"q": q_dot}``.
    d_out : (B, H, T_q, d_v) float array, or of lower rank like the output
        What backward got.
    cache : AttentionCache
        From any backend's forward; the equations compute.
    d_lse : (B, H, T_q) float array, optional
        What backward got for ``cache.lse``.
    d_out_dot, d_lse_dot : float arrays, optional
        How fast `d_out` and `d_lse` move themselves; default: not at all.

    Returns
    -------
    AttentionGrads
        The tangent of each gradient, None where the input was None.

    Notes
    -----
    It takes 16 products of matrices, backward 4, and keeps cells, (B, H, T_q, T_k); after a kernel
    three more, which compute the cells. Source:
    Pearlmutter 1994, *Fast exact multiplication by the Hessian*. Derivation:
    ``docs/forward-mode.md``.

    Examples
    --------
    >>> from mha_numpy import attention_forward
    >>> q, k, v = np.zeros((1, 1)), np.array([[0.0], [1.0]]), np.array([[0.0], [8.0]])
    >>> out, cache = attention_forward(q, k, v, scale=1.0)
    >>> moved = attention_backward_jvp({"k": np.ones((2, 1))}, np.ones((1, 1)), cache)
    >>> moved.d_q, moved.d_v.ravel()  # all keys shift: no weight moves
    (array([[0.]]), array([0., 0.]))
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    inputs, heads, lse = cache.inputs, cache.heads, cache.lse
    dots = attention_tangents(tangents, inputs)
    nothing = np.zeros_like(lse)
    d_gated = as_gradient("d_out", d_out, heads.shape, heads.dtype)
    d_gated_dot = np.zeros_like(d_gated)
    if d_out_dot is not None:
        d_gated_dot = as_gradient("d_out_dot", d_out_dot, heads.shape, heads.dtype)
    d_lse, d_lse_dot = (
        nothing if x is None else as_gradient(name, x, lse.shape, lse.dtype)
        for name, x in (("d_lse", d_lse), ("d_lse_dot", d_lse_dot))
    )
    cells = cache.find_cells()
    if cache.cells is None:  # a kernel's heads are rounded in other ways
        heads = shared_matmul(cells.dropped, inputs.v, cells.visible)
    forward = attention_steps_jvp(dots, cells, lse, inputs)

    # 7. d_heads = d_gated * head_gate, d_head_gate = sum(d_gated * heads)
    d_heads, _ = gate_heads_backward(d_gated, heads, inputs.head_gate, lse)
    # the gate multiplies gradients as it multiplies heads, so its forward mode serves here, too
    d_heads_dot = gate_heads_jvp(d_gated_dot, dots["head_gate"], d_gated, inputs.head_gate, lse)
    _, by_d_gated = gate_heads_backward(d_gated_dot, heads, inputs.head_gate, lse)
    _, by_heads = gate_heads_backward(d_gated, forward.heads_dot, inputs.head_gate, lse)

    backward = attention_steps_backward(d_heads, d_lse, cells, inputs)
    of_heads = OfHeads(d_heads, d_lse, d_heads_dot, d_lse_dot)
    moved = attention_steps_backward_jvp(dots, forward, backward, of_heads, lse, cells, inputs)
    moved["d_head_gate"] = None if by_heads is None else by_d_gated + by_heads
    in_order = [moved[name] for name in AttentionGrads._fields]
    return AttentionGrads._make(
        None if x is None else x.astype(inputs.dtype, copy=False) for x in in_order
    )


class AttentionDoubleGrads(NamedTuple):
    """Gradients of a function of backward's results, in the order of backward's inputs."""

    d_d_out: Array  # (B, H, T_q, d_v): of what backward got
    d_d_lse: Array  # (B, H, T_q)
    d_q: Array  # and so on: of forward's inputs, each in its shape
    d_k: Array
    d_v: Array
    d_bias: Array | None
    d_sink: Array | None
    d_head_gate: Array | None


def attention_double_backward(
    d_grads: Any, d_out: Array, cache: AttentionCache, *, d_lse: Array | None = None
) -> AttentionDoubleGrads:
    """Backpropagate through the backward pass, for losses that contain gradients.

    A penalty on the size of a gradient is such a loss: its slope along each gradient comes in as
    `d_grads`, and its slopes along `d_out` and along attention's inputs come out.

    Parameters
    ----------
    d_grads : tuple or dict
        Gradients of the fields of `AttentionGrads`, in their order, or by the names of the inputs:
        ``{"q": ...}`` is that of ``d_q``. None, or a missing one, was not used.
    d_out : (B, H, T_q, d_v) float array, or of lower rank like the output
        What backward got.
    cache : AttentionCache
        From any backend's forward; the equations compute.
    d_lse : (B, H, T_q) float array, optional
        What backward got for ``cache.lse``.

    Returns
    -------
    AttentionDoubleGrads

    Notes
    -----
    Backward is linear in `d_out` and `d_lse`, so their gradients are forward mode's answer to
    `d_grads`; the rest is a product with a Hessian, which is symmetric. Hidden cells give exactly
    0, and so does v with itself, because the output is linear in v. Derivation:
    ``docs/forward-mode.md``.

    Examples
    --------
    >>> from mha_numpy import attention_forward
    >>> q, k, v = np.zeros((1, 1)), np.array([[0.0], [1.0]]), np.array([[0.0], [8.0]])
    >>> out, cache = attention_forward(q, k, v, scale=1.0)
    >>> double = attention_double_backward({"v": np.ones((2, 1))}, np.ones((1, 1)), cache)
    >>> double.d_d_out, double.d_v.ravel()  # d_v = weights^T d_out: no v in it
    (array([[1.]]), array([0., 0.]))
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    moving = by_name(d_grads, MOVING, called="d_grads")
    for name, gradient in moving.items():
        of, called = getattr(cache.inputs, name), f"d_grads[{name!r}]"
        if gradient is not None and as_float_array(called, gradient).shape != np.shape(of):
            expected = "none, as forward had none" if of is None else f"{of.shape}, as d_{name}"
            raise ShapeError(f"{called}: expected {expected}; got {np.shape(gradient)}")
    d_d_out, d_d_lse = attention_jvp(moving, cache, backend="numpy")
    return AttentionDoubleGrads(
        d_d_out, d_d_lse, *attention_backward_jvp(moving, d_out, cache, d_lse=d_lse)
    )
