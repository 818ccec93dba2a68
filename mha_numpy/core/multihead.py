"""Multi-head attention: project, split, attend, merge, project; forward, backward, decoding."""

from typing import Any, NamedTuple, Unpack

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.checks import check_shape, check_type
from mha_numpy.core.attention import AttentionCache, attention_backward, attention_forward
from mha_numpy.core.attention_jvp import attention_jvp
from mha_numpy.core.extra_keys import (
    append_columns,
    append_extra_keys_backward,
    append_extra_keys_forward,
    append_heads_forward,
)
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.core.linear import (
    LinearCache,
    linear_backward,
    linear_backward_each,
    linear_forward,
    linear_forward_each,
    linear_jvp,
)
from mha_numpy.core.masks import check_offset
from mha_numpy.core.multihead_params import (
    FullMultiHeadParams,
    MultiHeadInputs,
    MultiHeadParams,
    check_multi_head_inputs,
)
from mha_numpy.core.multihead_recording import (
    Projections,
    projections,
    record_append,
    record_gate,
    record_gate_backward,
    record_inputs,
    record_merge,
    record_merge_backward,
    record_norms,
    record_norms_backward,
    record_out,
    record_out_backward,
    record_projections,
    record_projections_backward,
    record_rotations,
)
from mha_numpy.core.options import AttentionInputs, AttentionOptions, takes_attention_options
from mha_numpy.core.output_gate import OUTPUT_GATE, OutputGateCache
from mha_numpy.core.qk_norm import (
    QKNormCache,
    QKNormOptions,
    qk_norm_backward,
    qk_norm_forward,
    qk_norm_jvp,
)
from mha_numpy.core.rope import (
    RopeCache,
    RopeOptions,
    rope_backward,
    rope_forward,
    rope_jvp,
    text_length,
)
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.tangents import shapes_of, tangents_with_params
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.steps import is_watched, step


class MultiHeadCache(NamedTuple):
    """The caches of the parts, in forward's order."""

    project_q: LinearCache
    project_k: LinearCache
    project_v: LinearCache
    norms: QKNormCache | None
    rotate_q: RopeCache | None
    rotate_k: RopeCache | None
    extra_keys: AttentionInputs | None  # attention to only the tokens
    attention: AttentionCache
    project_gate: LinearCache | None
    gate: OutputGateCache | None
    project_out: LinearCache
    inputs: MultiHeadInputs


class MultiHeadGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not passed."""

    d_x_q: Array  # (B, T_q, D), with the shares of x_k and x_v where these defaulted to it
    d_x_k: Array | None
    d_x_v: Array | None
    d_params: MultiHeadParams | FullMultiHeadParams  # as params
    d_extra_k: Array | None
    d_extra_v: Array | None
    d_bias: Array | None  # this and the following: of options, as in AttentionGrads
    d_sink: Array | None
    d_head_gate: Array | None


def multi_head_steps(
    inputs: MultiHeadInputs, options: AttentionOptions, kv_cache: KVCache | None = None
) -> tuple[Array, MultiHeadCache]:
    """Attend with H heads at once: to the keys of the inputs, or to all keys in the KV cache."""
    # 0. an input that was not given is the one before it
    x_q, x_k, x_v, params, H, H_kv, rope, extra_k, extra_v, *_ = inputs
    place, eps = inputs.qk_norm or (None, 0.0)
    if place == "rotated" and rope is None:
        place = "heads"  # the same, and before a KV cache that keeps unrotated keys
    gains, norms = (params.gain_q, params.gain_k), None
    past = 0 if kv_cache is None else kv_cache.place(x_k.shape[1])
    names = projections(inputs, is_new=kv_cache is not None) if is_watched() else None
    if names:
        record_inputs(names, inputs, is_new=kv_cache is not None)

    # 1. project, by one wide product instead of H narrow ones, and split into heads
    (q_projected, project_q), (k_projected, project_k), (v_projected, project_v) = (
        linear_forward_each(
            (x_q, params.w_q, params.b_q),  # (B, T_q, H*d_k)
            (x_k, params.w_k, params.b_k),  # (B, T_k, H_kv*d_k)
            (x_v, params.w_v, params.b_v),  # (B, T_k, H_kv*d_v)
        )
    )
    q_whole, k_whole = q_projected, k_projected
    if place == "projection":
        q_whole, k_whole, norms = qk_norm_forward(q_whole, k_whole, *gains, eps)
    q = split_heads(q_whole, H)  # (B, H, T_q, d_k)
    k = split_heads(k_whole, H_kv)  # (B, H_kv, T_k, d_k)
    v = split_heads(v_projected, H_kv)  # (B, H_kv, T_k, d_v)
    if names:
        record_projections(
            names, params, (q_projected, q_whole, q), (k_projected, k_whole, k),
            (v_projected, v_projected, v), norms=norms, eps=eps,
        )  # fmt: skip

    # 2. normalise each head, and rotate it by the place in the whole sequence, or in a KV cache
    # that keeps unrotated keys
    if place == "heads":
        q, k, norms = _norm_heads(q, k, *gains, eps, names)
    if kv_cache is not None and kv_cache.keeps_unrotated:
        k, v, names = _append(kv_cache, k, v, inputs, names)  # step 3: all places may change
        past = 0
    rotate_q = rotate_k = None
    if rope is not None:
        q_at, k_at = inputs.positions, inputs.key_positions
        if q_at is None:
            first = check_offset(options.get("q_offset", 0), q.shape[:1])[..., None]
            q_at = first + np.arange(q.shape[2])  # (T_q,) or (B, T_q)
        if k_at is None:
            k_at = past + np.arange(k.shape[2])
        if rope.scaling is not None and rope.length is None:  # the same for queries and keys
            rope = rope._replace(length=text_length(q_at, k_at))
        q, rotate_q = rope_forward(q, positions=q_at, **rope._asdict())
        k, rotate_k = rope_forward(k, positions=k_at, **rope._asdict())
        if names:
            record_rotations(names, (q, rotate_q), (k, rotate_k))
    if place == "rotated":
        q, k, norms = _norm_heads(q, k, *gains, eps, names)

    # 3. append to the keys and values so far, and to these those of no token
    if kv_cache is not None and not kv_cache.keeps_unrotated:
        k, v, names = _append(kv_cache, k, v, inputs, names)
    extra_keys = None
    if extra_k is not None and extra_v is not None:
        k, v, options, extra_keys = append_extra_keys_forward(q, k, v, extra_k, extra_v, options)

    # 4. attend
    heads, attention = attention_forward(q, k, v, **options)  # (B, H, T_q, d_v)

    # 5. merge, gate and project
    merged = merge_heads(heads)  # (B, T_q, H*d_v)
    if names:
        record_merge(attention.inputs, heads, merged)
    project_gate = gate = None
    if params.w_gate is not None:
        gate_logits, project_gate = linear_forward(x_q, params.w_gate, params.b_gate)
        merged, gate = OUTPUT_GATE.forward(merged=merged, gate_logits=gate_logits)
        if names:
            record_gate(params, gate_logits, gate, merged)
    out, project_out = linear_forward(merged, params.w_o, params.b_o)  # (B, T_q, D_out)
    if names:
        record_out(params, out)
    cache = MultiHeadCache(
        project_q, project_k, project_v, norms, rotate_q, rotate_k, extra_keys, attention,
        project_gate, gate, project_out, inputs,
    )  # fmt: skip
    return out, cache


def _append(
    kv_cache: KVCache, k: Array, v: Array, inputs: MultiHeadInputs, names: Projections | None
) -> tuple[Array, Array, Projections | None]:
    """Append, and return the keys and values of all tokens and the names that these have."""
    held = kv_cache.held if names else []
    k_all, v_all = kv_cache.append(k, v)
    if names:
        is_unrotated = kv_cache.keeps_unrotated and inputs.rope is not None
        names = record_append(
            names, held, (k, k_all), (v, v_all), is_unrotated, inputs.extra_k is not None
        )
    return k_all, v_all, names


def _norm_heads(
    q: Array,
    k: Array,
    gain_q: Array | None,
    gain_k: Array | None,
    eps: float,
    names: Projections | None,
) -> tuple[Array, Array, QKNormCache]:
    normed_q, normed_k, norms = qk_norm_forward(q, k, gain_q, gain_k, eps)
    if names:
        record_norms(names, (q, k), (normed_q, normed_k), norms, eps)
    return normed_q, normed_k, norms


def _norm_heads_backward(
    d_q: Array, d_k: Array, norms: QKNormCache, names: Projections | None
) -> tuple[Array, Array, tuple[Array | None, Array | None]]:
    d_q_before, d_k_before, d_gains = qk_norm_backward(d_q, d_k, norms)
    if names:
        record_norms_backward(names, (d_q, d_k), (d_q_before, d_k_before), d_gains, norms)
    return d_q_before, d_k_before, d_gains


def multi_head_steps_backward(d_out: Array, cache: MultiHeadCache) -> MultiHeadGrads:
    """Pull the gradient of the output back to the inputs and all params."""
    names = projections(cache.inputs) if is_watched() else None

    norms, place = cache.norms, cache.inputs.qk_norm and cache.inputs.qk_norm.place

    # 5. merged = merge_heads(heads) * sigmoid(x_q @ w_gate + b_gate), out = merged @ w_o + b_o
    d_merged, d_w_o, d_b_o = of_out = linear_backward(d_out, cache.project_out)
    if names:
        record_out_backward(d_out, of_out, has_gate=cache.gate is not None)
    d_x_gate = d_w_gate = d_b_gate = None
    if cache.gate is not None and cache.project_gate is not None:
        d_merged, d_gate_logits = OUTPUT_GATE.backward(d_merged, cache.gate)
        d_x_gate, d_w_gate, d_b_gate = of_gate = linear_backward(d_gate_logits, cache.project_gate)
        if names:
            record_gate_backward(d_merged, d_gate_logits, of_gate)
    d_heads = split_heads(d_merged, cache.inputs.num_heads)
    if names:
        record_merge_backward(cache.attention.inputs, d_heads)

    # 4. heads = attention(q, k, v)
    d_q, d_k, d_v, d_bias, *d_others = attention_backward(d_heads, cache.attention)

    # 3. k, v = append(k, extra_k), append(v, extra_v)
    d_extra_k = d_extra_v = None
    if cache.extra_keys is not None:
        d_k, d_v, d_extra_k, d_extra_v, d_bias = append_extra_keys_backward(
            d_k, d_v, d_bias, cache.extra_keys
        )

    # 2. q, k = norm(q), norm(k), before or after q, k = rotate(q), rotate(k)
    d_gains: tuple[Array | None, Array | None] = (None, None)
    if norms is not None and place == "rotated":
        d_q, d_k, d_gains = _norm_heads_backward(d_q, d_k, norms, names)
    if cache.rotate_q is not None and cache.rotate_k is not None:
        d_q = rope_backward(d_q, cache.rotate_q).d_x
        d_k = rope_backward(d_k, cache.rotate_k).d_x
        if names:
            record_rotations(names, (d_q, cache.rotate_q), (d_k, cache.rotate_k), backward=True)
    if norms is not None and place == "heads":
        d_q, d_k, d_gains = _norm_heads_backward(d_q, d_k, norms, names)

    # 1. q_projected = x_q @ w_q + b_q, q = split_heads(q_projected), and so for k and v
    d_q_projected = merge_heads(d_q)
    d_k_projected = merge_heads(d_k)
    d_v_projected = merge_heads(d_v)
    d_q_whole, d_k_whole = d_q_projected, d_k_projected
    if norms is not None and place == "projection":
        d_q_projected, d_k_projected, d_gains = qk_norm_backward(d_q_whole, d_k_whole, norms)
    of_q, of_k, of_v = linear_backward_each(
        (d_q_projected, cache.project_q),
        (d_k_projected, cache.project_k),
        (d_v_projected, cache.project_v),
    )
    (d_x_q, d_w_q, d_b_q), (d_x_k, d_w_k, d_b_k), (d_x_v, d_w_v, d_b_v) = of_q, of_k, of_v
    d_params: Any = FullMultiHeadParams(
        d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o, *d_gains, d_w_gate, d_b_gate
    )
    if cache.inputs.params_kind is MultiHeadParams:
        d_params = MultiHeadParams(*d_params[:8])
    if names:
        record_projections_backward(
            names,
            (d_q, d_q_whole, d_q_projected, of_q),
            (d_k, d_k_whole, d_k_projected, of_k),
            (d_v, d_v_projected, d_v_projected, of_v),
            d_gains=d_gains,
            norms=norms,
        )

    # 0. x_k = x_q and x_v = x_k, by default: an input used twice collects both gradients
    of_x_q = "d_x_q"
    if d_x_gate is not None:
        d_x_q, of_x_q = d_x_q + d_x_gate, "d_x_q_and_gate"
        step(of_x_q, d_x_q, "B T_q D", "d_x_q + d_x_gate")
    x_k_given, x_v_given = cache.inputs.is_given
    if not x_v_given:
        d_x_k = d_x_k + d_x_v
        if names:
            step("d_x_kv", d_x_k, f"B {names[1].tokens} kdim", "d_x_k + d_x_v")
    if not x_k_given:
        d_x_q = d_x_q + d_x_k
        step("d_x", d_x_q, "B T_q D", f"{of_x_q} + {'d_x_k' if x_v_given else 'd_x_kv'}")
    return MultiHeadGrads(
        d_x_q, d_x_k if x_k_given else None, d_x_v if x_v_given else None, d_params,
        d_extra_k, d_extra_v, d_bias, *d_others,
    )  # fmt: skip


def multi_head_steps_jvp(tangents: Any, cache: MultiHeadCache) -> Array:
    """Push the tangents of the inputs and params forward to the output."""
    inputs = cache.inputs
    dots, of_params = _multi_head_tangents(tangents, cache)
    norms, place = cache.norms, inputs.qk_norm and inputs.qk_norm.place

    # 0. x_k = x_q and x_v = x_k, by default
    x_k_given, x_v_given = inputs.is_given
    x_q_dot = dots["x_q"]
    x_k_dot = dots["x_k"] if x_k_given else x_q_dot
    x_v_dot = dots["x_v"] if x_v_given else x_k_dot

    # 1. q_projected = x_q @ w_q + b_q, q = split_heads(q_projected), and so for k and v
    q_dot = linear_jvp((x_q_dot, of_params["w_q"], of_params["b_q"]), cache.project_q)
    k_dot = linear_jvp((x_k_dot, of_params["w_k"], of_params["b_k"]), cache.project_k)
    v_dot = linear_jvp((x_v_dot, of_params["w_v"], of_params["b_v"]), cache.project_v)
    gains_dot = of_params["gain_q"], of_params["gain_k"]
    if norms is not None and place == "projection":
        q_dot, k_dot = qk_norm_jvp(q_dot, k_dot, *gains_dot, norms)
    q_dot = split_heads(q_dot, inputs.num_heads)
    k_dot, v_dot = (split_heads(x, inputs.num_kv_heads) for x in (k_dot, v_dot))

    # 2. q, k = norm(q), norm(k), before or after q, k = rotate(q), rotate(k)
    if norms is not None and place == "heads":
        q_dot, k_dot = qk_norm_jvp(q_dot, k_dot, *gains_dot, norms)
    if cache.rotate_q is not None and cache.rotate_k is not None:
        q_dot, k_dot = rope_jvp(q_dot, cache.rotate_q), rope_jvp(k_dot, cache.rotate_k)
    if norms is not None and place == "rotated":
        q_dot, k_dot = qk_norm_jvp(q_dot, k_dot, *gains_dot, norms)

    # 3. k, v = append(k, extra_k), append(v, extra_v)
    bias_dot = dots["bias"]
    if cache.extra_keys is not None:
        T_k, E = k_dot.shape[2], len(dots["extra_k"])
        k_dot, _ = append_heads_forward(k_dot, dots["extra_k"])
        v_dot, _ = append_heads_forward(v_dot, dots["extra_v"])
        bias_dot = None if bias_dot is None else append_columns(bias_dot, T_k, E, filling=0)

    # 4. heads = attention(q, k, v)
    moving = q_dot, k_dot, v_dot, bias_dot, dots["sink"], dots["head_gate"]
    heads_dot, _ = attention_jvp(moving, cache.attention)

    # 5. merged = merge_heads(heads) * sigmoid(x_q @ w_gate + b_gate), out = merged @ w_o + b_o
    merged_dot = merge_heads(heads_dot)
    if cache.gate is not None and cache.project_gate is not None:
        gate = x_q_dot, of_params["w_gate"], of_params["b_gate"]
        gate_logits_dot = linear_jvp(gate, cache.project_gate)
        merged_dot = OUTPUT_GATE.jvp((merged_dot, gate_logits_dot), cache.gate)
    return linear_jvp((merged_dot, of_params["w_o"], of_params["b_o"]), cache.project_out)


def _multi_head_tangents(
    tangents: Any, cache: MultiHeadCache
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tangents of the inputs and options by name, and those of the params."""
    inputs, options = cache.inputs, cache.attention.inputs
    of_tokens = options if cache.extra_keys is None else cache.extra_keys  # with bias as it came
    x_k_given, x_v_given = inputs.is_given
    arrays = {
        "x_q": inputs.x_q,
        "x_k": inputs.x_k if x_k_given else None,
        "x_v": inputs.x_v if x_v_given else None,
        "extra_k": inputs.extra_k,
        "extra_v": inputs.extra_v,
        "bias": of_tokens.bias,
        "sink": options.sink,
        "head_gate": options.head_gate,
    }
    shapes, of_params = shapes_of(arrays), shapes_of(inputs.params._asdict())
    return tangents_with_params(
        tangents, MultiHeadGrads._fields, shapes, of_params, inputs.x_q.dtype
    )


