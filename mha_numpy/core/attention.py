"""Scaled dot-product attention, single-head to grouped: seven steps forward, seven backward.

The equations come first, for all cells at once; a cell is a pair of query and key. The public
functions follow. They check their arguments and leave steps 1 to 6 to a backend: these equations,
or ``mha_numpy.kernels``, which computes the same.
"""

from typing import Any, Literal, NamedTuple, Unpack, overload

import numpy as np

from mha_numpy.backends import chosen_backend
from mha_numpy.checks import check_shape, check_type
from mha_numpy.core.attention_recording import (
    AttentionCells,
    AttentionSteps,
    AttentionStepsBackward,
    record_attention,
    record_attention_backward,
)
from mha_numpy.core.grouped import shared_matmul, summed_matmul
from mha_numpy.core.kernel_calls import find_attention_kernels, kernel_backward, kernel_forward
from mha_numpy.core.masks import only_visible
from mha_numpy.core.options import (
    AttentionInputs,
    AttentionOptions,
    check_attention_inputs,
    takes_attention_options,
)
from mha_numpy.core.shapes import sum_to_shape
from mha_numpy.core.softmax import softmax_steps, softmax_steps_backward
from mha_numpy.dtypes import Array, as_float_array, result_dtype
from mha_numpy.steps import is_watched


def attention_steps(inputs: AttentionInputs) -> AttentionSteps:
    """Attend: steps 1 to 6."""
    q, k, v, bias, dropout_mask = inputs.q, inputs.k, inputs.v, inputs.bias, inputs.dropout_mask
    scale, softcap, visible, sink = inputs.scale, inputs.softcap, inputs.visible, inputs.sink

    # 1. match: how well does each query fit each key?
    scores = scale * shared_matmul(q, k.swapaxes(-1, -2))  # (B, H, T_q, T_k)

    # 2. softcap
    capped = scores if softcap is None else softcap * np.tanh(scores / softcap)

    # 3. bias
    biased = capped if bias is None else capped + bias

    # 4. mask and softmax
    sink_score = None if sink is None else sink[..., None, None]  # (B, H, 1, 1)
    masked, lse, weights = softmax_steps(biased, visible, sink_score)

    # 5. dropout
    dropped = weights
    if dropout_mask is not None:
        dropped = only_visible(weights * dropout_mask, visible)

    # 6. mix: each query's mean of the values
    heads = shared_matmul(dropped, v, visible)  # (B, H, T_q, d_v)
    return AttentionSteps(visible, scores, capped, biased, masked, weights, dropped, heads, lse)


def gate_heads(heads: Array, head_gate: Array | None, lse: Array) -> Array:
    """Multiply each head by its gate: step 7."""
    # 7. head gate; a row that sees nothing stays 0 with any gate
    if head_gate is None:
        return heads
    sees_any = (lse != -np.inf)[..., None]  # (B, H, T_q, 1)
    return only_visible(heads * head_gate[..., None, None], sees_any)


def gate_heads_backward(
    d_gated: Array, heads: Array, head_gate: Array | None, lse: Array
) -> tuple[Array, Array | None]:
    """Pull back through step 7: d_heads, d_head_gate."""
    # 7. gated = heads * head_gate
    if head_gate is None:
        return d_gated, None
    d_heads = d_gated * head_gate[..., None, None]
    sees_any = (lse != -np.inf)[..., None]  # (B, H, T_q, 1)
    shares = only_visible(d_gated * heads, sees_any)
    return d_heads, sum_to_shape(shares.sum(axis=(-2, -1)), head_gate.shape)


