"""The recorder's view: the name, axes and equation of every step that really ran.

An option that was not passed has no step. Equations are NumPy expressions over the names of earlier
steps, constants and axes; tests evaluate them. They hold for finite arrays, because only
`only_visible` keeps NaN and inf in hidden cells from spreading.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import numpy as np

from mha_numpy.core.linear import LinearGrads
from mha_numpy.core.multihead_params import FullMultiHeadParams, MultiHeadInputs
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.output_gate import OutputGateCache
from mha_numpy.core.pair import Records, Values, plus, record
from mha_numpy.core.qk_norm import QKNormCache
from mha_numpy.core.rms_norm import RMS_NORM, RMSNormCache
from mha_numpy.core.rope import RopeCache
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
    record({**vars(inputs), **steps._asdict(), "gated": gated}, partial(_records, inputs))


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


class Projection(NamedTuple):
    """The names of one projection's steps and axes for the recorder."""

    name: str  # of the projected array: q, k, v; k_new and v_new, where a KV cache holds others
    stages: tuple[str, ...]  # of its heads: q_unnormed, q_unrotated, q
    x: str  # of the input
    tokens: str
    features: str  # of the input
    is_normed_whole: bool  # before it is split into heads

    @property
    def whole(self) -> str:
        """The name of what is split into heads."""
        return f"{self.name}_{'normed' if self.is_normed_whole else 'projected'}"

    @property
    def heads(self) -> str:
        """The name of its heads, before they are normed or rotated and extra keys appended."""
        return self.stages[0]

    def around(self, way: str) -> tuple[str, str]:
        """Return the names of the heads before they are "normed" or "rotated", and after it."""
        before = f"{self.stages[-1]}_un{way}"
        return before, self.stages[self.stages.index(before) + 1]

    @property
    def letter(self) -> str:
        """The letter in the names of the params: w_<letter>, b_<letter>."""
        return self.name[0]

    @property
    def split(self) -> tuple[str, str]:
        """The number of heads, and the width of each."""
        return "H" if self.letter == "q" else "H_kv", "d_v" if self.letter == "v" else "d_k"

    @property
    def axes(self) -> str:
        """The names of the axes of the heads."""
        heads, width = self.split
        return f"B {heads} {self.tokens} {width}"


Projections = tuple[Projection, Projection, Projection]  # of queries, keys and values


def projections(inputs: MultiHeadInputs, *, is_new: bool = False) -> Projections:
    """Return the names of a forward's projections; `is_new` if a KV cache has earlier tokens."""
    place = inputs.qk_norm and inputs.qk_norm.place
    ways = [] if inputs.rope is None else ["_unrotated"]
    if place in ("heads", "rotated"):
        ways.insert(place == "rotated", "_unnormed")

    def projection(name: str, suffix: str, x: str, tokens: str, features: str) -> Projection:
        last, is_value = f"{name}{suffix}", name[0] == "v"
        stages = [] if is_value else [f"{last}{way}" for way in ways]
        is_normed_whole = place == "projection" and not is_value
        return Projection(name, (*stages, last), x, tokens, features, is_normed_whole)

    of_x = ("x_q", "T_q", "D")
    query = projection("q", "", *of_x)
    if not is_new:  # extra keys make T_k larger than the number of tokens
        suffix, tokens = ("", "T_k") if inputs.extra_k is None else ("_tokens", "T_kv")
        key = projection("k", suffix, "x_k", tokens, "kdim")
        return query, key, projection("v", suffix, "x_v", tokens, "vdim")
    # only of the new tokens: the query's, unless there is another input
    if inputs.x_k is not inputs.x_q:
        of_x = ("x_k", "T_new", "kdim")
    key = projection("k_new", "", *of_x)
    if inputs.x_v is not inputs.x_k:
        of_x = ("x_v", "T_new", "vdim")
    return query, key, projection("v_new", "", *of_x)


def record_inputs(names: Projections, inputs: MultiHeadInputs, *, is_new: bool) -> None:
    """Record the inputs of queries, keys and values."""
    x_q, x_k, x_v, *_ = inputs
    step("x_q", x_q, "B T_q D")
    if not is_new:
        x_k_is_given, x_v_is_given = inputs.is_given
        _, key, value = names
        step("x_k", x_k, f"B {key.tokens} kdim", "" if x_k_is_given else "x_q")
        step("x_v", x_v, f"B {value.tokens} vdim", "" if x_v_is_given else "x_k")
        return
    if x_k is not x_q:
        step("x_k", x_k, "B T_new kdim")
    if x_v is not x_k:
        step("x_v", x_v, "B T_new vdim")


