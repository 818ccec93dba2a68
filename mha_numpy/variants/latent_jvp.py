"""Forward mode of latent attention, step by step as in ``latent.py``."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_type
from mha_numpy.core.attention_jvp import attention_jvp
from mha_numpy.core.linear import linear_jvp
from mha_numpy.core.rms_norm import rms_norm_jvp
from mha_numpy.core.rope import rope_jvp
from mha_numpy.core.shapes import merge_heads, split_heads
from mha_numpy.core.tangents import shapes_of, tangents_with_params
from mha_numpy.dtypes import Array
from mha_numpy.variants.latent import (
    CompressCache,
    ExpandedCache,
    LatentAttentionCache,
    LatentAttentionGrads,
    Tokens,
)
from mha_numpy.variants.latent_params import LatentInputs


def compress_steps_jvp(
    x_dot: Array, params_dot: dict[str, Any], cache: CompressCache, inputs: LatentInputs
) -> Tokens:
    """Push the tangents of x and of the params of steps 1 and 2 to the tokens."""
    # 1. q_nope, q_flat = split(norm(x @ w_q_down) @ w_q), q_rope = rotate(q_flat)
    q_latent_dot = x_dot
    if cache.project_q_down is not None and cache.norm_q is not None:
        q_down_dot = linear_jvp((x_dot, params_dot["w_q_down"]), cache.project_q_down)
        q_latent_dot = rms_norm_jvp((q_down_dot, params_dot["q_gain"]), cache.norm_q)
    q_projected_dot = linear_jvp((q_latent_dot, params_dot["w_q"]), cache.project_q)
    q_unrotated_dot = split_heads(q_projected_dot, inputs.num_heads)
    q_nope_dot, q_flat_dot = np.split(q_unrotated_dot, [inputs.d_nope], axis=-1)
    q_rope_dot = rope_jvp(q_flat_dot, cache.rotate_q)

    # 2. kv_latent, k_flat = split(x @ w_kv_down), kept = [norm(kv_latent), rotate(k_flat)]
    d_c = cache.norm_kv.x_hat.shape[-1]
    kv_down_dot = linear_jvp((x_dot, params_dot["w_kv_down"]), cache.project_kv_down)
    kv_latent_dot, k_flat_dot = np.split(kv_down_dot, [d_c], axis=-1)
    latent_dot = rms_norm_jvp((kv_latent_dot, params_dot["kv_gain"]), cache.norm_kv)
    k_rope_dot = rope_jvp(k_flat_dot[:, None], cache.rotate_k)
    kept_dot = np.concatenate([latent_dot[:, None], k_rope_dot], axis=-1)
    return Tokens(q_nope_dot, q_rope_dot, kept_dot)


def expanded_steps_jvp(
    tokens_dot: Tokens, dots: dict[str, Any], params_dot: dict[str, Any], cache: ExpandedCache,
    inputs: LatentInputs,
) -> Array:  # fmt: skip
    """Push the tangents of the tokens, of the params of step 3 and of options to the heads."""
    q_nope_dot, q_rope_dot, kept_dot = tokens_dot
    H, d_c = inputs.num_heads, len(inputs.params.kv_gain)
    latents_dot, k_rope_dot = np.split(kept_dot[:, 0], [d_c], axis=-1)

    # 3. q = [q_nope, q_rope], k = [split_heads(latents @ w_k_up), k_rope] for each head
    k_projected_dot = linear_jvp((latents_dot, params_dot["w_k_up"]), cache.expand_k)
    v_projected_dot = linear_jvp((latents_dot, params_dot["w_v_up"]), cache.expand_v)
    k_nope_dot, v_dot = split_heads(k_projected_dot, H), split_heads(v_projected_dot, H)
    k_shared_dot = k_rope_dot[:, None].repeat(H, axis=1)
    q_dot = np.concatenate([q_nope_dot, q_rope_dot], axis=-1)
    k_dot = np.concatenate([k_nope_dot, k_shared_dot], axis=-1)

    # 4. heads = attention(q, k, v)
    options_dot = dots["bias"], dots["sink"], dots["head_gate"]
    heads_dot, _ = attention_jvp((q_dot, k_dot, v_dot, *options_dot), cache.attention)
    return heads_dot


def latent_attention_jvp(tangents: Any, cache: LatentAttentionCache) -> Array:
    """Push tangents through latent attention: forward's steps, first to last.

    Parameters
    ----------
    tangents : tuple or dict
        In the order of the gradients, ``x, params, bias, sink, head_gate``, or by these names.
        Those of params are LatentAttentionParams, or a dict by the names of its fields. None, or a
        missing one, does not move.
    cache : LatentAttentionCache

    Returns
    -------
    out_dot : (B, T, D_out) array
        How fast the output moves.

    Examples
    --------
    >>> from mha_numpy.variants import LatentAttentionParams, latent_attention_forward
    >>> shapes = (16, 7), (7,), (7, 4 * 5), (16, 6 + 2), (6,), (6, 4 * 3), (6, 4 * 9), (4 * 9, 16)
    >>> params = LatentAttentionParams(*map(np.ones, shapes))
    >>> out, cache = latent_attention_forward(np.ones((2, 5, 16)), params=params, num_heads=4)
    >>> out_dot = latent_attention_jvp({"params": {"w_o": params.w_o}}, cache)
    >>> np.array_equal(out_dot, out)  # linear in w_o
    True
    """
    check_type("cache", cache, LatentAttentionCache, "latent_attention_forward")
    inputs, options = cache.inputs, cache.attention.inputs
    arrays = {
        "x": inputs.x, "bias": options.bias, "sink": options.sink, "head_gate": options.head_gate,
    }  # fmt: skip
    shapes, of_params = shapes_of(arrays), shapes_of(inputs.params._asdict())
    dots, params_dot = tangents_with_params(
        tangents, LatentAttentionGrads._fields, shapes, of_params, inputs.x.dtype
    )

    # 1. and 2. queries and latents from x
    tokens_dot = compress_steps_jvp(dots["x"], params_dot, cache.compress, inputs)

    # 3. and 4. heads = attention(q, k, v), of keys and values made from the latents
    heads_dot = expanded_steps_jvp(tokens_dot, dots, params_dot, cache.expanded, inputs)

    # 5. merged = merge_heads(heads), out = merged @ w_o
    return linear_jvp((merge_heads(heads_dot), params_dot["w_o"]), cache.project_out)