def attention_steps_backward(
    d_heads: Array, d_lse: Array | None, cells: AttentionCells, inputs: AttentionInputs
) -> AttentionStepsBackward:
    """Pull back through steps 6 to 1."""
    q, k, v, bias, dropout_mask = inputs.q, inputs.k, inputs.v, inputs.bias, inputs.dropout_mask
    scale, softcap = inputs.scale, inputs.softcap
    visible, capped, weights, dropped = cells
    visible_T = None if visible is None else visible.swapaxes(-1, -2)
    leading = k.shape[:-2]  # (B, H_kv): a shared head's gradient is the sum over its group

    # 6. heads = dropped @ v
    d_dropped = only_visible(shared_matmul(d_heads, v.swapaxes(-1, -2)), visible)
    d_v = summed_matmul(dropped.swapaxes(-1, -2), d_heads, leading, visible_T)

    # 5. dropped = weights * dropout_mask
    d_weights = d_dropped if dropout_mask is None else d_dropped * dropout_mask

    # 4. weights, lse = softmax(biased)
    d_biased = softmax_steps_backward(d_weights, weights, visible, d_lse)

    # 3. biased = capped + bias
    d_capped = d_biased
    d_bias = None if bias is None else sum_to_shape(d_biased, bias.shape)

    # 2. capped = softcap * tanh(scores / softcap)
    d_scores = d_capped
    if softcap is not None and capped is not None:
        d_scores = only_visible(d_capped * (1 - (capped / softcap) ** 2), visible)

    # 1. scores = scale * q @ k^T
    d_q = scale * shared_matmul(d_scores, k, visible)
    d_k = scale * summed_matmul(d_scores.swapaxes(-1, -2), q, leading, visible_T)
    return AttentionStepsBackward(d_dropped, d_weights, d_biased, d_scores, d_q, d_k, d_v, d_bias)


def sink_backward(
    d_heads: Array, d_lse: Array | None, heads: Array, lse: Array, sink: Array | None,
    row_mean: Array | None = None,
) -> Array | None:  # fmt: skip
    """Pull back through step 4 to the sink: a key's gradient, with a value of zeros.

    A kernel has computed the means of d_weights in each row already, less d_lse.
    """
    if sink is None:
        return None
    weight = sink_weight(sink, lse)
    if row_mean is None:
        row_mean = np.einsum("...d,...d->...", d_heads, heads)  # sum_j weights_j d_weights_j
        row_mean = row_mean if d_lse is None else row_mean - d_lse
    return sum_to_shape(-np.einsum("...i,...i->...", weight, row_mean), sink.shape)


def sink_weight(sink: Array, lse: Array) -> Array:
    """Return the weight that each row gives its sink, by lse, which includes it: (B, H, T_q)."""
    # 4. sink_weight = e^(sink - lse)
    return np.exp(sink[..., None] - np.where(lse == -np.inf, 0, lse))


class AttentionCache(NamedTuple):
    """What `attention_backward` needs, from any backend."""

    inputs: AttentionInputs
    heads: Array  # (B, H, T_q, d_v): before the head gate, in the dtype of the computation
    lse: Array  # (B, H, T_q): log of each row's sum of e^scores; -inf where it sees nothing
    cells: AttentionCells | None  # None after a kernel: it never has all cells at once
    backend: str

    @property
    def weights(self) -> Array:
        """The weights before dropout: (B, H, T_q, T_k).

        After a kernel, the equations compute them again at each access.
        """
        return self.find_cells().weights

    def find_cells(self) -> AttentionCells:
        """Return the arrays that the equations keep, computed now if a kernel ran."""
        if self.cells is not None:
            return self.cells
        return _cells_of(self.inputs, attention_steps(self.inputs))


def _cells_of(inputs: AttentionInputs, steps: AttentionSteps) -> AttentionCells:
    capped = None if inputs.softcap is None else steps.capped
    return AttentionCells(steps.visible, capped, steps.weights, steps.dropped)


class AttentionGrads(NamedTuple):
    """Gradients, in the order of the inputs; None for an input that was not passed."""

    d_q: Array  # (B, H, T_q, d_k)
    d_k: Array  # (B, H_kv, T_k, d_k)
    d_v: Array  # (B, H_kv, T_k, d_v)
    d_bias: Array | None  # like bias
    d_sink: Array | None  # like sink
    d_head_gate: Array | None  # like head_gate


