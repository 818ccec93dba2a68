"""A KV cache in 8 bits: keys and values as int8, with one scale per token and head."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_type
from mha_numpy.core.attention import AttentionCache
from mha_numpy.core.kv_cache import KVCache
from mha_numpy.dtypes import Array, as_float_array, compute_dtype
from mha_numpy.errors import ConfigError, DTypeError, describe

TINY = np.finfo(np.float32).tiny  # for sums of weights in rows that see nothing
LEVELS = 127  # on each side of zero; -128 is not used, or the steps would not be symmetric


def quantise(x: Array, axis: int = -1) -> tuple[Array, Array]:
    """Round numbers to 255 evenly spaced ones: ``x = x_int8 * scale``, off by at most scale / 2.

    Parameters
    ----------
    x : float array
    axis : int
        Numbers along it share a scale. -1 is a scale per token; -2, for keys (..., T, d_k), one per
        channel.

    Returns
    -------
    x_int8 : int8 array like `x`
    scale : float array like `x`, with size 1 along `axis`
        ``max |x| / 127``, float32 for float16; NaN where `x` has NaN or inf, and all that share the
        scale become NaN.

    Examples
    --------
    >>> quantise(np.array([[0.5, -1.27, 0.004]]))
    (array([[  50, -127,    0]], dtype=int8), array([[0.01]]))
    """
    x = as_float_array("x", x)
    if isinstance(axis, bool) or axis not in range(-x.ndim, x.ndim):
        raise ConfigError(f"axis: expected one of x {x.shape}; got {describe(axis)}")
    x = x.astype(compute_dtype(x.dtype), copy=False)
    scale = np.abs(x).max(axis=axis, keepdims=True, initial=0) / LEVELS
    scale = np.where(np.isfinite(scale), scale, np.nan).astype(x.dtype, copy=False)
    has_scale = scale > 0  # not where all are zero, nor for NaN
    x_int8 = np.rint(np.where(has_scale, x, 0) / np.where(has_scale, scale, 1)).astype(np.int8)
    return x_int8, scale


def dequantise(x_int8: Array, scale: Array, dtype: Any = None) -> Array:
    """Return ``x_int8 * scale``, in the dtype of the scale by default.

    Examples
    --------
    >>> dequantise(np.array([[50, -127, 0]], np.int8), np.array([[0.01]]))
    array([[ 0.5 , -1.27,  0.  ]])
    """
    scale = as_float_array("scale", scale)
    if np.asarray(x_int8).dtype != np.int8:
        raise DTypeError(f"x_int8: expected an int8 array; got {describe(x_int8)}")
    return (x_int8 * scale).astype(scale.dtype if dtype is None else dtype, copy=False)


class Int8KVCache(KVCache):
    """Keys and values rounded to 8 bits, with a scale for each token and key/value head.

    A token takes ``d_k + d_v`` bytes and two scales per head instead of 4 or 8 bytes per number.
    `append` and `held` return float arrays, in the dtype that was appended: attention reads the
    rounded numbers.

    Notes
    -----
    ``|k - k_read| <= scale / 2`` for each number, and `int8_bounds` says what follows for the
    output. A token with NaN or inf is read as NaN. Sources: Dettmers et al. 2022, *LLM.int8()*,
    section 2.1 (absmax quantisation); Liu et al. 2024, *KIVI*, section 3 (scales per token and per
    channel). Derivation: ``docs/caches.md``.

    Examples
    --------
    >>> kv_cache = Int8KVCache()
    >>> k, v = kv_cache.append(np.full((1, 2, 3, 64), 0.3), np.full((1, 2, 3, 64), 0.5))
    >>> k.dtype, kv_cache.nbytes, 3 * 2 * (64 + 64 + 8 + 8)
    (dtype('float64'), 864, 864)
    """

    def _encode(self, k: Array, v: Array) -> list[Array]:
        (k_int8, k_scale), (v_int8, v_scale) = quantise(k), quantise(v)
        # arrays without columns, which remember the dtypes and promote as others do
        return [k_int8, v_int8, k_scale, v_scale, k[..., :0], v[..., :0]]

    def _decode(self, parts: list[Array]) -> list[Array]:
        if not parts:
            return []
        k_int8, v_int8, k_scale, v_scale, like_k, like_v = parts
        return [
            dequantise(k_int8, k_scale, like_k.dtype),
            dequantise(v_int8, v_scale, like_v.dtype),
        ]


class Int8Bounds(NamedTuple):
    """How far attention to rounded keys and values can be from the exact one."""

    scores: Array  # (B, H, T_q, T_k)
    weights: Array  # (B, H, T_q, T_k)
    heads: Array  # (B, H, T_q, d_v)


def int8_bounds(cache: AttentionCache) -> Int8Bounds:
    """Bound what changes if the keys and values go through an `Int8KVCache`.

    Parameters
    ----------
    cache : AttentionCache
        From `attention_forward` with the exact keys and values, at rank 4 and without dropout.

    Returns
    -------
    Int8Bounds
        Largest differences of ``scores``, ``weights`` and ``heads``, number by number; the rounding
        of floats, which is far smaller, comes on top. `heads` are before the head gate.

    Notes
    -----
    Takes an array (B, H, T_q, T_k, d_v). Derivation: ``docs/caches.md``.

    Examples
    --------
    >>> from mha_numpy import attention_forward
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 1, 2, 5, 16))
    >>> kv_cache = Int8KVCache()
    >>> (exact, cache), (rounded, _) = attention_forward(q, k, v), attention_forward(
    ...     q, *kv_cache.append(k, v))
    >>> bool((abs(rounded - exact) <= int8_bounds(cache).heads).all())
    True
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    q, k, v, scale = (getattr(cache.inputs, name) for name in ("q", "k", "v", "scale"))
    if q.ndim != 4 or cache.inputs.dropout_mask is not None:
        raise ConfigError("cache: expected one of attention at rank 4, without dropout")
    G = q.shape[1] // max(k.shape[1], 1)
    k_step, v_step = (  # (B, H, 1, T_k): half a step of the scale, as each query head reads it
        (quantise(x)[1] / 2).swapaxes(-1, -2).repeat(G, axis=1) for x in (k, v)
    )

    # 1. a score is a sum of products, and each product is off by |q| / 2 steps at most
    scores = abs(scale) * np.abs(q).sum(axis=-1, keepdims=True) * k_step

    # 2. a weight p e^error / sum of p e^error is largest if its own score gains and all others lose
    p = cache.weights
    above, below = p * np.exp(scores), p * np.exp(-scores)
    most, least = (np.maximum(x.sum(axis=-1, keepdims=True), TINY) for x in (above, below))
    weights = np.maximum(above / (above + least - below) - p, p - below / (below + most - above))

    # 3. values are off by half a step, and weights move the mean: sum of p (v - mean) is 0
    apart = np.abs(v.repeat(G, axis=1)[:, :, None] - cache.heads[:, :, :, None])
    heads = (((above - p)[..., None] * apart).sum(axis=3) / least) + (
        (above * v_step).sum(axis=-1, keepdims=True) / least
    )
    return Int8Bounds(scores, weights, heads)