@takes_attention_options
def multi_head_attention_forward(
    x_q: Array,
    x_k: Array | None = None,
    x_v: Array | None = None,
    *,
    params: MultiHeadParams | FullMultiHeadParams,
    num_heads: int,
    num_kv_heads: int | None = None,
    rope: RopeOptions | None = None,
    extra_k: Array | None = None,
    extra_v: Array | None = None,
    qk_norm: QKNormOptions | None = None,
    positions: Array | None = None,
    key_positions: Array | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, MultiHeadCache]:
    """Attend with H heads at once: ``Concat(head_1, ..., head_H) w_o + b_o``.

    ``head_h = attention(x_q w_q^h, x_k w_k^h, x_v w_v^h)``, where w_q^h is the h-th block of
    columns of w_q.

    Parameters
    ----------
    x_q : (B, T_q, D) float array
        The input of the queries.
    x_k : (B, T_k, kdim) float array, optional
        The input of the keys; defaults to `x_q` (self-attention).
    x_v : (B, T_k, vdim) float array, optional
        The input of the values; defaults to `x_k`.
    params : MultiHeadParams or FullMultiHeadParams
    num_heads : int
        H, query heads.
    num_kv_heads : int, optional
        H_kv, a divisor of H; default H. Fewer is grouped-query, 1 is multi-query attention.
    rope : RopeOptions, optional
        Rotate queries and keys by `positions` before they meet.
    extra_k, extra_v : (E, H_kv*d_k) and (E, H_kv*d_v) float array, optional
        E keys and values that belong to no token, after those of the T_k tokens. Every query sees
        them, because no mask applies to them; they are not normalised or rotated, and `bias` adds
        nothing to their scores.
    qk_norm : QKNormOptions, optional
        Divide queries and keys by their root mean square, and multiply them by ``params.gain_q``
        and ``params.gain_k`` if there are any.
    positions : (T_q,) or (B, T_q) array of numbers, optional
        By which RoPE rotates the queries; default ``q_offset, q_offset + 1, ...``. Only RoPE reads
        them: `is_causal` and `window` compare places in the arrays, and ignore the positions.
    key_positions : (T_k,) or (B, T_k) array of numbers, optional
        By which RoPE rotates the keys; default `positions` if these are given and `x_k` is `x_q`,
        else ``0, 1, ...``.
    {names}
        As `attention_forward` explains them. With extra keys mask and bias still have T_k columns,
        dropout_mask and the weights T_k + E.

    Returns
    -------
    out : (B, T_q, D_out) array
        D_out is the width of w_o, usually D.
    cache : MultiHeadCache

    Notes
    -----
    With ``params.w_gate`` each token gates what its heads found, before w_o: ``merged *
    sigmoid(x_q w_gate + b_gate)``. Sources: Vaswani et al. 2017, section 3.2.2; Ainslie et al.
    2023; Shazeer 2019; extra keys: Sukhbaatar et al. 2019, *Augmenting self-attention with
    persistent memory*; norms: Henry et al. 2020, *Query-key normalization for transformers*; gate:
    Qiu et al. 2025, *Gated attention for large language models*, section 2.2. Derivation:
    ``docs/multi-head.md``, ``docs/grouped.md``.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> out, cache = multi_head_attention_forward(np.ones((2, 5, 8)), params=params, num_heads=4)
    >>> out.shape, cache.attention.weights.shape
    ((2, 5, 8), (2, 4, 5, 5))
    """
    inputs = check_multi_head_inputs(
        x_q, x_k, x_v, params, num_heads, num_kv_heads, rope, extra_k, extra_v, qk_norm,
        positions, key_positions,
    )  # fmt: skip
    with backend(options.pop("backend", None)):
        return multi_head_steps(inputs, options)