@takes_attention_options
def attention_forward(
    q: Array, k: Array, v: Array, **options: Unpack[AttentionOptions]
) -> tuple[Array, AttentionCache]:
    """Give every query a weighted mean of the values: ``softmax(scale * q k^T + bias) v``.

    An argument of another library, such as `attn_mask`, raises a ConfigError that says what to
    write here.

    Parameters
    ----------
    q : (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k) float array
        Queries; a single head has no head axis.
    k : (B, H_kv, T_k, d_k) float array, or of lower rank like `q`
        Keys. Where H_kv < H, it divides H and query head h reads head ``h // (H // H_kv)``.
    v : (B, H_kv, T_k, d_v) float array, or of lower rank like `q`
        Values.
    {options}

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank like `q`
        In the promoted dtype of all inputs. A row that sees nothing is 0. A kernel's output is
        read-only, because its backward reads it.
    cache : AttentionCache
        With ``cache.lse``; `attention_stages` returns the scores at every stage.

    Notes
    -----
    Forward takes 2 B H T_q T_k (d_k + d_v) floating-point operations. The reference's cache holds
    B H T_q T_k weights, and as many numbers again for each of softcap and dropout; a kernel's cache
    holds only heads and lse. All backends agree to rounding. The equations compute what the kernels
    do not cover: dtypes other than float32 and float64 (float16 and bfloat16 are computed in
    float32), empty axes, and everything that is recorded.
    The cache refers to the inputs, so leave them unchanged until backward has run.
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
    backend = chosen_backend(options.pop("backend", None))
    inputs = check_attention_inputs(q, k, v, options)
    steps = None
    kernels = find_attention_kernels(inputs, backend)
    if kernels is None:
        steps = attention_steps(inputs)
        heads, lse, cells = steps.heads, steps.lse, _cells_of(inputs, steps)
    else:
        (heads, lse), cells = kernel_forward(kernels, inputs), None
    gated = gate_heads(heads, inputs.head_gate, lse)
    if steps is not None and is_watched():
        record_attention(inputs, steps, gated)
    cache = AttentionCache(inputs, heads, lse, cells, backend)
    return gated.astype(inputs.dtype, copy=False), cache


def attention_backward(
    d_out: Array, cache: AttentionCache, *, d_lse: Array | None = None, backend: str | None = None
) -> AttentionGrads:
    """Pull gradients back through attention: forward's steps, last to first.

    Parameters
    ----------
    d_out : (B, H, T_q, d_v) float array, or of lower rank like the output
    cache : AttentionCache
        From any backend's forward.
    d_lse : (B, H, T_q) float array, or of lower rank like ``cache.lse``, optional
        The gradient of ``cache.lse``, if that was used, as `merge_forward` does.
    backend : {"numpy", "loops", "numba"}, optional
        The backend that computes; default that of forward.

    Returns
    -------
    AttentionGrads
        ``d_q, d_k, d_v``, then those of options, ``d_bias, d_sink, d_head_gate``, None where the
        input was None. A key or value head that serves a group receives the sum of its group's
        gradients. Hidden cells and rows that see nothing give exactly 0.

    Notes
    -----
    Backward takes about twice forward's operations, plus forward's once more if it has to recompute
    cells: in a kernel, and in the reference after a kernel. A kernel computes gradients in the
    dtype of forward's computation. Derivation: ``docs/attention.md``, ``docs/grouped.md``.

    Examples
    --------
    >>> q, k, v = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))
    >>> out, cache = attention_forward(q, k, v)
    >>> grads = attention_backward(np.ones_like(out), cache)
    >>> grads.d_q.shape, grads.d_k.shape, grads.d_v.shape
    ((2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4))
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    inputs, heads, lse, cells, own_backend = cache
    backend = own_backend if backend is None else chosen_backend(backend)
    d_gated = _check_gradient("d_out", d_out, heads, inputs.axes.heads)
    if d_lse is not None:
        d_lse = _check_gradient("d_lse", d_lse, lse, inputs.axes.heads.rsplit(" ", 1)[0])
    d_heads, d_head_gate = gate_heads_backward(d_gated, heads, inputs.head_gate, lse)
    kernels = find_attention_kernels(inputs, backend)
    if kernels is None:
        cells = cache.find_cells()
        steps = attention_steps_backward(d_heads, d_lse, cells, inputs)
        grads = steps._asdict()
    else:
        if cells is not None:  # the equations' output is its caller's to change: mix once more
            heads = shared_matmul(cells.dropped, inputs.v, cells.visible)
        steps, grads = None, kernel_backward(kernels, d_heads, d_lse, heads, lse, inputs)
    row_mean = grads.pop("row_mean", None)
    grads["d_sink"] = sink_backward(d_heads, d_lse, heads, lse, inputs.sink, row_mean)
    grads["d_head_gate"] = d_head_gate
    if steps is not None and is_watched():
        of_rows = {"d_gated": d_gated, "d_heads": d_heads, "d_lse": d_lse}
        record_attention_backward(inputs, cache.find_cells().visible, of_rows | grads)
    return AttentionGrads._make(
        None if grads[name] is None else grads[name].astype(inputs.dtype, copy=False)
        for name in AttentionGrads._fields
    )


