"""What a recorder is shown: every step's name, axes and equation, for what really happened.

An option that was not given has no step. Equations are NumPy expressions over the names of earlier
steps, of constants and of axes; tests evaluate them. They hold where the arrays are finite: what
keeps NaN and inf of hidden cells from spreading is left to `only_visible`.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.linear import LinearGrads
from mha_numpy.core.multihead_params import MultiHeadInputs, MultiHeadParams
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.rope import RopeCache
from mha_numpy.core.shapes import broadcast_axes, stretched_axes
from mha_numpy.dtypes import Array
from mha_numpy.steps import constant, renamed, step

GATE_AXES = {1: "H", 2: "B H"}  # by rank


def record_softmax(
    scores: Array, mask: Array | None, masked: Array, weights: Array, axes: str
) -> None:
    """Record softmax where it stands alone."""
    step("scores", scores, axes)
    if mask is not None:
        step("mask", mask, broadcast_axes(mask.shape, axes, scores.shape))
    _record_softmax("scores", "mask", mask, masked, weights, axes)


def _record_softmax(
    scores: str, mask_name: str, mask: Array | None, masked: Array, weights: Array, axes: str
) -> None:
    """Record the steps of softmax over the array that is called `scores`."""
    if mask is not None:
        step("masked", masked, axes, f"np.where({mask_name}, {scores}, -np.inf)")
        scores = "masked"
    shifted = scores if _is_moderate(masked) else f"{scores} - {scores}.max(axis=-1, keepdims=True)"
    equation = f"np.exp({shifted}) / np.exp({shifted}).sum(axis=-1, keepdims=True)"
    if mask is not None and not mask.any(axis=-1).all():  # a row that sees nothing is 0, not 0 / 0
        equation = f"np.where({mask_name}, {equation}, 0)"
    step("weights", weights, axes, equation)


def _is_moderate(scores: Array) -> bool:
    """Return whether powers of the scores neither overflow nor vanish in a whole row.

    Softmax always subtracts each row's largest score; where it changes nothing but rounding, the
    equation is shown without it.
    """
    largest = scores.real.max(axis=-1, initial=-np.inf)
    limit = np.log(np.finfo(largest.dtype).max) / 2
    return bool((np.abs(largest[largest != -np.inf]) < limit).all())


def record_softmax_backward(
    d_weights: Array, d_scores: Array, mask: Array | None, axes: str
) -> None:
    """Record softmax's backward where it stands alone."""
    step("d_weights", d_weights, axes)
    hides = mask is not None and not mask.all()
    _record_softmax_backward("scores", "mask" if hides else "", d_scores, axes)


def _record_softmax_backward(scores: str, hidden_by: str, d_scores: Array, axes: str) -> None:
    """Record the gradient of the array that softmax was taken of."""
    equation = "weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))"
    if hidden_by:
        equation = f"np.where({hidden_by}, {equation}, 0)"
    step(f"d_{scores}", d_scores, axes, equation)


class AttentionSteps(NamedTuple):
    """What steps 1 to 6 compute; a step whose option was not given passes on the one before."""

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
    """What the equations keep of every cell for their backward."""

    visible: Array | None
    capped: Array | None  # (B, H, T_q, T_k): the scores after softcap; None without one
    weights: Array  # (B, H, T_q, T_k)
    dropped: Array  # (B, H, T_q, T_k): the weights after dropout


class AttentionStepsBackward(NamedTuple):
    """The gradients of what steps 6 to 1 read, each like its array."""

    d_dropped: Array
    d_weights: Array
    d_biased: Array
    d_scores: Array
    d_q: Array
    d_k: Array
    d_v: Array
    d_bias: Array | None