def multi_head_attention_backward(d_out: Array, cache: MultiHeadCache) -> MultiHeadGrads:
    """Pull a gradient back through multi-head attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, T_q, D_out) float array
    cache : MultiHeadCache

    Returns
    -------
    MultiHeadGrads
        ``d_x_q, d_x_k, d_x_v, d_params, d_extra_k, d_extra_v``, then those of options, ``d_bias,
        d_sink, d_head_gate``. An input that was not passed has None, and its share is added to the
        input that it defaulted to.

    Notes
    -----
    Derivation: ``docs/multi-head.md``.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> out, cache = multi_head_attention_forward(np.ones((2, 5, 8)), params=params, num_heads=4)
    >>> grads = multi_head_attention_backward(np.ones((2, 5, 8)), cache)
    >>> grads.d_x_q.shape, grads.d_params.w_q.shape, grads.d_x_k is None
    ((2, 5, 8), (8, 8), True)
    """
    check_type("cache", cache, MultiHeadCache, "multi_head_attention_forward")
    d_out = as_float_array("d_out", d_out)
    B, T_q, _ = cache.project_out.x.shape
    check_shape(
        "d_out", d_out, "B T_q D_out", {"B": B, "T_q": T_q, "D_out": cache.project_out.w.shape[1]}
    )
    return multi_head_steps_backward(d_out, cache)