def _check_gradient(name: str, gradient: Any, of: Array, axes: str) -> Array:
    """Return the gradient of an output in the dtype of the computation."""
    gradient = as_float_array(name, gradient)
    if gradient.shape != of.shape:
        check_shape(name, gradient, axes, dict(zip(axes.split(), of.shape, strict=True)))
    if gradient.dtype == of.dtype:
        return gradient
    return gradient.astype(result_dtype(gradient, of), copy=False)


class AttentionStages(NamedTuple):
    """The scores on their way to weights, each (B, H, T_q, T_k)."""

    scores: Array  # scale * q @ k^T
    capped: Array  # softcap * tanh(scores / softcap)
    biased: Array  # capped + bias
    masked: Array  # biased where visible, else -inf
    weights: Array  # softmax(masked), before dropout


def attention_stages(cache: AttentionCache) -> AttentionStages:
    """Run a forward pass again and keep the scores at each stage.

    Parameters
    ----------
    cache : AttentionCache
        From `attention_forward`, by any backend: the stages are the reference's.

    Returns
    -------
    AttentionStages
        Each (B, H, T_q, T_k), or of lower rank like the query, in the dtype of the computation. A
        stage whose option was not given is the stage before it.

    Notes
    -----
    `attention_forward` keeps only what its backward needs. The ONNX Attention operator calls
    these ``qk_matmul_output``.

    Examples
    --------
    >>> x = np.eye(2)
    >>> out, cache = attention_forward(x, x, x, is_causal=True, scale=1.0)
    >>> attention_stages(cache).masked
    array([[  1., -inf],
           [  0.,   1.]])
    """
    check_type("cache", cache, AttentionCache, "attention_forward")
    steps = attention_steps(cache.inputs)
    return AttentionStages._make(getattr(steps, stage) for stage in AttentionStages._fields)


@overload
def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, *, return_weights: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> Array: ...  # fmt: skip
@overload
def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, *, return_weights: Literal[True],
    **options: Unpack[AttentionOptions],
) -> tuple[Array, Array]: ...  # fmt: skip
@takes_attention_options
def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, *, return_weights: bool = False,
    **options: Unpack[AttentionOptions],
) -> Array | tuple[Array, Array]:  # fmt: skip
    """Give every query a weighted mean of the values: ``softmax(scale * q k^T + bias) v``.

    Parameters
    ----------
    q : (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k) float array
    k : (B, H_kv, T_k, d_k) float array, or of lower rank like `q`
    v : (B, H_kv, T_k, d_v) float array, or of lower rank like `q`
    return_weights : bool
        Also return the weights, per head and before dropout.
    {names}
        As `attention_forward` explains them.

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank like `q`
    weights : (B, H, T_q, T_k) array, or of lower rank like `q`
        Only with ``return_weights=True``.

    Notes
    -----
    Source: Vaswani et al. 2017, eq. 1.

    Examples
    --------
    >>> q, k, v = np.zeros((1, 2)), np.zeros((3, 2)), np.array([[1.0], [2.0], [6.0]])
    >>> scaled_dot_product_attention(q, k, v)  # equal scores: the mean of the values
    array([[3.]])
    """
    out, cache = attention_forward(q, k, v, **options)
    out.flags.writeable = True  # there will be no backward
    return (out, cache.weights.astype(out.dtype, copy=False)) if return_weights else out