def _record_params(letter: str, params: FullMultiHeadParams, axes: str) -> str:
    """Record the params of a projection, and return the equation of its bias."""
    w, b = f"w_{letter}", f"b_{letter}"
    record(params._asdict(), [(w, axes), (b, axes.split()[1])])
    return plus(b, getattr(params, b))


def record_projections(
    names: Projections,
    params: FullMultiHeadParams,
    *arrays: tuple[Array, Array, Array],
    norms: QKNormCache | None,
    eps: float,
) -> None:
    """Record three projections and the splits into heads.

    Of each its array, what is split, which is that or its norm, and the heads.
    """
    for i, (of, (projected, whole, heads)) in enumerate(zip(names, arrays, strict=True)):
        name, x, T, (H, d) = of.name, of.x, of.tokens, of.split
        plus_b = _record_params(of.letter, params, f"{of.features} {H}*{d}")
        step(f"{name}_projected", projected, f"B {T} {H}*{d}", f"{x} @ w_{of.letter}{plus_b}")
        if norms is not None and of.is_normed_whole:
            _record_norm(of, (f"{name}_projected", of.whole), (projected, whole), norms[i], eps)
        by_token = heads.swapaxes(1, 2)  # the heads before their axis moved, a view
        reshaped = f"{of.whole}.reshape(B, {T}, {H}, {d})"
        step(f"{name}_by_token", by_token, f"B {T} {H} {d}", reshaped)
        step(of.heads, heads, of.axes, f"{name}_by_token.transpose(0, 2, 1, 3)")


def record_projections_backward(
    names: Projections,
    *gradients: tuple[Array, Array, Array, LinearGrads],
    norms: QKNormCache | None,
    d_gains: tuple[Array | None, Array | None],
) -> None:
    """Record the merges of the heads' gradients and the ways back through the projections."""
    for i, (of, (d_heads, d_whole, d_projected, grads)) in enumerate(
        zip(names, gradients, strict=True)
    ):
        name, x, T, D, (H, d) = of.name, of.x, of.tokens, of.features, of.split
        moved = f"d_{of.heads}.transpose(0, 2, 1, 3)"
        step(f"d_{name}_by_token", d_heads.swapaxes(1, 2), f"B {T} {H} {d}", moved)
        reshaped = f"d_{name}_by_token.reshape(B, {T}, {H} * {d})"
        step(f"d_{of.whole}", d_whole, f"B {T} {H}*{d}", reshaped)
        if norms is not None and of.is_normed_whole:
            steps = f"{name}_projected", of.whole
            _record_norm_backward(of, steps, (d_projected, d_whole, d_gains[i]), norms[i])
        rows = f"{x}.reshape(B * {T}, {D}).T"
        d_rows = f"d_{name}_projected.reshape(B * {T}, {H} * {d})"
        step(f"d_w_{of.letter}", grads.d_w, f"{D} {H}*{d}", f"{rows} @ {d_rows}")
        if grads.d_b is not None:
            step(f"d_b_{of.letter}", grads.d_b, f"{H}*{d}", f"d_{name}_projected.sum(axis=(0, 1))")
        step(f"d_{x}", grads.d_x, f"B {T} {D}", f"d_{name}_projected @ w_{of.letter}.T")


def _name_of_heads(inputs: AttentionInputs) -> str:
    """Return the name of the merged array: heads, or gated heads."""
    return "heads" if inputs.head_gate is None else "gated"


def record_merge(inputs: AttentionInputs, heads: Array, merged: Array) -> None:
    """Record the merge of the heads."""
    name, by_token = _name_of_heads(inputs), heads.swapaxes(1, 2)
    step(f"{name}_by_token", by_token, "B T_q H d_v", f"{name}.transpose(0, 2, 1, 3)")
    step("merged", merged, "B T_q H*d_v", f"{name}_by_token.reshape(B, T_q, H * d_v)")


def record_merge_backward(inputs: AttentionInputs, d_heads: Array) -> None:
    """Record the split of the gradient of the merged heads."""
    name, by_token = _name_of_heads(inputs), d_heads.swapaxes(1, 2)
    step(f"d_{name}_by_token", by_token, "B T_q H d_v", "d_merged.reshape(B, T_q, H, d_v)")
    step(f"d_{name}", d_heads, "B H T_q d_v", f"d_{name}_by_token.transpose(0, 2, 1, 3)")


