"""Scaled dot-product attention, single-head to grouped, forward and backward."""

import numpy as np

from mha_numpy.core.attention_inputs import check_attention_inputs
from mha_numpy.core.attention_types import AttentionCache, AttentionGrads
from mha_numpy.core.checks import check_type
from mha_numpy.core.dtypes import Array, as_float_array
from mha_numpy.core.grouped import shared_matmul, summed_matmul
from mha_numpy.core.masks import Window
from mha_numpy.core.shapes import broadcast_axes, check_shape, sum_to_shape
from mha_numpy.core.softmax import softmax_backward, softmax_forward
from mha_numpy.core.steps import step
from mha_numpy.core.visibility import only_visible


def attention_forward(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    is_causal: bool = False,
    q_offset: int | Array = 0,
    window: Window | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout_mask: Array | None = None,
    head_gate: Array | None = None,
    backend: str = "numpy",
) -> tuple[Array, AttentionCache]:
    """Let every query take a weighted mean of the values: ``softmax(scale * q k^T + bias) v``.

    Parameters
    ----------
    q : (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k) float array
        Queries; a single head has no head axis.
    k : (B, H_kv, T_k, d_k) float array, or of lower rank like `q`
        Keys. Where H_kv < H, it divides H and query head h reads head ``h // (H // H_kv)``.
    v : (B, H_kv, T_k, d_v) float array, or of lower rank like `q`
        Values.
    mask : bool array that broadcasts to (B, H, T_q, T_k), optional
        True = may attend.
    bias : float array that broadcasts to (B, H, T_q, T_k), optional
        Added to the scores; -inf hides a cell as the mask does.
    is_causal : bool
        Let query i see key j only if ``j <= i + q_offset``.
    q_offset : int or (B,) int array
        Position of the first query among the keys; read by `is_causal` and `window`.
    window : (left, right), optional
        How far a query sees, inclusive, from key ``i + q_offset``; None = unbounded.
    softcap : float, optional
        c > 0 bounds the scores smoothly: ``c * tanh(scores / c)``.
    scale : float, optional
        Default ``1 / sqrt(d_k)``.
    dropout_mask : float array that broadcasts to (B, H, T_q, T_k), optional
        0 or ``1 / (1 - p)`` for each weight.
    head_gate : (H,) or (B, H) float array, optional
        A multiplier for each head.
    backend : {"numpy"}
        Who computes.

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank like `q`
        In the promoted dtype of all inputs. A row that sees nothing is 0.
    cache : AttentionCache
        With ``cache.lse``; `attention_stages` gives the scores at every stage.

    Raises
    ------
    DTypeError, ShapeError, MaskError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

    Notes
    -----
    2 B H T_q T_k (d_k + d_v) floating-point operations. The cache holds B H T_q T_k weights, and
    as many numbers again for each of softcap, dropout and head gate.
    mask, is_causal, window and a bias of -inf combine by AND. Sources: Vaswani et al. 2017,
    eq. 1; grouped heads: Ainslie et al. 2023; softcap: Gemma Team 2024,
    *Gemma 2*, section 2.
    Derivation: ``docs/attention.md``.

    Examples
    --------
    >>> q, k, v = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))
    >>> out, cache = attention_forward(q, k, v, is_causal=True)
    >>> out.shape, cache.lse.shape
    ((2, 6, 5, 4), (2, 6, 5))
    """
    inputs = check_attention_inputs(
        q, k, v, mask=mask, bias=bias, is_causal=is_causal, q_offset=q_offset, window=window,
        softcap=softcap, scale=scale, dropout_mask=dropout_mask, head_gate=head_gate,
        backend=backend,
    )  # fmt: skip
    q, k, v, bias, head_gate = inputs.q, inputs.k, inputs.v, inputs.bias, inputs.head_gate
    scale, softcap, dropout_mask = inputs.scale, inputs.softcap, inputs.dropout_mask
    visible, cells = inputs.visible, inputs.cell_axes
    step("q", q, f"{inputs.query_axes} T_q d_k")
    step("k", k, f"{inputs.key_axes} T_k d_k")
    step("v", v, f"{inputs.key_axes} T_k d_v")
    if bias is not None:
        step("bias", bias, broadcast_axes(bias.shape, cells, (*q.shape[:-1], k.shape[-2])))
    if head_gate is not None:
        step("head_gate", head_gate, "H" if head_gate.ndim == 1 else "B H")

    # 1. match: how well does each query fit each key?
    scores = scale * shared_matmul(q, k.swapaxes(-1, -2))  # (B, H, T_q, T_k)
    step("scores", scores, cells, "scale * q @ k.T")

    # 2. softcap
    capped = scores if softcap is None else softcap * np.tanh(scores / softcap)
    step("capped", capped, cells, "softcap * tanh(scores / softcap)")

    # 3. bias
    biased = capped if bias is None else capped + bias
    step("biased", biased, cells, "capped + bias")

    # 4. mask and softmax
    weights, softmax_cache = softmax_forward(biased, mask=visible)

    # 5. dropout
    dropped = weights
    if dropout_mask is not None:
        dropped = only_visible(weights * dropout_mask, visible)
    step("dropped", dropped, cells, "weights * dropout_mask")

    # 6. head gate
    gated = dropped
    if head_gate is not None:
        gated = only_visible(dropped * head_gate[..., None, None], visible)
    step("gated", gated, cells, "dropped * head_gate")

    # 7. mix: each query's mean of the values
    heads = shared_matmul(gated, v, visible)  # (B, H, T_q, d_v)
    step("heads", heads, f"{inputs.query_axes} T_q d_v", "gated @ v")

    cache = AttentionCache(
        inputs, None if softcap is None else capped, softmax_cache, dropped, gated
    )
    return heads.astype(inputs.dtype, copy=False), cache


