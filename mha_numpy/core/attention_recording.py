"""The recorder's view of attention: name, axes and equation of every step that really ran.

An option that was not passed has no step. Equations are NumPy expressions over the names of earlier
steps, constants and axes; tests evaluate them. They hold for finite arrays, because only
`only_visible` keeps NaN and inf in hidden cells from spreading.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.core.options import DEFAULTS, AttentionInputs
from mha_numpy.core.pair import Records, Values, record
from mha_numpy.core.shapes import broadcast_axes, stretched_axes
from mha_numpy.core.softmax import D_SCORES, softmax_records
from mha_numpy.dtypes import Array
from mha_numpy.steps import constant, renamed, step

OF_HEADS = {1: "H", 2: "B H"}  # by rank


class AttentionSteps(NamedTuple):
    """The results of steps 1 to 6; a step without its option passes on the previous result."""

    visible: Array | None  # broadcasts to the cells; None where nothing is hidden
    scores: Array  # (B, H, T_q, T_k), and so on to dropped
    capped: Array
    biased: Array
    masked: Array
    weights: Array
    dropped: Array
    heads: Array  # (B, H, T_q, d_v)
    lse: Array  # (B, H, T_q): log of each row's sum of e^scores; -inf where it sees nothing


class AttentionCells(NamedTuple):
    """The arrays of cells that the equations keep for backward."""

    visible: Array | None
    capped: Array | None  # (B, H, T_q, T_k): the scores after softcap; None without one
    weights: Array  # (B, H, T_q, T_k)
    dropped: Array  # (B, H, T_q, T_k): the weights after dropout


class AttentionStepsBackward(NamedTuple):
    """The gradients of the arrays that steps 6 to 1 read, each like its array."""

    d_dropped: Array
    d_weights: Array
    d_biased: Array
    d_scores: Array
    d_q: Array
    d_k: Array
    d_v: Array
    d_bias: Array | None


class _Names(NamedTuple):
    """The name of the cells after each step: the same as before it if its option was not passed."""

    capped: str
    biased: str
    dropped: str
    shared: str  # the suffix of a key or value that serves a group of query heads


def _names(inputs: AttentionInputs) -> _Names:
    capped = "scores" if inputs.softcap is None else "capped"
    biased = capped if inputs.bias is None else "biased"
    dropped = "weights" if inputs.dropout_mask is None else "dropped"
    return _Names(capped, biased, dropped, ".repeat(G, axis=1)" if _is_grouped(inputs) else "")


def _is_grouped(inputs: AttentionInputs) -> bool:
    return inputs.q.shape[:-2] != inputs.k.shape[:-2]


def _summed(product: str, inputs: AttentionInputs, axes: str) -> str:
    """Write the sum over each group of a product by query head."""
    if not _is_grouped(inputs):
        return product
    T_k, d = axes.split()[-2:]
    return f"({product}).reshape(B, H_kv, G, {T_k}, {d}).sum(axis=2)"


def record_attention(inputs: AttentionInputs, steps: AttentionSteps, gated: Array) -> None:
    """Record the steps of attention."""
    values = {**DEFAULTS, **vars(inputs), **steps._asdict(), "gated": gated}
    record(values, partial(_records, inputs))


def _records(inputs: AttentionInputs, values: Values) -> Records:
    axes, names = inputs.axes, _names(inputs)
    yield "q", axes.q, ""
    yield "k", axes.k, ""
    yield "v", axes.v, ""
    yield "scale", ""
    if names.shared:
        values["G"] = inputs.q.shape[1] // inputs.k.shape[1]
        yield "G", ""
    # 1. match
    yield "scores", axes.cells, f"scale * q @ k{names.shared}.swapaxes(-1, -2)"
    # 2. softcap
    if inputs.softcap is not None:
        yield "softcap", ""
        yield "capped", axes.cells, "softcap * np.tanh(scores / softcap)"
    # 3. bias
    if inputs.bias is not None:
        yield "bias", _cell_axes(inputs.bias, inputs), ""
        yield "biased", axes.cells, f"{names.capped} + bias"
    # 4. mask and softmax
    yield from _visible_records(inputs, values)
    visible, masked = values["visible"], values["masked"]
    if inputs.sink is not None:
        yield "sink", OF_HEADS[inputs.sink.ndim], ""
        values["largest"] = np.maximum(
            masked.max(axis=-1, keepdims=True), inputs.sink[..., None, None]
        )
    yield from softmax_records(names.biased, "visible", visible, masked, axes.cells, inputs.sink)
    # 5. dropout
    if inputs.dropout_mask is not None:
        yield "dropout_mask", _cell_axes(inputs.dropout_mask, inputs), ""
        yield "dropped", axes.cells, "weights * dropout_mask"
    # 6. mix
    yield "heads", axes.heads, f"{names.dropped} @ v{names.shared}"
    # 7. head gate
    if inputs.head_gate is not None:
        yield "head_gate", OF_HEADS[inputs.head_gate.ndim], ""
        yield "gated", axes.heads, "heads * head_gate[..., None, None]"


def _cell_axes(array: Array, inputs: AttentionInputs) -> str:
    return broadcast_axes(array.shape, inputs.axes.cells, inputs.cells_shape)


def _reshape(array: Array, inputs: AttentionInputs) -> str:
    return f".reshape({', '.join(_cell_axes(array, inputs).split()) or '()'})"


def _visible_records(inputs: AttentionInputs, values: Values) -> Records:
    """Record which keys each query sees, and what decides it."""
    visible = values["visible"]
    if visible is None:
        return
    reasons, rank = [], 0
    if inputs.mask is not None:
        yield "mask", _cell_axes(inputs.mask, inputs), ""
        reasons.append("mask")
        rank = inputs.mask.ndim
    if inputs.bias is not None and np.isneginf(inputs.bias.real).any():
        reasons.append("~np.isneginf(bias)")
        rank = max(rank, inputs.bias.ndim)
    if inputs.window is not None:
        offset = inputs.q_offset
        query = "np.arange(T_q)[:, None]"
        if offset.any() or offset.ndim:
            ones = (1,) * (inputs.q.ndim - 1) * offset.ndim  # none for one offset
            values["q_offset"] = offset.reshape(offset.shape + ones)
            yield "q_offset", " ".join(["B", *"1" * len(ones)]) if ones else ""
            query += " + q_offset"
        values["left"], values["right"] = left, right = inputs.window
        if left is not None:
            yield "left", ""
            reasons.append(f"np.arange(T_k) >= {query} - left")
        if right is not None:
            yield "right", ""
            reasons.append(f"np.arange(T_k) <= {query}{' + right' if right else ''}")
        rank = max(rank, inputs.q.ndim if offset.ndim else 2)
    equation = " & ".join(reasons if len(reasons) < 2 else (f"({reason})" for reason in reasons))
    if rank < visible.ndim:
        equation = f"({equation}){_reshape(visible, inputs)}"
    yield "visible", _cell_axes(visible, inputs), equation


def record_attention_backward(
    inputs: AttentionInputs, visible: Array | None, gradients: Values
) -> None:
    """Record the steps of attention's backward."""
    values = {**gradients, "d_capped": gradients["d_biased"]}
    record(values, _records_backward(inputs, visible, has_d_lse=values["d_lse"] is not None))


