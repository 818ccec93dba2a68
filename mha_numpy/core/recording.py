"""What a recorder is shown: every step's name, axes and equation, for what really happened.

An option that was not given has no step. Equations are NumPy expressions over the names of earlier
steps, of constants and of axes; tests evaluate them. They hold where the arrays are finite: what
keeps NaN and inf of hidden cells from spreading is left to `only_visible`.
"""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.attention_types import (
    AttentionInputs,
    AttentionSteps,
    AttentionStepsBackward,
)
from mha_numpy.core.rope import RopeCache
from mha_numpy.core.shapes import broadcast_axes, stretched_axes
from mha_numpy.core.steps import constant, step
from mha_numpy.dtypes import Array


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


class _Names(NamedTuple):
    """What the cells are called after each step: as before it, where its option was not given."""

    capped: str
    biased: str
    dropped: str


def _names(inputs: AttentionInputs) -> _Names:
    """Name the cells by the options that were given."""
    capped = "scores" if inputs.softcap is None else "capped"
    biased = capped if inputs.bias is None else "biased"
    return _Names(capped, biased, "weights" if inputs.dropout_mask is None else "dropped")


def _is_grouped(inputs: AttentionInputs) -> bool:
    """Return whether several query heads share a key/value head."""
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
    shared = ".repeat(G, axis=1)" if _is_grouped(inputs) else ""
    step("q", inputs.q, axes.q)
    step("k", inputs.k, axes.k)
    step("v", inputs.v, axes.v)
    constant("scale", inputs.scale)
    if shared:
        constant("G", inputs.q.shape[1] // inputs.k.shape[1])

    # 1. match
    equation = f"scale * q @ k{shared}.swapaxes(-1, -2)"
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
    step("heads", steps.heads, axes.heads, f"{names.dropped} @ v{shared}")
    # 7. head gate
    if inputs.head_gate is not None:
        step("head_gate", inputs.head_gate, "H" if inputs.head_gate.ndim == 1 else "B H")
        step("gated", gated, axes.heads, "heads * head_gate[..., None, None]")


def _record_cells(name: str, array: Array, inputs: AttentionInputs, equation: str = "") -> None:
    """Record an array that broadcasts to the cells."""
    step(name, array, broadcast_axes(array.shape, inputs.axes.cells, inputs.cells_shape), equation)


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
        axes = broadcast_axes(visible.shape, inputs.axes.cells, inputs.cells_shape)
        equation = f"({equation}).reshape({', '.join(axes.split())})"
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
    shared = ".repeat(G, axis=1)" if _is_grouped(inputs) else ""

    # 7. gated = heads * head_gate
    if inputs.head_gate is None or d_head_gate is None:
        step("d_heads", d_heads, axes.heads)
    else:
        step("d_gated", d_gated, axes.heads)
        step("d_heads", d_heads, axes.heads, "d_gated * head_gate[..., None, None]")
        of_each = "(2, 3)" if inputs.head_gate.ndim == 2 else "(0, 2, 3)"
        gate_axes = "H" if inputs.head_gate.ndim == 1 else "B H"
        step("d_head_gate", d_head_gate, gate_axes, f"(d_gated * heads).sum(axis={of_each})")
    # 6. heads = dropped @ v
    equation = f"d_heads @ v{shared}.swapaxes(-1, -2)"
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
            bias_axes = broadcast_axes(inputs.bias.shape, axes.cells, inputs.cells_shape)
            equation += f".reshape({', '.join(bias_axes.split()) or '()'})"
        _record_cells("d_bias", steps.d_bias, inputs, equation)
    # 2. capped = softcap * tanh(scores / softcap)
    if inputs.softcap is not None:
        equation = "d_capped * (1 - (capped / softcap) ** 2)"
        step("d_scores", steps.d_scores, axes.cells, equation)
    # 1. scores = scale * q @ k^T
    step("d_q", steps.d_q, axes.q, f"scale * d_scores @ k{shared}")
    equation = _summed("d_scores.swapaxes(-1, -2) @ q", inputs, axes.k)
    step("d_k", steps.d_k, axes.k, f"scale * {equation}")


def record_rotation(
    name: str,
    turned: Array,
    axes: str,
    before: str,
    letter: str,
    cache: RopeCache,
    *,
    backward: bool = False,
) -> None:
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

    cos_axes = " ".join(("B 1 " if cos.ndim == 4 else "").split() + axes.split()[-2:])
    constant("pairs", pairs, axes.split()[-1])
    constant(f"cos_{letter}", cos, cos_axes)
    constant(f"sin_{letter}", sin, cos_axes)
    sign = "-" if backward else "+"
    equation = f"{before} * cos_{letter} {sign} {before}[..., pairs] * sin_{letter}"
    step(name, turned, axes, equation)


def record_append(held: list[Array], k: Array, v: Array) -> None:
    """Record the keys and values that a KV cache held, and those of all tokens.

    `held` is empty where the cache was: then all tokens are the new ones.
    """
    axes = {"k": "B H_kv T_past d_k", "v": "B H_kv T_past d_v"}
    for (name, own), past in zip(axes.items(), held, strict=False):
        step(f"{name}_past", past, own)
    for (name, own), array in zip(axes.items(), (k, v), strict=True):
        joined = f"np.concatenate([{name}_past, {name}_new], axis=2)" if held else f"{name}_new"
        step(name, array, own.replace("T_past", "T_k"), joined)