def attention_backward(d_out: Array, cache: AttentionCache) -> AttentionGrads:
    """Pull a gradient back through attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, H, T_q, d_v) float array, or of lower rank like the output
    cache : AttentionCache

    Returns
    -------
    AttentionGrads
        ``d_q, d_k, d_v, d_bias, d_head_gate``; the last two None where the input was None. A
        key or value head that serves a group receives the sum of its group's gradients. Hidden
        cells and rows that see nothing give exactly 0.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_out` is not a float array or has not the shape of the output.
        `cache` is not forward's.

    Notes
    -----
    About twice forward's operations. Derivation: ``docs/attention.md``, ``docs/grouped.md``.

    Examples
    --------
    >>> q, k, v = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))
    >>> out, cache = attention_forward(q, k, v)
    >>> grads = attention_backward(np.ones_like(out), cache)
    >>> grads.d_q.shape, grads.d_k.shape, grads.d_v.shape
    ((2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4))
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    inputs, capped, softmax_cache, dropped, gated = cache
    q, k, v, bias, head_gate = inputs.q, inputs.k, inputs.v, inputs.bias, inputs.head_gate
    scale, softcap, dropout_mask = inputs.scale, inputs.softcap, inputs.dropout_mask
    visible, cells = inputs.visible, inputs.cell_axes
    visible_T = None if visible is None else visible.swapaxes(-1, -2)
    weights, leading = softmax_cache.weights, k.shape[:-2]
    summed = "" if leading == q.shape[:-2] else ", summed over each group"
    d_out = as_float_array("d_out", d_out)
    sizes = dict(zip(f"{cells} d_v".split(), (*weights.shape, v.shape[-1]), strict=True))
    check_shape("d_out", d_out, f"{inputs.query_axes} T_q d_v", sizes)
    d_heads = d_out.astype(np.result_type(d_out, weights), copy=False)
    step("d_heads", d_heads, f"{inputs.query_axes} T_q d_v")

    # 7. heads = gated @ v
    d_gated = only_visible(shared_matmul(d_heads, v.swapaxes(-1, -2)), visible)
    d_v = summed_matmul(gated.swapaxes(-1, -2), d_heads, leading, visible_T)
    step("d_gated", d_gated, cells, "d_heads @ v.T")
    step("d_v", d_v, f"{inputs.key_axes} T_k d_v", f"gated.T @ d_heads{summed}")

    # 6. gated = dropped * head_gate
    d_dropped = d_gated if head_gate is None else d_gated * head_gate[..., None, None]
    step("d_dropped", d_dropped, cells, "d_gated * head_gate")
    d_head_gate = None
    if head_gate is not None:
        d_head_gate = sum_to_shape((d_gated * dropped).sum(axis=(-2, -1)), head_gate.shape)
        axes = "H" if head_gate.ndim == 1 else "B H"
        step("d_head_gate", d_head_gate, axes, "d_gated * dropped, summed over each head")

    # 5. dropped = weights * dropout_mask
    d_weights = d_dropped if dropout_mask is None else d_dropped * dropout_mask
    step("d_weights", d_weights, cells, "d_dropped * dropout_mask")

    # 4. weights = softmax(biased)
    d_biased = softmax_backward(d_weights, softmax_cache).d_scores
    step("d_biased", d_biased, cells)

    # 3. biased = capped + bias
    d_capped = d_biased
    step("d_capped", d_capped, cells)
    d_bias = None if bias is None else sum_to_shape(d_biased, bias.shape)
    if d_bias is not None:
        axes = broadcast_axes(d_bias.shape, cells, weights.shape)
        step("d_bias", d_bias, axes, "d_biased, summed over broadcast axes")

    # 2. capped = softcap * tanh(scores / softcap)
    d_scores = d_capped
    if softcap is not None and capped is not None:
        d_scores = only_visible(d_capped * (1 - (capped / softcap) ** 2), visible)
    step("d_scores", d_scores, cells, "d_capped * (1 - (capped / softcap)^2)")

    # 1. scores = scale * q @ k^T
    d_q = scale * shared_matmul(d_scores, k, visible)
    d_k = scale * summed_matmul(d_scores.swapaxes(-1, -2), q, leading, visible_T)
    step("d_q", d_q, f"{inputs.query_axes} T_q d_k", "scale * d_scores @ k")
    step("d_k", d_k, f"{inputs.key_axes} T_k d_k", f"scale * d_scores.T @ q{summed}")

    grads = AttentionGrads(d_q, d_k, d_v, d_bias, d_head_gate)
    return AttentionGrads._make(
        g if g is None else g.astype(inputs.dtype, copy=False) for g in grads
    )