def _records_backward(
    inputs: AttentionInputs, visible: Array | None, *, has_d_lse: bool
) -> Records:
    axes, names = inputs.axes, _names(inputs)
    # 7. gated = heads * head_gate
    if inputs.head_gate is None:
        yield "d_heads", axes.heads, ""
    else:
        yield "d_gated", axes.heads, ""
        yield "d_heads", axes.heads, "d_gated * head_gate[..., None, None]"
        gate_axes = OF_HEADS[inputs.head_gate.ndim]
        of_each = "(2, 3)" if inputs.head_gate.ndim == 2 else "(0, 2, 3)"
        yield "d_head_gate", gate_axes, f"(d_gated * heads).sum(axis={of_each})"
    if has_d_lse:
        yield "d_lse", axes.heads.rsplit(" ", 1)[0], ""
    # 6. heads = dropped @ v
    equation = f"d_heads @ v{names.shared}.swapaxes(-1, -2)"
    if visible is not None:
        equation = f"np.where(visible, {equation}, 0)"
    yield f"d_{names.dropped}", axes.cells, equation
    equation = f"{names.dropped}.swapaxes(-1, -2) @ d_heads"
    yield "d_v", axes.v, _summed(equation, inputs, axes.v)
    # 5. dropped = weights * dropout_mask
    if inputs.dropout_mask is not None:
        yield "d_weights", axes.cells, "d_dropped * dropout_mask"
    # 4. weights, lse = softmax(biased)
    plus_d_lse = " + d_lse[..., None]" if has_d_lse else ""
    yield f"d_{names.biased}", axes.cells, D_SCORES.replace("))", f"){plus_d_lse})")
    if inputs.sink is not None:
        d_weight = f"({'d_lse' if has_d_lse else '0'} - (d_heads * heads).sum(axis=-1))"
        of_each = "2" if inputs.sink.ndim == 2 else "(0, 2)"
        equation = f"((1 - weights.sum(axis=-1)) * {d_weight}).sum(axis={of_each})"
        yield "d_sink", OF_HEADS[inputs.sink.ndim], equation
    # 3. biased = capped + bias
    if inputs.bias is not None:
        yield f"d_{names.capped}", axes.cells, "d_biased"
        summed = stretched_axes(inputs.cells_shape, inputs.bias.shape)
        equation = f"d_biased.sum(axis={summed}, keepdims=True)" if summed else "d_biased"
        if inputs.bias.ndim < inputs.q.ndim:
            equation += _reshape(inputs.bias, inputs)
        yield "d_bias", _cell_axes(inputs.bias, inputs), equation
    # 2. capped = softcap * tanh(scores / softcap)
    if inputs.softcap is not None:
        yield "d_scores", axes.cells, "d_capped * (1 - (capped / softcap) ** 2)"
    # 1. scores = scale * q @ k^T
    yield "d_q", axes.q, f"scale * d_scores @ k{names.shared}"
    equation = _summed("d_scores.swapaxes(-1, -2) @ q", inputs, axes.k)
    yield "d_k", axes.k, f"scale * {equation}"