class _Names(NamedTuple):
    """What the cells are called after each step: as before it, where its option was not given."""

    capped: str
    biased: str
    dropped: str
    shared: str  # what stands behind a key or value that serves a group of query heads


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
    axes, names = inputs.axes, _names(inputs)
    step("q", inputs.q, axes.q)
    step("k", inputs.k, axes.k)
    step("v", inputs.v, axes.v)
    constant("scale", inputs.scale)
    if names.shared:
        constant("G", inputs.q.shape[1] // inputs.k.shape[1])

    # 1. match
    equation = f"scale * q @ k{names.shared}.swapaxes(-1, -2)"
    step("scores", steps.scores, axes.cells, equation)
    # 2. softcap
    if inputs.softcap is not None:
        constant("softcap", inputs.softcap)
        step("capped", steps.capped, axes.cells, "softcap * np.tanh(scores / softcap)")
    # 3. bias
    if inputs.bias is not None:
        _record_cells("bias", inputs.bias, inputs)
        step("biased", steps.biased, axes.cells, f"{names.capped} + bias")
    # 4. mask and softmax
    _record_visible(inputs, steps.visible)
    _record_softmax(names.biased, "visible", steps.visible, steps.masked, steps.weights, axes.cells)
    # 5. dropout
    if inputs.dropout_mask is not None:
        _record_cells("dropout_mask", inputs.dropout_mask, inputs)
        step("dropped", steps.dropped, axes.cells, "weights * dropout_mask")
    # 6. mix
    step("heads", steps.heads, axes.heads, f"{names.dropped} @ v{names.shared}")
    # 7. head gate
    if inputs.head_gate is not None:
        step("head_gate", inputs.head_gate, GATE_AXES[inputs.head_gate.ndim])
        step("gated", gated, axes.heads, "heads * head_gate[..., None, None]")


def _record_cells(name: str, array: Array, inputs: AttentionInputs, equation: str = "") -> None:
    """Record an array that broadcasts to the cells."""
    step(name, array, _cell_axes(array, inputs), equation)


def _cell_axes(array: Array, inputs: AttentionInputs) -> str:
    return broadcast_axes(array.shape, inputs.axes.cells, inputs.cells_shape)


def _reshape(array: Array, inputs: AttentionInputs) -> str:
    return f".reshape({', '.join(_cell_axes(array, inputs).split()) or '()'})"


def _record_visible(inputs: AttentionInputs, visible: Array | None) -> None:
    """Record who may attend to whom, and what decides it."""
    if visible is None:
        return
    reasons, rank = [], 0
    if inputs.mask is not None:
        _record_cells("mask", inputs.mask, inputs)
        reasons.append("mask")
        rank = inputs.mask.ndim
    if inputs.bias is not None and np.isneginf(inputs.bias.real).any():
        reasons.append("~np.isneginf(bias)")
        rank = max(rank, inputs.bias.ndim)
    if inputs.window is not None:
        reasons += _record_window(inputs)
        rank = max(rank, inputs.q.ndim if inputs.q_offset.ndim else 2)
    equation = " & ".join(reasons if len(reasons) < 2 else (f"({reason})" for reason in reasons))
    if rank < visible.ndim:
        equation = f"({equation}){_reshape(visible, inputs)}"
    _record_cells("visible", visible, inputs, equation)


def _record_window(inputs: AttentionInputs) -> list[str]:
    """Record what a window is made of, causality included, and return it as comparisons."""
    query = "np.arange(T_q)[:, None]"
    if inputs.q_offset.any() or inputs.q_offset.ndim:
        ones = (1,) * (inputs.q.ndim - 1) * inputs.q_offset.ndim  # none for one offset
        offset_axes = " ".join(["B", *"1" * len(ones)]) if ones else ""
        constant("q_offset", inputs.q_offset.reshape(inputs.q_offset.shape + ones), offset_axes)
        query += " + q_offset"
    left, right = inputs.window or (None, None)
    comparisons = []
    if left is not None:
        constant("left", left)
        comparisons.append(f"np.arange(T_k) >= {query} - left")
    if right is not None:
        constant("right", right)
        comparisons.append(f"np.arange(T_k) <= {query}{' + right' if right else ''}")
    return comparisons


def record_attention_backward(
    inputs: AttentionInputs,
    visible: Array | None,
    d_gated: Array,
    d_heads: Array,
    d_head_gate: Array | None,
    steps: AttentionStepsBackward,
) -> None:
    """Record the steps of attention's backward."""
    axes, names = inputs.axes, _names(inputs)

    # 7. gated = heads * head_gate
    if inputs.head_gate is None or d_head_gate is None:
        step("d_heads", d_heads, axes.heads)
    else:
        step("d_gated", d_gated, axes.heads)
        step("d_heads", d_heads, axes.heads, "d_gated * head_gate[..., None, None]")
        of_each = "(2, 3)" if inputs.head_gate.ndim == 2 else "(0, 2, 3)"
        gate_axes = GATE_AXES[inputs.head_gate.ndim]
        step("d_head_gate", d_head_gate, gate_axes, f"(d_gated * heads).sum(axis={of_each})")
    # 6. heads = dropped @ v
    equation = f"d_heads @ v{names.shared}.swapaxes(-1, -2)"
    if visible is not None:
        equation = f"np.where(visible, {equation}, 0)"
    step(f"d_{names.dropped}", steps.d_dropped, axes.cells, equation)
    equation = f"{names.dropped}.swapaxes(-1, -2) @ d_heads"
    step("d_v", steps.d_v, axes.v, _summed(equation, inputs, axes.v))
    # 5. dropped = weights * dropout_mask
    if inputs.dropout_mask is not None:
        step("d_weights", steps.d_weights, axes.cells, "d_dropped * dropout_mask")
    # 4. weights = softmax(biased)
    _record_softmax_backward(names.biased, "", steps.d_biased, axes.cells)
    # 3. biased = capped + bias
    if inputs.bias is not None and steps.d_bias is not None:
        step(f"d_{names.capped}", steps.d_biased, axes.cells, "d_biased")
        summed = stretched_axes(inputs.cells_shape, inputs.bias.shape)
        equation = f"d_biased.sum(axis={summed}, keepdims=True)" if summed else "d_biased"
        if inputs.bias.ndim < inputs.q.ndim:
            equation += _reshape(inputs.bias, inputs)
        _record_cells("d_bias", steps.d_bias, inputs, equation)
    # 2. capped = softcap * tanh(scores / softcap)
    if inputs.softcap is not None:
        equation = "d_capped * (1 - (capped / softcap) ** 2)"
        step("d_scores", steps.d_scores, axes.cells, equation)
    # 1. scores = scale * q @ k^T
    step("d_q", steps.d_q, axes.q, f"scale * d_scores @ k{names.shared}")
    equation = _summed("d_scores.swapaxes(-1, -2) @ q", inputs, axes.k)
    step("d_k", steps.d_k, axes.k, f"scale * {equation}")


class Projection(NamedTuple):
    """The names of one projection's steps and axes, as a recorder is shown them."""

    name: str  # of the projected array
    heads_name: str
    x: str  # of the input
    letter: str  # of the params: w_<letter>, b_<letter>
    tokens: str
    inputs: str  # width of the input
    heads: str
    width: str  # of a head

    def of(self, x: str) -> "Projection":
        """Return the same for an input of new keys or values that is not the query's."""
        return self._replace(x=x, tokens="T_new", inputs="kdim" if x == "x_k" else "vdim")

    @property
    def unrotated(self) -> "Projection":
        """The same, where RoPE turns the heads later."""
        return self._replace(heads_name=f"{self.heads_name}_unrotated")

    @property
    def of_tokens(self) -> "Projection":
        """The same, where extra keys make T_k larger than the number of tokens."""
        return self._replace(heads_name=f"{self.heads_name}_tokens", tokens="T_kv")

    @property
    def axes(self) -> str:
        """The names of the axes of the heads."""
        return f"B {self.heads} {self.tokens} {self.width}"


QUERY = Projection("q", "q", "x_q", "q", "T_q", "D", "H", "d_k")
KEY = Projection("k", "k", "x_k", "k", "T_k", "kdim", "H_kv", "d_k")
VALUE = Projection("v", "v", "x_v", "v", "T_k", "vdim", "H_kv", "d_v")
# when decoding, keys and values of the new tokens alone
NEW_KEY = Projection("k_new", "k_new", "x_q", "k", "T_q", "D", "H_kv", "d_k")
NEW_VALUE = Projection("v_new", "v_new", "x_q", "v", "T_q", "D", "H_kv", "d_v")


class MultiHeadNames(NamedTuple):
    """What q, k and v are called before they are rotated, and before keys are appended."""

    query: Projection
    key: Projection
    value: Projection


def multi_head_names(inputs: MultiHeadInputs, *, is_new: bool = False) -> MultiHeadNames:
    """Return the names of a forward's steps; `is_new` where a KV cache holds what was before."""
    has_extra = inputs.extra_k is not None
    query, key, value = QUERY, KEY, VALUE
    if is_new:
        key, value = NEW_KEY, NEW_VALUE
        if inputs.x_k is not inputs.x_q:
            key, value = key.of("x_k"), value.of("x_k")
        if inputs.x_v is not inputs.x_k:
            value = value.of("x_v")
    elif has_extra:
        key, value = key.of_tokens, value.of_tokens
    if inputs.rope is not None:
        query, key = query.unrotated, key.unrotated
    return MultiHeadNames(query, key, value)


def record_inputs(names: MultiHeadNames, inputs: MultiHeadInputs, *, is_new: bool) -> None:
    """Record the inputs of queries, keys and values."""
    x_q, x_k, x_v, *_ = inputs
    step("x_q", x_q, "B T_q D")
    if not is_new:
        x_k_is_given, x_v_is_given = inputs.is_given
        step("x_k", x_k, f"B {names.key.tokens} kdim", "" if x_k_is_given else "x_q")
        step("x_v", x_v, f"B {names.key.tokens} vdim", "" if x_v_is_given else "x_k")
        return
    if x_k is not x_q:
        step("x_k", x_k, "B T_new kdim")
    if x_v is not x_k:
        step("x_v", x_v, "B T_new vdim")


def _record_params(letter: str, params: MultiHeadParams, inputs: str, outputs: str) -> str:
    """Record the params of a projection, and return the equation of its bias."""
    w, b = getattr(params, f"w_{letter}"), getattr(params, f"b_{letter}")
    constant(f"w_{letter}", w, f"{inputs} {outputs}")
    if b is None:
        return ""
    constant(f"b_{letter}", b, outputs)
    return f" + b_{letter}"


def record_projections(
    names: MultiHeadNames, params: MultiHeadParams, *arrays: tuple[Array, Array]
) -> None:
    """Record three projections and the splits into heads; of each its array, then the heads."""
    for (name, heads_name, x, letter, T, D, H, d), (projected, heads) in zip(
        names, arrays, strict=True
    ):
        plus_b = _record_params(letter, params, D, f"{H}*{d}")
        step(f"{name}_projected", projected, f"B {T} {H}*{d}", f"{x} @ w_{letter}{plus_b}")
        by_token = heads.swapaxes(1, 2)  # the heads before their axis moved, a view
        reshaped = f"{name}_projected.reshape(B, {T}, {H}, {d})"
        step(f"{name}_by_token", by_token, f"B {T} {H} {d}", reshaped)
        step(heads_name, heads, f"B {H} {T} {d}", f"{name}_by_token.transpose(0, 2, 1, 3)")


def record_projections_backward(
    names: MultiHeadNames, *gradients: tuple[Array, Array, LinearGrads]
) -> None:
    """Record the merges of the heads' gradients and the ways back through the projections."""
    for (name, heads_name, x, letter, T, D, H, d), (d_heads, d_projected, grads) in zip(
        names, gradients, strict=True
    ):
        moved = f"d_{heads_name}.transpose(0, 2, 1, 3)"
        step(f"d_{name}_by_token", d_heads.swapaxes(1, 2), f"B {T} {H} {d}", moved)
        reshaped = f"d_{name}_by_token.reshape(B, {T}, {H} * {d})"
        step(f"d_{name}_projected", d_projected, f"B {T} {H}*{d}", reshaped)
        rows = f"{x}.reshape(B * {T}, {D}).T"
        d_rows = f"d_{name}_projected.reshape(B * {T}, {H} * {d})"
        step(f"d_w_{letter}", grads.d_w, f"{D} {H}*{d}", f"{rows} @ {d_rows}")
        if grads.d_b is not None:
            step(f"d_b_{letter}", grads.d_b, f"{H}*{d}", f"d_{name}_projected.sum(axis=(0, 1))")
        step(f"d_{x}", grads.d_x, f"B {T} {D}", f"d_{name}_projected @ w_{letter}.T")


def _name_of_heads(inputs: AttentionInputs) -> str:
    """Return what is merged: heads, or what their gate left of them."""
    return "heads" if inputs.head_gate is None else "gated"


def record_merge(
    inputs: AttentionInputs, heads: Array, merged: Array, params: MultiHeadParams, out: Array
) -> None:
    """Record the merge of the heads and the output projection."""
    name, plus_b = _name_of_heads(inputs), _record_params("o", params, "H*d_v", "D_out")
    by_token = heads.swapaxes(1, 2)
    step(f"{name}_by_token", by_token, "B T_q H d_v", f"{name}.transpose(0, 2, 1, 3)")
    step("merged", merged, "B T_q H*d_v", f"{name}_by_token.reshape(B, T_q, H * d_v)")
    step("out", out, "B T_q D_out", f"merged @ w_o{plus_b}")


def record_merge_backward(
    inputs: AttentionInputs, d_out: Array, grads: LinearGrads, d_heads: Array
) -> None:
    """Record the way back through the output projection, and the split of its gradient."""
    step("d_out", d_out, "B T_q D_out")
    step("d_merged", grads.d_x, "B T_q H*d_v", "d_out @ w_o.T")
    rows, d_rows = "merged.reshape(B * T_q, H * d_v)", "d_out.reshape(B * T_q, D_out)"
    step("d_w_o", grads.d_w, "H*d_v D_out", f"{rows}.T @ {d_rows}")
    if grads.d_b is not None:
        step("d_b_o", grads.d_b, "D_out", "d_out.sum(axis=(0, 1))")
    name, by_token = _name_of_heads(inputs), d_heads.swapaxes(1, 2)
    step(f"d_{name}_by_token", by_token, "B T_q H d_v", "d_merged.reshape(B, T_q, H, d_v)")
    step(f"d_{name}", d_heads, "B H T_q d_v", f"d_{name}_by_token.transpose(0, 2, 1, 3)")


def record_rotations(
    names: MultiHeadNames, *turned: tuple[Array, RopeCache], backward: bool = False
) -> None:
    """Record the rotations of queries and keys, or their backward."""
    for of, (heads, cache) in zip(names, turned, strict=False):
        _record_rotation(of, heads, cache, backward=backward)


def _record_rotation(names: Projection, turned: Array, cache: RopeCache, *, backward: bool) -> None:
    """Record the rotation of heads by their positions, or its backward.

    Feature i forms a pair with feature ``pairs[i]``; one that is not turned with itself.
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

    letter, cos_axes = names.letter, f"{names.tokens} {names.width}"
    cos_axes = f"B 1 {cos_axes}" if cos.ndim == 4 else cos_axes
    constant("pairs", pairs, names.width)
    constant(f"cos_{letter}", cos, cos_axes)
    constant(f"sin_{letter}", sin, cos_axes)
    before, after = names.heads_name, names.heads_name.removesuffix("_unrotated")
    sign = "+"
    if backward:
        before, after, sign = f"d_{after}", f"d_{before}", "-"
    equation = f"{before} * cos_{letter} {sign} {before}[..., pairs] * sin_{letter}"
    step(after, turned, names.axes, equation)


def record_append(held: list[Array], k: Array, v: Array, *, has_extra: bool) -> None:
    """Record the keys and values that a KV cache held, and those of all tokens.

    `held` is empty where the cache was: then all tokens are the new ones.
    """
    names = (KEY.of_tokens, VALUE.of_tokens) if has_extra else (KEY, VALUE)
    for of, past in zip(names, held, strict=False):
        step(f"{of.name}_past", past, of._replace(tokens="T_past").axes)
    for of, array in zip(names, (k, v), strict=True):
        new = f"{of.name}_new"
        joined = f"np.concatenate([{of.name}_past, {new}], axis=2)" if held else new
        step(of.heads_name, array, of.axes, joined)


def record_extra_heads(name: str, extra: Array, extra_heads: Array, appended: Array) -> None:
    """Record extra keys, or values, in their heads, and behind those of the tokens."""
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
    with renamed(**OF_TOKENS):
        if tokens.bias is not None:
            _record_cells("bias", tokens.bias, tokens)
        _record_visible(tokens, visible)
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
        _record_cells("d_bias_tokens", d_bias, tokens, equation)
