"""Scores of known patterns: how much of a head's weight lies where the pattern says."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_shape
from mha_numpy.dtypes import Array, as_float_array, as_integer_array
from mha_numpy.errors import ShapeError


def previous_token_score(weights: Array) -> Array:
    """Return the mean weight on the token before, for each head.

    Parameters
    ----------
    weights : (B, H, T, T) float array
        Of self-attention, such as ``layer.weights`` after a forward.

    Returns
    -------
    (H,) array
        0 to 1; the first token, which has none before it, does not count.

    Raises
    ------
    DTypeError, ShapeError
        `weights` is no such array.

    Notes
    -----
    Source: Olsson et al. 2022, *In-context learning and induction heads*, "head activation
    evaluators".

    Examples
    --------
    >>> weights = np.eye(4, k=-1)[None, None]  # every token attends to the one before
    >>> previous_token_score(weights)
    array([1.])
    """
    weights = _check_weights(weights)
    return weights.diagonal(offset=-1, axis1=2, axis2=3).mean(axis=(0, 2))


def induction_score(weights: Array, ids: Array, counted: Array | None = None) -> Array:
    """Return the mean weight on tokens that came right after an earlier copy, for each head.

    Where a token has occurred before, what followed it then is likely to follow again: an
    induction head looks there.

    Parameters
    ----------
    weights : (B, H, T, T) float array
    ids : (B, T) int array
    counted : (B, T) bool array, optional
        Which tokens count; default all that have occurred before in their sequence.

    Returns
    -------
    (H,) array
        0 to 1. Of several earlier copies all successors count together.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        An argument is of the wrong kind or shape.

    Notes
    -----
    Source: Olsson et al. 2022, *In-context learning and induction heads*, "prefix matching".

    Examples
    --------
    >>> ids = np.array([[7, 8, 9, 7]])  # at the second 7, the token after the first one is 8
    >>> weights = np.zeros((1, 1, 4, 4))
    >>> weights[0, 0, 3, 1] = 0.75
    >>> induction_score(weights, ids)
    array([0.75])
    """
    weights = _check_weights(weights)
    ids = as_integer_array("ids", ids, "an integer array")
    B, _, T, _ = weights.shape
    check_shape("ids", ids, "B T", {"B": B, "T": T}, to_match=f"weights {weights.shape}")
    same_before = np.tril(ids[:, :, None] == ids[:, None, :], k=-1)  # (B, T, T): query, copy
    after_copy = np.roll(same_before, 1, axis=2)  # (B, T, T): query, successor
    if counted is None:
        counted = same_before.any(axis=2)
    counted = np.asarray(counted, bool)
    check_shape("counted", counted, "B T", {"B": B, "T": T}, to_match=f"weights {weights.shape}")
    on_pattern = (weights * after_copy[:, None]).sum(axis=3)  # (B, H, T)
    return on_pattern.transpose(0, 2, 1)[counted].mean(axis=0)


def _check_weights(weights: Any) -> Array:
    """Return weights of self-attention, or raise an error that says what is wrong."""
    weights = as_float_array("weights", weights)
    if weights.ndim != 4 or weights.shape[2] != weights.shape[3]:
        raise ShapeError(f"weights: expected (B, H, T, T); got {weights.shape}")
    return weights