def record_attention_jvp(inputs: AttentionInputs, visible: Array | None, tangents: Values) -> None:
    """Record the steps of attention's forward mode."""
    record(tangents, _records_jvp(inputs, hides=visible is not None))


def _records_jvp(inputs: AttentionInputs, *, hides: bool) -> Records:
    axes, names = inputs.axes, _names(inputs)

    def seen(equation: str) -> str:
        return f"np.where(visible, {equation}, 0)" if hides else equation

    yield "q_dot", axes.q, ""
    yield "k_dot", axes.k, ""
    yield "v_dot", axes.v, ""
    # 1. scores = scale * q @ k^T
    k_T, k_dot_T = (f"{name}{names.shared}.swapaxes(-1, -2)" for name in ("k", "k_dot"))
    yield "scores_dot", axes.cells, seen(f"scale * (q_dot @ {k_T} + q @ {k_dot_T})")
    # 2. capped = softcap * tanh(scores / softcap)
    if inputs.softcap is not None:
        yield "capped_dot", axes.cells, seen("scores_dot * (1 - (capped / softcap) ** 2)")
    # 3. biased = capped + bias
    if inputs.bias is not None:
        yield "bias_dot", _cell_axes(inputs.bias, inputs), ""
        yield "biased_dot", axes.cells, f"{names.capped}_dot + bias_dot"
    # 4. weights, lse = softmax(biased)
    by_sink = ""
    if inputs.sink is not None:
        yield "sink_dot", OF_HEADS[inputs.sink.ndim], ""
        by_sink = " + (1 - weights.sum(axis=-1)) * sink_dot[..., None]"
    moved = f"(weights * {names.biased}_dot).sum(axis=-1)"
    yield "lse_dot", axes.heads.rsplit(" ", 1)[0], moved + by_sink
    yield "weights_dot", axes.cells, seen(f"weights * ({names.biased}_dot - lse_dot[..., None])")
    # 5. dropped = weights * dropout_mask
    if inputs.dropout_mask is not None:
        yield "dropped_dot", axes.cells, seen("weights_dot * dropout_mask")
    # 6. heads = dropped @ v
    by_v_dot = f"{names.dropped} @ v_dot{names.shared}"
    yield "heads_dot", axes.heads, f"{names.dropped}_dot @ v{names.shared} + {by_v_dot}"
    # 7. gated = heads * head_gate
    if inputs.head_gate is not None:
        yield "head_gate_dot", OF_HEADS[inputs.head_gate.ndim], ""
        by_gate_dot = "heads * head_gate_dot[..., None, None]"
        yield "gated_dot", axes.heads, f"heads_dot * head_gate[..., None, None] + {by_gate_dot}"


