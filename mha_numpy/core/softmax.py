"""Masked softmax over the last axis, forward, forward mode and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.masks import check_mask, only_visible
from mha_numpy.core.pair import Pair, Records, Values
from mha_numpy.core.shapes import broadcast_axes
from mha_numpy.dtypes import Array
from mha_numpy.errors import ShapeError

AXES = {1: "T_k", 2: "T_q T_k", 3: "B T_q T_k", 4: "B H T_q T_k"}


def softmax_steps(
    scores: Array, mask: Array | None, sink: Array | None = None
) -> tuple[Array, Array, Array]:
    """Turn each row of scores (..., T_q, T_k) into weights: masked scores, lse, weights.

    A sink, (..., 1, 1), is one more score of each row. It takes weight and has no value.
    """
    # 1. hide what the mask hides
    masked = scores if mask is None else np.where(mask, scores, -np.inf)
    sees_any = _sees_any(mask, scores.shape)  # (..., T_q, 1)

    # 2. shift each row so that its largest score is 0
    largest = masked.real.max(axis=-1, keepdims=True, initial=-np.inf)  # (..., T_q, 1)
    if sink is not None:
        largest = np.maximum(largest, sink.real)
        sees_any = sees_any | (sink != -np.inf)
    shift = np.where(sees_any, largest, 0)

    # 3. exponentiate
    powers = np.exp(masked - shift)
    total = powers.sum(axis=-1, keepdims=True)  # (..., T_q, 1)
    if sink is not None:
        total = total + np.exp(sink - shift)
    total = np.where(sees_any, total, 1)

    # 4. normalise; a hidden cell is 0 even in a row full of NaN
    weights = only_visible(powers / total, mask)

    # 5. keep the log of the sum
    lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]
    return masked, lse, weights


def softmax_steps_backward(
    d_weights: Array, weights: Array, mask: Array | None, d_lse: Array | None = None
) -> Array:
    """Pull the gradients of the weights and of lse back to the scores: (..., T_q, T_k)."""
    d_weights = only_visible(d_weights, mask)

    # 5. lse = log(sum_j e^scores_j), whose slope along a score is that score's weight
    # 4. to 2. weights = e^scores / sum_j e^scores_j
    row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)  # (..., T_q, 1)
    if d_lse is not None:
        row_mean = row_mean - d_lse[..., None]
    d_scores = weights * (d_weights - row_mean)

    # 1. masked = scores where the mask is True, else -inf
    return only_visible(d_scores, mask)


def softmax_steps_jvp(scores_dot: Array, weights: Array, mask: Array | None) -> tuple[Array, Array]:
    """Push the tangent of the scores forward: those of the weights and of lse (..., T_q)."""
    # 1. masked = scores where the mask is True, else -inf
    scores_dot = only_visible(scores_dot, mask)

    # 2. to 4. weights = e^scores / sum_j e^scores_j: the Jacobian is its own transpose
    row_mean = (weights * scores_dot).sum(axis=-1, keepdims=True)  # (..., T_q, 1)
    weights_dot = only_visible(weights * (scores_dot - row_mean), mask)

    # 5. lse = log(sum_j e^scores_j)
    return weights_dot, row_mean[..., 0]


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
        True = may attend. Where it is False the weight is exactly 0 for any score, NaN included.
        A row that may attend to nothing has weights 0 and lse -inf.

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
    return SOFTMAX.forward(scores=scores, mask=mask)


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
    return SOFTMAX.backward(d_weights, cache)


def softmax_jvp(scores_dot: Array, cache: SoftmaxCache) -> Array:
    """Push a tangent through softmax: how fast the weights move while the scores do.

    ``weights_dot = weights * (scores_dot - sum_j weights_j scores_dot_j)``: the same equation as
    backward's, because the Jacobian of each row is its own transpose.

    Parameters
    ----------
    scores_dot : (..., T_q, T_k) float array
        How fast each score moves.
    cache : SoftmaxCache

    Returns
    -------
    weights_dot : array like the weights
        Each row sums to 0, because the weights keep summing to 1.

    Examples
    --------
    >>> weights, cache = softmax_forward(np.log([[1.0, 3.0]]))
    >>> softmax_jvp(np.array([[1.0, 0.0]]), cache)
    array([[ 0.1875, -0.1875]])
    """
    return SOFTMAX.jvp(scores_dot, cache)


def _check(values: Values) -> None:
    scores, mask = values["scores"], values["mask"]
    if scores.ndim not in AXES:
        raise ShapeError(f"scores: expected (..., T_q, T_k) of rank 1 to 4; got {scores.shape}")
    if mask is not None:
        values["mask"] = check_mask("mask", mask, scores.shape, AXES[scores.ndim])


def _records(values: Values) -> Records:
    scores, mask = values["scores"], values["mask"]
    axes = AXES[scores.ndim]
    yield "scores", axes, ""
    if mask is not None:
        yield "mask", broadcast_axes(mask.shape, axes, scores.shape), ""
    yield from softmax_records("scores", "mask", mask, values["masked"], axes)


def softmax_records(
    scores: str,
    mask_name: str,
    mask: Array | None,
    masked: Array,
    axes: str,
    sink: Array | None = None,
) -> Records:
    """Return softmax's steps for a trace; `scores` is the name of the array that it reads."""
    if mask is not None:
        yield "masked", axes, f"np.where({mask_name}, {scores}, -np.inf)"
        scores = "masked"
    shift, more = "", ""
    if not (_is_moderate(masked) and (sink is None or _is_moderate(sink[..., None]))):
        shift = f" - {scores}.max(axis=-1, keepdims=True)"
    if sink is not None:
        more = " + np.exp(sink[..., None, None])"
        if shift:
            yield "largest", f"{axes.rsplit(' ', 1)[0]} 1", LARGEST_WITH_SINK.format(scores)
            shift, more = " - largest", " + np.exp(sink[..., None, None] - largest)"
    powers = f"np.exp({scores}{shift})"
    total = f"{powers}.sum(axis=-1, keepdims=True)"
    equation = f"{powers} / ({total}{more})" if more else f"{powers} / {total}"
    if mask is not None and not mask.any(axis=-1).all():  # a row that sees nothing is 0, not 0 / 0
        equation = f"np.where({mask_name}, {equation}, 0)"
    yield "weights", axes, equation


LARGEST_WITH_SINK = "np.maximum({}.max(axis=-1, keepdims=True), sink[..., None, None])"


def _is_moderate(scores: Array) -> bool:
    """Return whether powers of the scores neither overflow nor vanish in a whole row.

    Softmax always subtracts each row's largest score. If that changes only rounding, the equation
    is shown without it.
    """
    largest = scores.real.max(axis=-1, initial=-np.inf)
    limit = np.log(np.finfo(largest.dtype).max) / 2
    return bool((np.abs(largest[largest != -np.inf]) < limit).all())


D_SCORES = "weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))"


def _records_backward(values: Values) -> Records:
    axes, mask = AXES[values["weights"].ndim], values["mask"]
    yield "d_weights", axes, ""
    hides = mask is not None and not mask.all()
    yield "d_scores", axes, f"np.where(mask, {D_SCORES}, 0)" if hides else D_SCORES


SOFTMAX = Pair(
    softmax_steps,
    softmax_steps_backward,
    lambda scores_dot, weights, mask: softmax_steps_jvp(scores_dot, weights, mask)[0],
    SoftmaxCache,
    SoftmaxGrads,
    inputs={"scores": ""},
    check=_check,
    computes="masked lse weights",
    like="weights",
    shapes=lambda cache: {"scores": cache.weights.shape},
    records=_records,
    records_backward=_records_backward,
)
