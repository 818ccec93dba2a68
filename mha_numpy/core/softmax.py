"""Masked softmax over the last axis, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_shape, check_type
from mha_numpy.core.masks import check_mask, only_visible
from mha_numpy.core.recording import record_softmax, record_softmax_backward
from mha_numpy.dtypes import Array, as_float_array, compute_dtype
from mha_numpy.errors import ShapeError
from mha_numpy.steps import is_watched

AXES = {1: "T_k", 2: "T_q T_k", 3: "B T_q T_k", 4: "B H T_q T_k"}


class SoftmaxSteps(NamedTuple):
    """What forward's steps compute."""

    masked: Array  # (..., T_q, T_k): the scores, -inf where hidden
    weights: Array  # (..., T_q, T_k)
    lse: Array  # (..., T_q): log(sum_j e^scores_j); -inf where a row sees nothing


def softmax_steps(scores: Array, mask: Array | None) -> SoftmaxSteps:
    """Turn each row of scores (..., T_q, T_k) into weights."""
    # 1. hide what the mask hides
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    sees_any = _sees_any(mask, scores.shape)  # (..., T_q, 1)

    # 2. shift each row so that its largest score is 0
    largest = masked.real.max(axis=-1, keepdims=True, initial=-np.inf)  # (..., T_q, 1)
    shifted = masked - np.where(sees_any, largest, 0)

    # 3. exponentiate
    powers = np.exp(shifted)
    total = np.where(sees_any, powers.sum(axis=-1, keepdims=True), 1)  # (..., T_q, 1)

    # 4. normalise; a hidden cell is 0 even in a row full of NaN
    weights = only_visible(powers / total, mask)

    # 5. keep the log of the sum
    lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]
    return SoftmaxSteps(masked, weights, lse)


def softmax_steps_backward(d_weights: Array, weights: Array, mask: Array | None) -> Array:
    """Pull the gradient of the weights back to the scores: (..., T_q, T_k)."""
    d_weights = only_visible(d_weights, mask)

    # 4. to 2. weights = e^scores / sum_j e^scores_j
    row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)  # (..., T_q, 1)
    d_scores = weights * (d_weights - row_mean)

    # 1. masked = scores where the mask is True, else -inf
    return only_visible(d_scores, mask)


def _sees_any(mask: Array | None, shape: tuple[int, ...]) -> Array:
    """Return, for each row, whether it may attend to anything at all: (..., T_q, 1)."""
    if mask is None:
        return np.full((*shape[:-1], 1), shape[-1] > 0)
    return np.asarray(np.broadcast_to(mask, shape).any(axis=-1, keepdims=True))


class SoftmaxCache(NamedTuple):
    """What `softmax_backward` needs, and the log of the normalising sum."""

    weights: Array  # (..., T_q, T_k), in the dtype of the computation
    mask: Array | None  # bool, broadcasts to the scores
    lse: Array  # (..., T_q): log(sum_j e^scores_j); -inf where a row sees nothing
    dtype: np.dtype[Any]  # of the scores and of their gradient


class SoftmaxGrads(NamedTuple):
    """The gradient of softmax's one differentiable input."""

    d_scores: Array  # (..., T_q, T_k)


def softmax_forward(scores: Array, *, mask: Array | None = None) -> tuple[Array, SoftmaxCache]:
    """Turn each row of scores into weights, none negative, that sum to 1.

    ``weights_j = e^scores_j / sum_l e^scores_l``, over the keys that the mask lets through.

    Parameters
    ----------
    scores : (..., T_q, T_k) float array, of rank 1 to 4
    mask : bool array that broadcasts to `scores`, optional
        True = may attend. Where it is False the weight is exactly 0, whatever the score is,
        NaN included. A row that may attend to nothing has weights 0 and lse -inf.

    Returns
    -------
    weights : array like `scores`
    cache : SoftmaxCache

    Notes
    -----
    Subtracting the row's largest score changes nothing (softmax is shift-invariant) and keeps
    every exponent at or below 0, so nothing overflows. The maximum is taken over real parts: a
    complex step passes through unharmed. Source: Goodfellow et al. 2016, *Deep Learning*,
    section 4.1. Derivation: ``docs/softmax.md``.

    Examples
    --------
    >>> weights, cache = softmax_forward(np.log([[1.0, 2.0, 5.0], [1.0, 1.0, 7.0]]))
    >>> weights
    array([[0.125     , 0.25      , 0.625     ],
           [0.11111111, 0.11111111, 0.77777778]])
    >>> np.exp(cache.lse)
    array([8., 9.])
    """
    scores = as_float_array("scores", scores)
    if scores.ndim not in AXES:
        raise ShapeError(f"scores: expected (..., T_q, T_k) of rank 1 to 4; got {scores.shape}")
    axes = AXES[scores.ndim]
    if mask is not None:
        mask = check_mask("mask", mask, scores.shape, axes)
    dtype = scores.dtype
    scores = scores.astype(compute_dtype(dtype), copy=False)

    steps = softmax_steps(scores, mask)
    if is_watched():
        record_softmax(scores, mask, steps.masked, steps.weights, axes)
    _, weights, lse = steps
    return weights.astype(dtype, copy=False), SoftmaxCache(weights, mask, lse, dtype)


def softmax_backward(d_weights: Array, cache: SoftmaxCache) -> SoftmaxGrads:
    """Pull a gradient back through softmax without ever building its Jacobian.

    ``d_scores = weights * (d_weights - sum_j d_weights_j weights_j)``: the Jacobian
    ``diag(weights) - weights weights^T`` of each row, multiplied out. Each row sums to 0.

    Parameters
    ----------
    d_weights : (..., T_q, T_k) float array
    cache : SoftmaxCache

    Returns
    -------
    SoftmaxGrads
        ``d_scores``, exactly 0 in hidden cells and in rows that see nothing.

    Notes
    -----
    It takes O(T_q T_k) time, against O(T_q T_k^2) with the Jacobian. Derivation:
    ``docs/softmax.md``.

    Examples
    --------
    >>> weights, cache = softmax_forward(np.log([[1.0, 3.0]]))
    >>> softmax_backward(np.array([[1.0, 0.0]]), cache).d_scores
    array([[ 0.1875, -0.1875]])
    """
    check_type("cache", cache, SoftmaxCache, "softmax_forward")
    weights = cache.weights
    d_weights = as_float_array("d_weights", d_weights)
    axes = AXES[weights.ndim]
    sizes = dict(zip(axes.split(), weights.shape, strict=True))
    check_shape("d_weights", d_weights, axes, sizes, to_match="the weights")
    d_weights = d_weights.astype(np.result_type(weights, d_weights), copy=False)

    d_scores = softmax_steps_backward(d_weights, weights, cache.mask)
    if is_watched():
        record_softmax_backward(d_weights, d_scores, cache.mask, axes)
    return SoftmaxGrads(d_scores.astype(cache.dtype, copy=False))
