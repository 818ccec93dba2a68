"""Multi-head attention: project, split, attend, merge, project; forward and backward."""

from typing import NamedTuple, Unpack

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.checks import check_shape, check_type
from mha_numpy.core.attention import AttentionCache, attention_backward, attention_forward
from mha_numpy.core.attention_types import AttentionOptions
from mha_numpy.core.extra_keys import (
    ExtraKeysCache,
    append_extra_keys_backward,
    append_extra_keys_forward,
)
from mha_numpy.core.linear import LinearCache
from mha_numpy.core.masks import check_offset
from mha_numpy.core.multihead_params import (
    MultiHeadInputs,
    MultiHeadParams,
    check_multi_head_inputs,
)
from mha_numpy.core.projection import (
    merge_project_backward,
    merge_project_forward,
    project_heads_backward,
    project_heads_forward,
)
from mha_numpy.core.recording import projections, record_rotation
from mha_numpy.core.rope import RopeCache, RopeOptions, check_rope, rope_backward, rope_forward
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.steps import is_watched, step


class MultiHeadCache(NamedTuple):
    """The caches of the parts, in forward's order."""

    project_q: LinearCache
    project_k: LinearCache
    project_v: LinearCache
    rotate_q: RopeCache | None
    rotate_k: RopeCache | None
    extra_keys: ExtraKeysCache | None
    attention: AttentionCache
    project_out: LinearCache
    is_given: tuple[bool, bool]  # x_k, x_v


class MultiHeadGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not given."""

    d_x_q: Array  # (B, T_q, D), with the shares of x_k and x_v where these defaulted to it
    d_x_k: Array | None
    d_x_v: Array | None
    d_params: MultiHeadParams
    d_bias: Array | None
    d_head_gate: Array | None
    d_extra_k: Array | None
    d_extra_v: Array | None


def multi_head_steps(
    inputs: MultiHeadInputs,
    is_given: tuple[bool, bool],
    rope: RopeOptions | None,
    options: AttentionOptions,
) -> tuple[Array, MultiHeadCache]:
    """Attend with H heads at once."""
    x_q, x_k, x_v, params, H, H_kv, extra_k, extra_v = inputs
    query, key, value = projections(is_rotated=rope is not None, has_extra=extra_k is not None)
    heads_name = "heads" if options.get("head_gate") is None else "gated"

    # 0. an input that was not given is the one before it
    if is_watched():
        step("x_q", x_q, "B T_q D")
        step("x_k", x_k, f"B {key.tokens} kdim", "" if is_given[0] else "x_q")
        step("x_v", x_v, f"B {key.tokens} vdim", "" if is_given[1] else "x_k")

    # 1. project and split into heads
    q, project_q = project_heads_forward(query, x_q, params.w_q, params.b_q, H)
    k, project_k = project_heads_forward(key, x_k, params.w_k, params.b_k, H_kv)
    v, project_v = project_heads_forward(value, x_v, params.w_v, params.b_v, H_kv)

    # 2. rotate
    rotate_q = rotate_k = None
    if rope is not None:
        first = check_offset(options.get("q_offset", 0), q.shape[:1])[..., None]  # (1,) or (B, 1)
        q, rotate_q = rope_forward(q, positions=first + np.arange(q.shape[2]), **rope._asdict())
        k, rotate_k = rope_forward(k, **rope._asdict())
        if is_watched():
            record_rotation(query, q, rotate_q)
            record_rotation(key, k, rotate_k)

    # 3. append keys and values of no token
    extra_keys = None
    if extra_k is not None and extra_v is not None:
        k, v, options, extra_keys = append_extra_keys_forward(q, k, v, extra_k, extra_v, options)

    # 4. attend
    heads, attention = attention_forward(q, k, v, **options)  # (B, H, T_q, d_v)

    # 5. merge and project
    out, project_out = merge_project_forward(heads, params.w_o, params.b_o, name=heads_name)
    cache = MultiHeadCache(
        project_q, project_k, project_v, rotate_q, rotate_k, extra_keys, attention, project_out,
        is_given,
    )  # fmt: skip
    return out, cache


def multi_head_steps_backward(d_out: Array, cache: MultiHeadCache) -> MultiHeadGrads:
    """Pull the gradient of the output back to the inputs and all params."""
    H, head_gate = cache.attention.inputs.q.shape[1], cache.attention.inputs.head_gate
    is_rotated, has_extra = cache.rotate_q is not None, cache.extra_keys is not None
    query, key, value = projections(is_rotated=is_rotated, has_extra=has_extra)
    heads_name = "heads" if head_gate is None else "gated"

    # 5. out = merge_heads(heads) @ w_o + b_o
    d_heads, d_w_o, d_b_o = merge_project_backward(d_out, cache.project_out, H, name=heads_name)

    # 4. heads = attention(q, k, v)
    d_q, d_k, d_v, d_bias, d_head_gate = attention_backward(d_heads, cache.attention)

    # 3. k, v = append(k, extra_k), append(v, extra_v)
    d_extra_k = d_extra_v = None
    if cache.extra_keys is not None:
        d_k, d_v, d_extra_k, d_extra_v, d_bias = append_extra_keys_backward(
            d_k, d_v, d_bias, cache.extra_keys
        )

    # 2. q, k = rotate(q), rotate(k)
    if cache.rotate_q is not None and cache.rotate_k is not None:
        d_q = rope_backward(d_q, cache.rotate_q).d_x
        d_k = rope_backward(d_k, cache.rotate_k).d_x
        if is_watched():
            record_rotation(query, d_q, cache.rotate_q, backward=True)
            record_rotation(key, d_k, cache.rotate_k, backward=True)

    # 1. q = split_heads(x_q @ w_q + b_q), and so for k and v
    d_x_q, d_w_q, d_b_q = project_heads_backward(query, d_q, cache.project_q)
    d_x_k, d_w_k, d_b_k = project_heads_backward(key, d_k, cache.project_k)
    d_x_v, d_w_v, d_b_v = project_heads_backward(value, d_v, cache.project_v)
    d_params = MultiHeadParams(d_w_q, d_b_q, d_w_k, d_b_k, d_w_v, d_b_v, d_w_o, d_b_o)

    # 0. x_k = x_q and x_v = x_k, by default: an input used twice collects both gradients
    x_k_given, x_v_given = cache.is_given
    if not x_v_given:
        d_x_k = d_x_k + d_x_v
        step("d_x_kv", d_x_k, f"B {key.tokens} kdim", "d_x_k + d_x_v")
    if not x_k_given:
        d_x_q = d_x_q + d_x_k
        step("d_x", d_x_q, "B T_q D", "d_x_q + d_x_k" if x_v_given else "d_x_q + d_x_kv")
    return MultiHeadGrads(
        d_x_q=d_x_q,
        d_x_k=d_x_k if x_k_given else None,
        d_x_v=d_x_v if x_v_given else None,
        d_params=d_params,
        d_bias=d_bias,
        d_head_gate=d_head_gate,
        d_extra_k=d_extra_k,
        d_extra_v=d_extra_v,
    )


def multi_head_attention_forward(
    x_q: Array,
    x_k: Array | None = None,
    x_v: Array | None = None,
    *,
    params: MultiHeadParams,
    num_heads: int,
    num_kv_heads: int | None = None,
    rope: RopeOptions | None = None,
    extra_k: Array | None = None,
    extra_v: Array | None = None,
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
    params : MultiHeadParams
    num_heads : int
        H, query heads.
    num_kv_heads : int, optional
        H_kv, a divisor of H; default H. Fewer is grouped-query, 1 is multi-query attention.
    rope : RopeOptions, optional
        Rotate queries (from position `q_offset` on) and keys (from 0 on) before they meet.
    extra_k, extra_v : (E, H_kv*d_k) and (E, H_kv*d_v) float array, optional
        E keys and values that belong to no token, after those of the T_k tokens. Every query sees
        them, whatever is masked; RoPE does not rotate them, `bias` adds nothing to their scores.
    **options
        mask, bias, is_causal, q_offset, window, softcap, scale, dropout_mask, head_gate and
        backend, as `attention_forward` explains them. With extra keys mask and bias still have T_k
        columns, dropout_mask and the weights T_k + E.

    Returns
    -------
    out : (B, T_q, D_out) array
        D_out is the width of w_o, as a rule D.
    cache : MultiHeadCache

    Raises
    ------
    DTypeError, ShapeError, MaskError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

    Notes
    -----
    Sources: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023; Shazeer 2019; extra keys:
    Sukhbaatar et al. 2019, *Augmenting self-attention with persistent memory*. Derivation:
    ``docs/multi-head.md``, ``docs/grouped.md``.

    Examples
    --------
    >>> params = MultiHeadParams(*(np.ones((8, 8)) if i % 2 == 0 else None for i in range(8)))
    >>> out, cache = multi_head_attention_forward(np.ones((2, 5, 8)), params=params, num_heads=4)
    >>> out.shape, cache.attention.weights.shape
    ((2, 5, 8), (2, 4, 5, 5))
    """
    is_given = (x_k is not None, x_v is not None)
    inputs = check_multi_head_inputs(
        x_q, x_k, x_v, params, num_heads, num_kv_heads, extra_k, extra_v
    )
    if rope is not None:
        check_rope(rope, inputs.params.w_q.shape[1] // inputs.num_heads)
    with backend(options.pop("backend", None)):
        return multi_head_steps(inputs, is_given, rope, options)


def multi_head_attention_backward(d_out: Array, cache: MultiHeadCache) -> MultiHeadGrads:
    """Pull a gradient back through multi-head attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, T_q, D_out) float array
    cache : MultiHeadCache

    Returns
    -------
    MultiHeadGrads
        ``d_x_q, d_x_k, d_x_v, d_params, d_bias, d_head_gate, d_extra_k, d_extra_v``. An input that
        was not given has None, and its share is in the one that it defaulted to.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or not of the shape of the output.
        `cache` is not forward's.

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
