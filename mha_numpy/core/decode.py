"""Decoding: attend from new tokens to all so far, with the help of a KV cache."""

from typing import Unpack

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.core.attention import AttentionCache, attention_forward
from mha_numpy.core.attention_types import AttentionOptions
from mha_numpy.core.extra_keys import append_extra_keys_forward
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.core.multihead_params import MultiHeadParams, check_multi_head_inputs
from mha_numpy.core.projection import (
    merge_project_forward,
    project_heads_forward,
)
from mha_numpy.core.recording import (
    NEW_KEY,
    NEW_VALUE,
    QUERY,
    projections,
    record_append,
    record_rotation,
)
from mha_numpy.core.rope import RopeOptions, check_rope, rope_forward
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.steps import is_watched, step


def multi_head_attention_decode(
    x: Array,
    x_k: Array | None = None,
    x_v: Array | None = None,
    *,
    kv_cache: KVCache,
    params: MultiHeadParams,
    num_heads: int,
    num_kv_heads: int | None = None,
    rope: RopeOptions | None = None,
    extra_k: Array | None = None,
    extra_v: Array | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, AttentionCache]:
    """Attend from new tokens to all tokens so far, whose keys and values `kv_cache` holds.

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
        Gets the new keys and values appended; unchanged where an error is raised.
    params, num_heads, num_kv_heads, rope, extra_k, extra_v
        As in `multi_head_attention_forward`. The KV cache does not hold the extra keys.
    **options
        As in `attention_forward`, but for `q_offset`, which is the cache's length. T_k is
        the length after appending. With T > 1 a causal model needs ``is_causal=True`` here too.

    Returns
    -------
    out : (B, T, D_out) array
    cache : AttentionCache
        ``cache.weights`` are the (B, H, T, T_k) weights before dropout, with E more columns for
        extra keys. It refers to what `kv_cache` holds: read it before a `truncate`.

    Raises
    ------
    DTypeError, ShapeError, MaskError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

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
        raise ConfigError("q_offset: expected none, for with a KV cache it is the cache's length")
    inputs = check_multi_head_inputs(x, x_k, x_v, params, num_heads, num_kv_heads, extra_k, extra_v)
    x, x_k, x_v, params, H, H_kv, extra_k, extra_v = inputs
    if x_k.shape[1] != x.shape[1] and (rope or options.get("is_causal") or options.get("window")):
        raise ShapeError(
            f"x_k: expected {x.shape[1]} tokens as x, whose places rope, is_causal and window "
            f"compare; got {x_k.shape[1]}"
        )
    if rope is not None:
        check_rope(rope, params.w_q.shape[1] // H)
    past = kv_cache.length
    options["q_offset"] = past
    chosen = options.pop("backend", None)
    query, key = (QUERY, NEW_KEY) if rope is None else (QUERY.unrotated, NEW_KEY.unrotated)
    value = NEW_VALUE
    step("x_q", x, "B T_q D")
    if x_k is not x:
        step("x_k", x_k, "B T_new kdim")
        key, value = key.of("x_k"), value.of("x_k")
    if x_v is not x_k:
        step("x_v", x_v, "B T_new vdim")
        value = value.of("x_v")

    with backend(chosen), kv_cache.unchanged_on_error():
        # 1. project the new tokens and split into heads
        q, _ = project_heads_forward(query, x, params.w_q, params.b_q, H)
        k_new, _ = project_heads_forward(key, x_k, params.w_k, params.b_k, H_kv)
        v_new, _ = project_heads_forward(value, x_v, params.w_v, params.b_v, H_kv)

        # 2. rotate by their place in the whole sequence
        if rope is not None:
            positions = past + np.arange(x.shape[1])
            q, rotate_q = rope_forward(q, positions=positions, **rope._asdict())
            k_new, rotate_k = rope_forward(k_new, positions=positions, **rope._asdict())
            if is_watched():
                record_rotation(query, q, rotate_q)
                record_rotation(key, k_new, rotate_k)

        # 3. append to the tokens so far, and to these the keys and values of no token
        held = kv_cache.held
        k, v = kv_cache.append(k_new, v_new)
        if is_watched():
            _, *names = projections(is_rotated=False, has_extra=extra_k is not None)
            record_append(names, held, k, v)
        if extra_k is not None and extra_v is not None:
            k, v, options, _ = append_extra_keys_forward(q, k, v, extra_k, extra_v, options)

        # 4. attend to all
        heads, cache = attention_forward(q, k, v, **options)

        # 5. merge and project
        name = "heads" if options.get("head_gate") is None else "gated"
        out, _ = merge_project_forward(heads, params.w_o, params.b_o, name=name)
    return out, cache