def record_extra_heads(name: str, extra: Array, extra_heads: Array, appended: Array) -> None:
    """Record extra keys, or values, in their heads, and after those of the tokens."""
    d = f"d_{name}"
    constant(f"extra_{name}", extra, f"E H_kv*{d}")
    split = f"extra_{name}.reshape(1, E, H_kv, {d}).transpose(0, 2, 1, 3).repeat(B, axis=0)"
    step(f"{name}_extra", extra_heads, f"B H_kv E {d}", split)
    joined = f"np.concatenate([{name}_tokens, {name}_extra], axis=2)"
    step(name, appended, f"B H_kv T_k {d}", joined)


def record_extra_heads_backward(
    name: str, d_heads: Array, d_extra_heads: Array, d_extra: Array
) -> None:
    """Record the gradient of appended keys, or values, split into that of tokens and extra."""
    d = f"d_{name}"
    step(f"{d}_tokens", d_heads, f"B H_kv T_kv {d}", f"{d}[:, :, np.arange(T_kv)]")
    step(f"{d}_extra", d_extra_heads, f"B H_kv E {d}", f"{d}[:, :, np.arange(T_kv, T_k)]")
    merged = f"{d}_extra.transpose(0, 2, 1, 3).reshape(B, E, H_kv * {d})"
    step(f"d_extra_{name}", d_extra, f"E H_kv*{d}", f"{merged}.sum(axis=0)")


OF_TOKENS = {name: f"{name}_tokens" for name in ("mask", "bias", "visible")} | {"T_k": "T_kv"}


def record_cells_of_tokens(
    tokens: AttentionInputs, visible: Array | None, mask: Array | None, bias: Array | None
) -> None:
    """Record bias and visible cells of the tokens, then mask and bias with the extra columns."""
    values = {**vars(tokens), "visible": visible}
    with renamed(**OF_TOKENS):
        if tokens.bias is not None:
            record(values, [("bias", _cell_axes(tokens.bias, tokens), "")])
        record(values, _visible_records(tokens, values))
    if visible is not None and mask is not None:
        _record_columns("mask", "visible_tokens", visible, mask, tokens, ", constant_values=True")
    if tokens.bias is not None and bias is not None:
        _record_columns("bias", "bias_tokens", tokens.bias, bias, tokens)


def _record_columns(
    name: str, before: str, cells: Array, wider: Array, tokens: AttentionInputs, filling: str = ""
) -> None:
    """Record an array that broadcasts to the cells, with columns for the extra keys."""
    T_k = tokens.cells_shape[-1]
    E = wider.shape[-1] - T_k
    constant("E", E)
    before += "" if cells.ndim else ".reshape(1)"
    if cells.shape[-1:] != (T_k,):
        before += ".repeat(T_kv, axis=-1)"
    added = ", ".join(["(0, 0)"] * (wider.ndim - 1) + ["(0, E)"])
    axes = broadcast_axes(wider.shape, tokens.axes.cells, (*tokens.cells_shape[:-1], T_k + E))
    step(name, wider, axes, f"np.pad({before}, [{added}]{filling})")


def record_cells_of_tokens_backward(tokens: AttentionInputs, d_bias: Array) -> None:
    """Record the gradient of the bias without the columns of the extra keys."""
    equation = "d_bias[..., np.arange(T_kv)]"
    if d_bias.shape[-1:] != tokens.cells_shape[-1:]:
        equation += ".sum(axis=-1, keepdims=True)" + ("" if d_bias.ndim else ".reshape(())")
    with renamed(T_k="T_kv"):
        step("d_bias_tokens", d_bias, _cell_axes(d_bias, tokens), equation)