def multi_head_attention_jvp(tangents: Any, cache: MultiHeadCache) -> Array:
    """Push tangents through multi-head attention: forward's steps, first to last.

    Parameters
    ----------
    tangents : tuple or dict
        In the order of the gradients, ``x_q, x_k, x_v, params, extra_k, extra_v, bias, sink,
        head_gate``, or by these names. Those of params are a MultiHeadParams, or a dict by the
        names of its fields. None, or a missing one, does not move.
    cache : MultiHeadCache

    Returns
    -------
    out_dot : (B, T_q, D_out) array
        How fast the output moves.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> out, cache = multi_head_attention_forward(np.ones((2, 5, 8)), params=params, num_heads=4)
    >>> out_dot = multi_head_attention_jvp({"params": {"w_o": np.ones((8, 8))}}, cache)
    >>> np.array_equal(out_dot, out)  # linear in w_o
    True
    """
    check_type("cache", cache, MultiHeadCache, "multi_head_attention_forward")
    return multi_head_steps_jvp(tangents, cache)


@takes_attention_options
def multi_head_attention_decode(
    x: Array,
    x_k: Array | None = None,
    x_v: Array | None = None,
    *,
    kv_cache: KVCache,
    params: MultiHeadParams | FullMultiHeadParams,
    num_heads: int,
    num_kv_heads: int | None = None,
    rope: RopeOptions | None = None,
    extra_k: Array | None = None,
    extra_v: Array | None = None,
    qk_norm: QKNormOptions | None = None,
    positions: Array | None = None,
    key_positions: Array | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, AttentionCache]:
    """Attend from new tokens to all tokens so far, whose keys and values are in `kv_cache`.

    It returns what `multi_head_attention_forward` gives for the last T tokens of the whole
    sequence, without projecting the earlier ones again. It has no backward: it is for inference.

    Parameters
    ----------
    x : (B, T, D) float array
        The new tokens: one when decoding, several when a prompt is read.
    x_k : (B, T_new, kdim) float array, optional
        The input of the keys to append; defaults to `x`. Cross-attention appends those of the
        memory once, and no tokens (T_new = 0) from then on.
    x_v : (B, T_new, vdim) float array, optional
        The input of the values to append; defaults to `x_k`.
    kv_cache : KVCache
        Of any kind. The new keys and values are appended to it; unchanged if an error is raised.
    params, num_heads, num_kv_heads, rope, extra_k, extra_v, qk_norm
        As in `multi_head_attention_forward`. The KV cache does not hold the extra keys.
    positions, key_positions : (T,) and (T_new,), or (B, T) and (B, T_new), optional
        Those of the new tokens, as in `multi_head_attention_forward`; default ``length,
        length + 1, ...``. The KV cache holds keys that are rotated already.
    {names}
        As in `attention_forward`, except `q_offset`, which is the place of the first new token in
        the KV cache. T_k is the length after appending. With T > 1 a causal model needs
        ``is_causal=True`` here too.

    Returns
    -------
    out : (B, T, D_out) array
    cache : AttentionCache
        ``cache.weights`` are the (B, H, T, T_k) weights before dropout, with E more columns for
        extra keys. It refers to what `kv_cache` holds: read it before a `truncate`.

    Notes
    -----
    A token takes O(T_k) time instead of O(T_k^2). Source: Shazeer 2019, section 2.4.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> kv_cache = KVCache()
    >>> for token in range(3):
    ...     out, cache = multi_head_attention_decode(
    ...         np.ones((1, 1, 8)), kv_cache=kv_cache, params=params, num_heads=2)
    >>> out.shape, cache.weights.shape
    ((1, 1, 8), (1, 2, 1, 3))
    """
    if not isinstance(kv_cache, KVCache):
        raise ConfigError(f"kv_cache: expected a KVCache; got {type(kv_cache).__name__}")
    if "q_offset" in options:
        raise ConfigError("q_offset: expected none with a KV cache, whose length it is")
    inputs = check_multi_head_inputs(
        x, x_k, x_v, params, num_heads, num_kv_heads, rope, extra_k, extra_v, qk_norm,
        positions, key_positions,
    )  # fmt: skip
    if kv_cache.keeps_unrotated and (positions is not None or key_positions is not None):
        raise ConfigError(
            "positions: expected none with a KV cache that keeps unrotated keys, whose places in "
            "the cache are their positions"
        )
    T, T_new = inputs.x_q.shape[1], inputs.x_k.shape[1]
    if T_new != T and (rope or options.get("is_causal") or options.get("window")):
        raise ShapeError(
            f"x_k: expected {T} tokens like x, because rope, is_causal and window compare their "
            f"positions; got {T_new}"
        )
    options["q_offset"] = kv_cache.place(T_new)
    with backend(options.pop("backend", None)), kv_cache.unchanged_on_error():
        out, cache = multi_head_steps(inputs, options, kv_cache)
    return out, cache.attention
