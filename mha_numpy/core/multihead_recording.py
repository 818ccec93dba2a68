"""The recorder's view of multi-head attention: the steps around those of attention."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from mha_numpy.core.linear import LinearGrads
from mha_numpy.core.multihead_params import FullMultiHeadParams, MultiHeadInputs
from mha_numpy.core.options import AttentionInputs
from mha_numpy.core.output_gate import OutputGateCache
from mha_numpy.core.pair import plus, record
from mha_numpy.core.qk_norm import QKNormCache
from mha_numpy.core.rms_norm import RMS_NORM, RMSNormCache
from mha_numpy.core.rope import RopeCache
from mha_numpy.dtypes import Array
from mha_numpy.steps import constant, renamed, step


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
