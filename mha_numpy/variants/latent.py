"""Latent attention (MLA): keys and values of all heads from one small vector per token.

The equations come first: forward, backward, and a decoding step in two ways that agree. What a KV
cache holds of a token is its latent and one rotated key, for all heads together.
"""

import math
from typing import Any, NamedTuple, Unpack

import numpy as np

from mha_numpy.backends import backend
from mha_numpy.checks import check_flag, check_shape, check_type
from mha_numpy.core.attention import AttentionCache, attention_backward, attention_forward
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.core.linear import LinearCache, linear_backward, linear_forward
from mha_numpy.core.options import AttentionOptions, takes_attention_options
from mha_numpy.core.rms_norm import RMSNormCache, rms_norm_backward, rms_norm_forward
from mha_numpy.core.rope import RopeCache, RopeOptions, rope_backward, rope_forward
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ConfigError
from mha_numpy.steps import renamed
from mha_numpy.variants.latent_params import (
    LatentAttentionParams,
    LatentInputs,
    check_latent_inputs,
)
from mha_numpy.variants.latent_recording import (
    GATED,
    KV_NAMES,
    LATENT_GATED,
    Q_NAMES,
    WITHOUT_QUERY_LATENT,
    note,
    note_append,
    note_rotation,
)

Params = dict[str, Array | None]  # gradients by name
INTERLEAVED = RopeOptions(interleaved=True)  # DeepSeek's layout


class Tokens(NamedTuple):
    """The queries of tokens, and what is kept of each; also their gradients."""

    q_nope: Array  # (B, H, T, d_nope)
    q_rope: Array  # (B, H, T, d_rope): rotated
    kept: Array  # (B, 1, T, d_c + d_rope): the latent, and the rotated key


class CompressCache(NamedTuple):
    """The caches of steps 1 and 2."""

    project_q_down: LinearCache | None
    norm_q: RMSNormCache | None
    project_q: LinearCache
    rotate_q: RopeCache
    project_kv_down: LinearCache
    norm_kv: RMSNormCache
    rotate_k: RopeCache


class ExpandedCache(NamedTuple):
    """The caches of steps 3 and 4."""

    expand_k: LinearCache
    expand_v: LinearCache
    attention: AttentionCache


class LatentAttentionCache(NamedTuple):
    """The caches of the parts, in forward's order."""

    compress: CompressCache
    expanded: ExpandedCache
    project_out: LinearCache
    inputs: LatentInputs

    @property
    def attention(self) -> AttentionCache:
        """The cache of attention itself, with the weights of all heads."""
        return self.expanded.attention


class LatentAttentionGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not passed."""

    d_x: Array  # (B, T, D)
    d_params: LatentAttentionParams
    d_bias: Array | None  # this and the following: of options, as in AttentionGrads
    d_sink: Array | None
    d_head_gate: Array | None


def compress_steps(inputs: LatentInputs, past: int = 0) -> tuple[Tokens, CompressCache]:
    """Return the queries of tokens and what is kept of each; `past` tokens were before these."""
    x, params, H, d_nope, d_rope, rope, positions, eps = inputs
    if positions is None:
        positions = past + np.arange(x.shape[1])

    # 1. queries, from their own latent if there is one; the last features of each head are rotated
    q_latent, project_q_down, norm_q = x, None, None
    if params.w_q_down is not None:
        q_down, project_q_down = linear_forward(x, params.w_q_down)  # (B, T, d_cq)
        note("query latent", x=x, w_q_down=params.w_q_down, q_down=q_down)
        with renamed(**Q_NAMES):
            q_latent, norm_q = rms_norm_forward(q_down, params.q_gain, eps=eps)
    q_projected, project_q = linear_forward(q_latent, params.w_q)  # (B, T, H*d_k)
    q_unrotated = split_heads(q_projected, H)  # (B, H, T, d_k)
    q_nope, q_flat = np.split(q_unrotated, [d_nope], axis=-1)  # d_k = d_nope + d_rope
    with renamed(**_names_of_queries(project_q_down)):
        note(
            "queries", x=x, w_q=params.w_q, q_projected=q_projected, q_unrotated=q_unrotated,
            q_nope=q_nope, q_flat=q_flat,
        )  # fmt: skip
    q_rope, rotate_q = rope_forward(q_flat, positions=positions, **rope._asdict())
    note_rotation("q", q_rope, rotate_q)

    # 2. one latent for all keys and values of a token, and one rotated key for all heads
    kv_down, project_kv_down = linear_forward(x, params.w_kv_down)  # (B, T, d_c + d_rope)
    kv_latent, k_flat = np.split(kv_down, [kv_down.shape[-1] - d_rope], axis=-1)
    k_flat = k_flat[:, None]  # (B, 1, T, d_rope)
    note(
        "keys", x=x, w_kv_down=params.w_kv_down, kv_down=kv_down, kv_latent=kv_latent,
        k_flat=k_flat,
    )  # fmt: skip
    with renamed(**KV_NAMES):
        latent, norm_kv = rms_norm_forward(kv_latent, params.kv_gain, eps=eps)  # (B, T, d_c)
    k_rope, rotate_k = rope_forward(k_flat, positions=positions, **rope._asdict())
    note_rotation("k", k_rope, rotate_k)
    kept = np.concatenate([latent[:, None], k_rope], axis=-1)  # (B, 1, T, d_c + d_rope)
    note("kept", kept=kept)
    cache = CompressCache(
        project_q_down, norm_q, project_q, rotate_q, project_kv_down, norm_kv, rotate_k
    )
    return Tokens(q_nope, q_rope, kept), cache


def compress_steps_backward(d_tokens: Tokens, cache: CompressCache) -> tuple[Array, Params]:
    """Pull back to x, and to the params of steps 2 and 1."""
    d_q_nope, d_q_rope, d_kept = d_tokens

    # 2. kv_latent, k_flat = split(x @ w_kv_down), kept = [norm(kv_latent), rotate(k_flat)]
    d_c = cache.norm_kv.x_hat.shape[-1]
    d_latent, d_k_rope = d_kept[:, 0, :, :d_c], d_kept[..., d_c:]
    note("kept, backward", d_latent=d_latent, d_k_rope=d_k_rope)
    d_k_flat = rope_backward(d_k_rope, cache.rotate_k).d_x
    note_rotation("k", d_k_flat, cache.rotate_k, backward=True)
    with renamed(**KV_NAMES):
        d_kv_latent, d_kv_gain = rms_norm_backward(d_latent, cache.norm_kv)
    d_kv_down = np.concatenate([d_kv_latent, d_k_flat[:, 0]], axis=-1)
    d_x_kv, d_w_kv_down, _ = linear_backward(d_kv_down, cache.project_kv_down)
    note("keys, backward", d_kv_down=d_kv_down, d_w_kv_down=d_w_kv_down, d_x_kv=d_x_kv)

    # 1. q_nope, q_flat = split(norm(x @ w_q_down) @ w_q), q_rope = rotate(q_flat)
    d_q_flat = rope_backward(d_q_rope, cache.rotate_q).d_x
    note_rotation("q", d_q_flat, cache.rotate_q, backward=True)
    d_q_unrotated = np.concatenate([d_q_nope, d_q_flat], axis=-1)
    d_q_projected = merge_heads(d_q_unrotated)
    d_q_latent, d_w_q, _ = linear_backward(d_q_projected, cache.project_q)
    with renamed(**_names_of_queries(cache.project_q_down)):
        note(
            "queries, backward", d_q_unrotated=d_q_unrotated, d_q_projected=d_q_projected,
            d_w_q=d_w_q, d_q_latent=d_q_latent,
        )  # fmt: skip
    d_x_q, d_q_gain, d_w_q_down = d_q_latent, None, None
    if cache.project_q_down is not None and cache.norm_q is not None:
        with renamed(**Q_NAMES):
            d_q_down, d_q_gain = rms_norm_backward(d_q_latent, cache.norm_q)
        d_x_q, d_w_q_down, _ = linear_backward(d_q_down, cache.project_q_down)
        note("query latent, backward", d_w_q_down=d_w_q_down, d_x_q=d_x_q)
    d_x = d_x_q + d_x_kv
    note("x, backward", d_x=d_x)
    return d_x, {
        "w_q_down": d_w_q_down, "q_gain": d_q_gain, "w_q": d_w_q, "w_kv_down": d_w_kv_down,
        "kv_gain": d_kv_gain,
    }  # fmt: skip


def _names_of_queries(project_q_down: LinearCache | None) -> dict[str, str]:
    return WITHOUT_QUERY_LATENT if project_q_down is None else {}


def expanded_steps(
    tokens: Tokens, inputs: LatentInputs, options: AttentionOptions
) -> tuple[Array, ExpandedCache]:
    """Attend to keys and values of all heads, made from the latents."""
    q_nope, q_rope, kept = tokens
    params, H = inputs.params, inputs.num_heads
    latents, k_rope = np.split(kept[:, 0], [len(params.kv_gain)], axis=-1)

    # 3. expand each latent; every head gets the same rotated key
    k_projected, expand_k = linear_forward(latents, params.w_k_up)  # (B, T_k, H*d_nope)
    v_projected, expand_v = linear_forward(latents, params.w_v_up)  # (B, T_k, H*d_v)
    k_nope, v = split_heads(k_projected, H), split_heads(v_projected, H)
    k_shared = k_rope[:, None].repeat(H, axis=1)  # (B, H, T_k, d_rope)
    q = np.concatenate([q_nope, q_rope], axis=-1)  # (B, H, T_q, d_k)
    k = np.concatenate([k_nope, k_shared], axis=-1)  # (B, H, T_k, d_k)
    note(
        "expanded", latents=latents, w_k_up=params.w_k_up, w_v_up=params.w_v_up,
        k_projected=k_projected, v_projected=v_projected, k_nope=k_nope, k_shared=k_shared, q=q,
        k=k, v=v,
    )  # fmt: skip

    # 4. attend; the scale is that of a whole head, 1 / sqrt(d_nope + d_rope)
    with renamed(**({} if options.get("head_gate") is None else GATED)):
        heads, attention = attention_forward(q, k, v, **options)  # (B, H, T_q, d_v)
    return heads, ExpandedCache(expand_k, expand_v, attention)


def expanded_steps_backward(
    d_heads: Array, cache: ExpandedCache, d_nope: int
) -> tuple[Tokens, Params, list[Array | None]]:
    """Pull back to the tokens, to the params of step 3, and to the options."""
    # 4. heads = attention(q, k, v)
    with renamed(**({} if cache.attention.inputs.head_gate is None else GATED)):
        d_q, d_k, d_v, *d_options = attention_backward(d_heads, cache.attention)

    # 3. q = [q_nope, q_rope], k = [split_heads(latents @ w_k_up), k_rope] for each head
    d_q_nope, d_q_rope = np.split(d_q, [d_nope], axis=-1)
    d_k_nope, d_k_shared = np.split(d_k, [d_nope], axis=-1)
    d_k_rope = d_k_shared.sum(axis=1, keepdims=True)  # (B, 1, T_k, d_rope): all heads read it
    d_k_projected, d_v_projected = merge_heads(d_k_nope), merge_heads(d_v)
    d_latents_k, d_w_k_up, _ = linear_backward(d_k_projected, cache.expand_k)
    d_latents_v, d_w_v_up, _ = linear_backward(d_v_projected, cache.expand_v)
    d_latents = d_latents_k + d_latents_v  # (B, T_k, d_c): keys and values read it
    d_kept = np.concatenate([d_latents[:, None], d_k_rope], axis=-1)
    note(
        "expanded, backward", d_q_nope=d_q_nope, d_q_rope=d_q_rope, d_k_projected=d_k_projected,
        d_v_projected=d_v_projected, d_w_k_up=d_w_k_up, d_w_v_up=d_w_v_up, d_latents=d_latents,
        d_kept=d_kept,
    )  # fmt: skip
    d_params: Params = {"w_k_up": d_w_k_up, "w_v_up": d_w_v_up}
    return Tokens(d_q_nope, d_q_rope, d_kept), d_params, d_options


def absorbed_steps(
    tokens: Tokens, inputs: LatentInputs, options: AttentionOptions
) -> tuple[Array, AttentionCache]:
    """Attend to what is kept of each token: the same heads, without a key or value of any head.

    ``q_nope (latents w_k_up)^T = (q_nope w_k_up^T) latents^T``: the key's map moves to the query.
    ``weights (latents w_v_up) = (weights latents) w_v_up``: the value's map moves behind the mix.
    """
    q_nope, q_rope, kept = tokens
    params, H, d_c = inputs.params, inputs.num_heads, len(inputs.params.kv_gain)
    w_k = params.w_k_up.reshape(d_c, H, -1).transpose(1, 2, 0)  # (H, d_nope, d_c)
    w_v = params.w_v_up.reshape(d_c, H, -1).swapaxes(0, 1)  # (H, d_c, d_v)

    # 3. take each query to the latents
    q_absorbed = _map_heads(q_nope, w_k)  # (B, H, T_q, d_c)
    q = np.concatenate([q_absorbed, q_rope], axis=-1)  # (B, H, T_q, d_c + d_rope)
    latents = kept[..., :d_c]  # (B, 1, T_k, d_c): the values are part of the keys
    note("absorbed", w_k=w_k, w_v=w_v, q_absorbed=q_absorbed, q=q, k=kept, v=latents)

    # 4. attend: one key/value head for all; the scale is still that of a whole head
    if options.get("scale") is None:
        options["scale"] = 1 / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1] or 1)
    names = {"heads": "latent_heads"} if options.get("head_gate") is None else LATENT_GATED
    with renamed(**names, d_v="d_c"):
        latent_heads, attention = attention_forward(q, kept, latents, **options)
    heads = _map_heads(latent_heads, w_v)  # (B, H, T_q, d_c) to (B, H, T_q, d_v)
    note("absorbed heads", heads=heads)
    return heads, attention


def _map_heads(heads: Array, w: Array) -> Array:
    """Map each head by its own matrix: (B, H, T, I) and (H, I, O) to (B, H, T, O)."""
    dtype = result_dtype(heads, w)
    inner = compute_dtype(dtype)
    return (heads.astype(inner, copy=False) @ w.astype(inner, copy=False)).astype(dtype, copy=False)


def project_out(heads: Array, params: LatentAttentionParams) -> tuple[Array, LinearCache]:
    """Merge the heads and project: step 5."""
    # 5. merge and project
    merged = merge_heads(heads)  # (B, T_q, H*d_v)
    out, cache = linear_forward(merged, params.w_o)  # (B, T_q, D_out)
    note("out", w_o=params.w_o, merged=merged, out=out)
    return out, cache


@takes_attention_options
def latent_attention_forward(
    x: Array,
    *,
    params: LatentAttentionParams,
    num_heads: int,
    rope: RopeOptions = INTERLEAVED,
    positions: Array | None = None,
    eps: float = 1e-6,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, LatentAttentionCache]:
    """Attend with keys and values of all heads made from one latent per token.

    ``[c, r] = x w_kv_down``, ``latent = norm(c)``, and for head h ``k_h = [latent w_k_up^h,
    rotate(r)]``, ``v_h = latent w_v_up^h`` and ``q_h = [q_nope^h, rotate(q_rope^h)]``.

    Parameters
    ----------
    x : (B, T, D) float array
        Queries, keys and values all come from it.
    params : LatentAttentionParams
        Their shapes say the widths: d_c is that of `kv_gain`, d_rope that of the rotated key.
    num_heads : int
        H.
    rope : RopeOptions
        How to rotate d_rope features. Default: by interleaved pairs, as in DeepSeek's params.
    positions : (T,) or (B, T) array of numbers, optional
        By which queries and keys are rotated; default ``0, 1, ..., T - 1``.
    eps : float
        Of both norms.
    {names}
        As `attention_forward` explains them. The default scale is ``1 / sqrt(d_nope + d_rope)``;
        a model with YaRN multiplies that by a factor and passes the product.

    Returns
    -------
    out : (B, T, D_out) array
        D_out is the width of w_o, usually D.
    cache : LatentAttentionCache

    Notes
    -----
    The norms of the latents are part of DeepSeek's models, not of the paper's equations. Sources:
    DeepSeek-AI 2024, *DeepSeek-V2*, eq. 9 to 19; YaRN: DeepSeek's published code. Derivation:
    ``docs/latent.md``.

    Examples
    --------
    >>> shapes = (16, 7), (7,), (7, 4 * 5), (16, 6 + 2), (6,), (6, 4 * 3), (6, 4 * 9), (4 * 9, 16)
    >>> params = LatentAttentionParams(*map(np.ones, shapes))
    >>> out, cache = latent_attention_forward(np.ones((2, 5, 16)), params=params, num_heads=4)
    >>> out.shape, cache.attention.weights.shape
    ((2, 5, 16), (2, 4, 5, 5))
    """
    inputs = check_latent_inputs(x, params, num_heads, rope, positions, eps)
    with backend(options.pop("backend", None)):
        tokens, compress = compress_steps(inputs)
        heads, expanded = expanded_steps(tokens, inputs, options)
        out, of_out = project_out(heads, inputs.params)
    return out, LatentAttentionCache(compress, expanded, of_out, inputs)


def latent_attention_backward(d_out: Array, cache: LatentAttentionCache) -> LatentAttentionGrads:
    """Pull a gradient back through latent attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, T, D_out) float array
    cache : LatentAttentionCache

    Returns
    -------
    LatentAttentionGrads
        ``d_x, d_params, d_bias, d_sink, d_head_gate``. The latent gets gradients from the keys
        and the values of all heads, the rotated key from all heads, and x from queries and keys.

    Examples
    --------
    >>> shapes = (16, 7), (7,), (7, 4 * 5), (16, 6 + 2), (6,), (6, 4 * 3), (6, 4 * 9), (4 * 9, 16)
    >>> params = LatentAttentionParams(*map(np.ones, shapes))
    >>> out, cache = latent_attention_forward(np.ones((2, 5, 16)), params=params, num_heads=4)
    >>> grads = latent_attention_backward(np.ones_like(out), cache)
    >>> grads.d_x.shape, grads.d_params.w_kv_down.shape
    ((2, 5, 16), (16, 8))
    """
    check_type("cache", cache, LatentAttentionCache, "latent_attention_forward")
    d_out = as_float_array("d_out", d_out)
    B, T, _ = cache.project_out.x.shape
    sizes = {"B": B, "T": T, "D_out": cache.project_out.w.shape[1]}
    check_shape("d_out", d_out, "B T D_out", sizes)

    # 5. merged = merge_heads(heads), out = merged @ w_o
    d_merged, d_w_o, _ = linear_backward(d_out, cache.project_out)
    d_heads = split_heads(d_merged, cache.inputs.num_heads)
    note("out, backward", d_out=d_out, d_merged=d_merged, d_w_o=d_w_o, d_heads=d_heads)

    # 4. and 3. heads = attention(q, k, v), of keys and values made from the latents
    d_tokens, d_params, d_options = expanded_steps_backward(
        d_heads, cache.expanded, cache.inputs.d_nope
    )

    # 2. and 1. queries and latents from x
    d_x, d_more = compress_steps_backward(d_tokens, cache.compress)
    params: Any = {"w_o": d_w_o, **d_params, **d_more}
    return LatentAttentionGrads(d_x, LatentAttentionParams(**params), *d_options)


@takes_attention_options
def latent_attention_decode(
    x: Array,
    *,
    kv_cache: KVCache,
    params: LatentAttentionParams,
    num_heads: int,
    rope: RopeOptions = INTERLEAVED,
    positions: Array | None = None,
    eps: float = 1e-6,
    absorb: bool = True,
    **options: Unpack[AttentionOptions],
) -> tuple[Array, AttentionCache]:
    """Attend from new tokens to all tokens so far, of which `kv_cache` holds only the latents.

    It returns what `latent_attention_forward` gives for the last T tokens of the whole sequence. It
    has no backward: it is for inference.

    Parameters
    ----------
    x : (B, T, D) float array
        The new tokens: one when decoding, several when a prompt is read.
    kv_cache : KVCache
        Its keys are (B, 1, length, d_c + d_rope): each token's latent, then its rotated key. Its
        values have no features, because they are the latents too. Unchanged if an error is raised.
    params, num_heads, rope, eps
        As in `latent_attention_forward`.
    positions : (T,) or (B, T) array of numbers, optional
        Default: from the cache's length on.
    absorb : bool
        Whether to attend to the latents themselves, with w_k_up and w_v_up on the side of the
        query; else keys and values of all heads are made again from all latents. The outputs are
        the same; absorbing is cheaper for few new tokens, expanding for a long prompt.
    {names}
        As in `attention_forward`, except `q_offset`, which is the cache's length. With T > 1 a
        causal model needs ``is_causal=True`` here too.

    Returns
    -------
    out : (B, T, D_out) array
    cache : AttentionCache
        With the (B, H, T, T_k) ``cache.weights``; of multi-query attention if `absorb`.

    Notes
    -----
    Source: DeepSeek-AI 2024, *DeepSeek-V2*, section 2.1.2. Derivation: ``docs/latent.md``.

    Examples
    --------
    >>> shapes = (16, 7), (7,), (7, 4 * 5), (16, 6 + 2), (6,), (6, 4 * 3), (6, 4 * 9), (4 * 9, 16)
    >>> params = LatentAttentionParams(*map(np.ones, shapes))
    >>> kv_cache = KVCache()
    >>> for token in range(3):
    ...     out, cache = latent_attention_decode(
    ...         np.ones((1, 1, 16)), kv_cache=kv_cache, params=params, num_heads=4)
    >>> out.shape, cache.weights.shape, kv_cache.nbytes  # 3 tokens of 6 + 2 numbers
    ((1, 1, 16), (1, 4, 1, 3), 192)
    """
    if not isinstance(kv_cache, KVCache):
        raise ConfigError(f"kv_cache: expected a KVCache; got {type(kv_cache).__name__}")
    if "q_offset" in options:
        raise ConfigError("q_offset: expected none with a KV cache, whose length it is")
    inputs = check_latent_inputs(x, params, num_heads, rope, positions, eps)
    absorb = check_flag("absorb", absorb)
    options["q_offset"] = past = kv_cache.length
    with backend(options.pop("backend", None)), kv_cache.unchanged_on_error():
        with renamed(kept="kept_new"):
            tokens, _ = compress_steps(inputs, past)
        held = kv_cache.held
        kept, _ = kv_cache.append(tokens.kept, tokens.kept[..., :0])
        note_append(held, kept)
        tokens = tokens._replace(kept=kept)
        if absorb:
            heads, attention = absorbed_steps(tokens, inputs, options)
        else:
            heads, (_, _, attention) = expanded_steps(tokens, inputs, options)
        out, _ = project_out(heads, inputs.params)
    return out, attention
