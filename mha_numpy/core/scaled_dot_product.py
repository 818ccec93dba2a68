"""Attention in one call, for those who want no cache and no backward."""

from typing import Literal, Unpack, overload

from mha_numpy.core.attention import attention_forward
from mha_numpy.core.attention_types import AttentionOptions
from mha_numpy.dtypes import Array


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
def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, *, return_weights: bool = False,
    **options: Unpack[AttentionOptions],
) -> Array | tuple[Array, Array]:  # fmt: skip
    """Let every query take a weighted mean of the values: ``softmax(scale * q k^T + bias) v``.

    Parameters
    ----------
    q : (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k) float array
    k : (B, H_kv, T_k, d_k) float array, or of lower rank like `q`
    v : (B, H_kv, T_k, d_v) float array, or of lower rank like `q`
    return_weights : bool
        Also return the weights, per head and before dropout.
    **options
        mask, bias, is_causal, q_offset, window, softcap, scale, dropout_mask, head_gate and
        backend, as `attention_forward` explains them.

    Returns
    -------
    out : (B, H, T_q, d_v) array, or of lower rank like `q`
    weights : (B, H, T_q, T_k) array, or of lower rank like `q`
        Only with ``return_weights=True``.

    Raises
    ------
    DTypeError, ShapeError, MaskError, ConfigError, BackendError
        An argument is of the wrong kind, shape or value; the message names it.

    Notes
    -----
    Source: Vaswani et al. 2017, eq. 1.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.zeros((3, 2)), np.array([[1.0], [2.0], [6.0]])
    >>> scaled_dot_product_attention(q, k, v)  # equal scores: the mean of the values
    array([[3.]])
    """
    out, cache = attention_forward(q, k, v, **options)
    out.flags.writeable = True  # there will be no backward
    return (out, cache.weights.astype(out.dtype, copy=False)) if return_weights else out