def record_gate(
    params: FullMultiHeadParams, gate_logits: Array, cache: OutputGateCache, out: Array
) -> None:
    """Record the output gate."""
    gates, spread = _gates(gate_logits, out)
    plus_b = _record_params("gate", params, f"D {gates}")
    step("gate_logits", gate_logits, f"B T_q {gates}", f"x_q @ w_gate{plus_b}")
    step("gate", cache.gate, f"B T_q {gates}", "1 / (1 + np.exp(-gate_logits))")
    step("merged_gated", out, "B T_q H*d_v", f"merged * gate{spread}")


def record_gate_backward(d_merged: Array, d_gate_logits: Array, grads: LinearGrads) -> None:
    """Record the way back through the output gate, to x_q too."""
    gates, spread = _gates(d_gate_logits, d_merged)
    step("d_merged", d_merged, "B T_q H*d_v", f"d_merged_gated * gate{spread}")
    d_gate = "(d_merged_gated * merged)"
    d_gate += ".reshape(B, T_q, H, d_v).sum(axis=-1)" if spread else ""
    axes, count = f"B T_q {gates}", gates.replace("*", " * ")
    step("d_gate_logits", d_gate_logits, axes, f"{d_gate} * gate * (1 - gate)")
    d_rows = f"d_gate_logits.reshape(B * T_q, {count})"
    step("d_w_gate", grads.d_w, f"D {gates}", f"x_q.reshape(B * T_q, D).T @ {d_rows}")
    if grads.d_b is not None:
        step("d_b_gate", grads.d_b, gates, "d_gate_logits.sum(axis=(0, 1))")
    step("d_x_gate", grads.d_x, "B T_q D", "d_gate_logits @ w_gate.T")


def _gates(gate_logits: Array, merged: Array) -> tuple[str, str]:
    """Return the axis of the gates, and how one for each head is repeated."""
    if gate_logits.shape == merged.shape:
        return "H*d_v", ""
    return "H", ".repeat(d_v, axis=-1)"


def record_out(params: FullMultiHeadParams, out: Array) -> None:
    """Record the output projection."""
    plus_b = _record_params("o", params, "H*d_v D_out")
    step("out", out, "B T_q D_out", f"{_name_of_merged(params.w_gate is not None)} @ w_o{plus_b}")


def record_out_backward(d_out: Array, grads: LinearGrads, *, has_gate: bool) -> None:
    """Record the way back through the output projection."""
    merged = _name_of_merged(has_gate)
    step("d_out", d_out, "B T_q D_out")
    step(f"d_{merged}", grads.d_x, "B T_q H*d_v", "d_out @ w_o.T")
    rows, d_rows = f"{merged}.reshape(B * T_q, H * d_v)", "d_out.reshape(B * T_q, D_out)"
    step("d_w_o", grads.d_w, "H*d_v D_out", f"{rows}.T @ {d_rows}")
    if grads.d_b is not None:
        step("d_b_o", grads.d_b, "D_out", "d_out.sum(axis=(0, 1))")


def _name_of_merged(has_gate: bool) -> str:
    return "merged_gated" if has_gate else "merged"


def record_norms(
    names: Projections,
    before: tuple[Array, Array],
    after: tuple[Array, Array],
    norms: QKNormCache,
    eps: float,
) -> None:
    """Record the norms of the heads of queries and keys."""
    for of, *arrays, norm in zip(names, before, after, norms, strict=False):
        _record_norm(of, of.around("normed"), arrays, norm, eps)


def _record_norm(
    of: Projection, steps: Sequence[str], arrays: Sequence[Array], norm: RMSNormCache, eps: float
) -> None:
    x, out = arrays
    with _renamed_for(of, steps):
        record({**norm._asdict(), "x": x, "out": out, "eps": eps}, RMS_NORM.records)


def record_norms_backward(
    names: Projections,
    after: tuple[Array, Array],
    before: tuple[Array, Array],
    d_gains: tuple[Array | None, Array | None],
    norms: QKNormCache,
) -> None:
    """Record the ways back through the norms of the heads."""
    for of, d_out, d_x, d_gain, norm in zip(names, after, before, d_gains, norms, strict=False):
        _record_norm_backward(of, of.around("normed"), (d_x, d_out, d_gain), norm)


def _record_norm_backward(
    of: Projection,
    steps: Sequence[str],
    gradients: tuple[Array, Array, Array | None],
    norm: RMSNormCache,
) -> None:
    d_x, d_out, d_gain = gradients
    with _renamed_for(of, steps):
        values = {**norm._asdict(), "d_x": d_x, "d_out": d_out, "d_gain": d_gain}
        record(values, RMS_NORM.records_backward)


def _renamed_for(of: Projection, steps: Sequence[str]) -> AbstractContextManager[None]:
    """Let the steps of an RMS norm have the names that they have in attention."""
    x, out = steps
    H, d = of.split
    return renamed(
        x=x, out=out, gain=f"gain_{of.letter}", x_hat=f"{of.name}_hat",
        inverse_rms=f"inverse_rms_{of.name}",
        H=H, T=of.tokens, D=d if out in of.stages else f"{H}*{d}",
    )  # fmt: skip


def record_rotations(
    names: Projections, *turned: tuple[Array, RopeCache], backward: bool = False
) -> None:
    """Record the rotations of queries and keys, or their backward."""
    for of, (heads, cache) in zip(names, turned, strict=False):
        record_rotation(of.letter, of.around("rotated"), of.axes, heads, cache, backward=backward)


def record_rotation(
    letter: str,
    names: tuple[str, str],
    axes: str,
    turned: Array,
    cache: RopeCache,
    *,
    backward: bool = False,
) -> None:
    """Record the rotation of heads by their positions, or its backward.

    `names` are those of the heads before it and after it. Feature i forms a pair with feature
    ``pairs[i]``; a feature that is not turned has itself.
    """
    d, half = turned.shape[-1], cache.cos.shape[-1]
    features = np.arange(2 * half)
    first, second = (features[0::2], features[1::2]) if cache.interleaved else (
        features[:half], features[half:]
    )  # fmt: skip
    cos, sin = np.ones((*cache.cos.shape[:-1], d)), np.zeros((*cache.cos.shape[:-1], d))
    cos[..., first] = cos[..., second] = cache.cos
    sin[..., first], sin[..., second] = -cache.sin, cache.sin
    pairs = np.arange(d)
    pairs[first], pairs[second] = second, first

    *_, tokens, width = axes.split()
    cos_axes = f"{'B 1 ' if cos.ndim == 4 else ''}{tokens} {width}"
    constant("pairs", pairs, width)
    constant(f"cos_{letter}", cos, cos_axes)
    constant(f"sin_{letter}", sin, cos_axes)
    (before, after), sign = names, "+"
    if backward:
        before, after, sign = f"d_{after}", f"d_{before}", "-"
    equation = f"{before} * cos_{letter} {sign} {before}[..., pairs] * sin_{letter}"
    step(after, turned, axes, equation)


def record_append(
    names: Projections,
    held: list[Array],
    k: tuple[Array, Array],
    v: tuple[Array, Array],
    is_unrotated: bool,
    has_extra: bool,
) -> Projections:
    """Record the keys and values that a KV cache held, and those of all tokens; return their names.

    `held` is empty if the cache was: then all tokens are new. Of `k` and `v`, the new ones come
    first. A cache that rounds or forgets returns something else than both in a row: no equation.
    """
    for letter, past in zip("kv", held, strict=False):
        step(f"{letter}_past", past, f"B H_kv T_past d_{letter}")
    suffix, tokens = ("_tokens", "T_kv") if has_extra else ("", "T_k")
    named = [names[0]]
    for i, (letter, (new, array)) in enumerate((("k", k), ("v", v))):
        of = names[i + 1]
        turned = is_unrotated and letter == "k"  # after it, and not before
        stages = of.stages[of.stages.index(f"{of.name}_unrotated") if turned else -1 :]
        before, *_ = stages
        joined = f"np.concatenate([{letter}_past, {before}], axis=2)" if held else before
        parts = np.concatenate([held[i], new], axis=2) if held else new
        stages = tuple(stage.replace(of.name, f"{letter}{suffix}", 1) for stage in stages)
        of = of._replace(stages=stages, tokens=tokens)
        is_joined = np.array_equal(array, parts, equal_nan=True)
        step(of.heads, array, of.axes, joined if is_joined else "")
        named.append(of)
    return named[0], named[1], named[2]


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
