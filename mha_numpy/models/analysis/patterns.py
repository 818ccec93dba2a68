"""Scores of known patterns: how much of a head's weight lies where a pattern says."""

from typing import Any

import numpy as np

from mha_numpy.checks import check_broadcast, check_shape
from mha_numpy.dtypes import Array, as_float_array, as_integer_array
from mha_numpy.errors import ShapeError
from mha_numpy.models.analysis.layers import check_counted


def pattern_score(weights: Array, where: Array, counted: Array | None = None) -> Array:
    """Return the mean weight that lies where a pattern says, for each head.

    ``score_h = mean_bi sum_j where_bij weights_bhij``, over the queries i that count and have such
    a place, because a query without such a place says nothing about the head.

    Parameters
    ----------
    weights : (B, H, T_q, T_k) float array
        Such as ``layer.weights`` after a forward, or those of another library.
    where : bool array that broadcasts to (B, T_q, T_k)
        Whether the weight of this query on this key belongs to the pattern: from `token_patterns`,
        or your own.
    counted : (B, T_q) bool array, optional
        Which queries count; default all.

    Returns
    -------
    (H,) array
        From 0 to 1; if one query has several places, they all count together. It is NaN if no query
        has such a place.

    Examples
    --------
    >>> weights = np.array([[[[1, 0, 0], [0.8, 0.2, 0], [0.1, 0.6, 0.3]]]])
    >>> previous = np.eye(3, k=-1, dtype=bool)  # query 0 has none before it
    >>> pattern_score(weights, previous)  # (0.8 + 0.6) / 2
    array([0.7])
    """
    weights = _check_weights(weights)
    B, _, T_q, T_k = weights.shape
    where = np.asarray(where, bool)
    check_broadcast("where", where, (B, T_q, T_k), "B T_q T_k")
    where = np.broadcast_to(where, (B, T_q, T_k))
    on_pattern = (weights * where[:, None]).sum(axis=3)  # (B, H, T_q)
    has_place = where.any(axis=2)  # (B, T_q)
    return _mean_over(on_pattern, weights, counted, has_place)


def token_patterns(
    ids: Array, *, is_delimiter: Array | None = None, counted: Array | None = None
) -> dict[str, Array]:
    """Return, by name, where the weight of a head would lie if it did only one thing.

    Parameters
    ----------
    ids : (B, T) int array
        The tokens that the head reads.
    is_delimiter : (B, T) bool array, optional
        Which tokens end or separate sentences, such as ``ids == tokenizer_end``.
    counted : (B, T) bool array, optional
        Which tokens count, as queries and as places; default all. Padding should not.

    Returns
    -------
    dict of (B, T, T) bool arrays
        "previous", "itself" and "next"
            The neighbours by position.
        "first"
            The first token that counts, for all after it.
        "duplicate"
            All copies of a token, for the second one and those after it; a causal head at the first
            one cannot see the others.
        "induction"
            The token right after an earlier copy: it is likely to follow again.
        "delimiter"
            Only with `is_delimiter`.

    Notes
    -----
    Sources: neighbours and delimiters: Clark et al. 2019, *What does BERT look at?*, sections 3.1
    and 3.2; "first": Xiao et al. 2023, *Efficient streaming language models with attention sinks*;
    "duplicate": Wang et al. 2022, *Interpretability in the wild*, section 3; "induction": Olsson et
    al. 2022, *In-context learning and induction heads*, "prefix matching".

    Examples
    --------
    >>> ids = np.array([[7, 8, 9, 7]])  # at the second 7, the token after the first one is 8
    >>> patterns = token_patterns(ids)
    >>> patterns["induction"][0, 3], patterns["duplicate"][0, 3]
    (array([False,  True, False, False]), array([ True, False, False, False]))
    """
    ids = as_integer_array("ids", ids, "an integer array")
    sizes: dict[str, int] = {}
    check_shape("ids", ids, "B T", sizes)
    counted = check_counted(counted, "B T", sizes, "ids")

    i, j = np.ogrid[: sizes["T"], : sizes["T"]]  # query and key
    is_copy = (ids[:, :, None] == ids[:, None, :]) & (i != j)  # (B, T, T)
    is_earlier = is_copy & (j < i)
    is_first = counted & (np.cumsum(counted, axis=1) == 1)  # (B, T)
    patterns = {
        "previous": j == i - 1,
        "itself": j == i,
        "next": j == i + 1,
        "first": is_first[:, None, :] & (i != j),
        "duplicate": is_copy & is_earlier.any(axis=2, keepdims=True),
        "induction": np.roll(is_earlier, 1, axis=2),
    }
    if is_delimiter is not None:
        is_delimiter = check_counted(is_delimiter, "B T", sizes, "ids", "is_delimiter")
        patterns["delimiter"] = is_delimiter[:, None, :]
    both_count = counted[:, :, None] & counted[:, None, :]
    return {name: where & both_count for name, where in patterns.items()}


def head_patterns(
    weights: Array,
    ids: Array,
    *,
    is_delimiter: Array | None = None,
    counted: Array | None = None,
) -> dict[str, Array]:
    """Return how much each head follows each of the `token_patterns`.

    Parameters
    ----------
    weights : (B, H, T, T) float array
        Of self-attention over these tokens.
    ids, is_delimiter, counted
        As for `token_patterns`.

    Returns
    -------
    dict of (H,) arrays
        The `pattern_score` of each pattern, from 0 to 1. A causal head has 0 for "next".

    Notes
    -----
    A high score says where a head looks on these tokens, but not why; most heads of large models
    follow several patterns. `mean_distance` and `mean_entropy` need no pattern.

    Examples
    --------
    >>> from mha_numpy.models import induction_by_hand
    >>> model, ids = induction_by_hand(vocab_size=10, max_tokens=8), np.array([[7, 1, 4, 9, 7, 1]])
    >>> _ = model(ids)
    >>> for layer in model.attentions:
    ...     scores = head_patterns(layer.weights, ids)
    ...     print(scores["previous"].round(2), scores["induction"].round(2))
    [1.] [0.]
    [0.37] [1.]
    """
    weights = _check_weights(weights, is_self=True)
    B, _, T, _ = weights.shape
    ids = as_integer_array("ids", ids, "an integer array")
    check_shape("ids", ids, "B T", {"B": B, "T": T}, to_match=f"weights {weights.shape}")
    patterns = token_patterns(ids, is_delimiter=is_delimiter, counted=counted)
    return {name: pattern_score(weights, where) for name, where in patterns.items()}


def mean_distance(weights: Array, counted: Array | None = None) -> Array:
    """Return how far away each head looks, in tokens: (B, H, T, T) -> (H,).

    ``mean_bi sum_j weights_bhij |i - j|``: small for a local head, large for a long-range one.

    Parameters
    ----------
    weights, counted
        As for `pattern_score`; of self-attention.

    Notes
    -----
    Source: Vig and Belinkov 2019, *Analyzing the structure of attention in a transformer language
    model*, "attention distance".

    Examples
    --------
    >>> mean_distance(np.eye(4)[None, None, ::-1])  # backwards: 3, 1, 1 and 3 tokens away
    array([2.])
    """
    weights = _check_weights(weights, is_self=True)
    i, j = np.ogrid[: weights.shape[2], : weights.shape[3]]
    distances = (weights * abs(i - j)).sum(axis=3)  # (B, H, T)
    return _mean_over(distances, weights, counted)


def mean_entropy(weights: Array, counted: Array | None = None) -> Array:
    """Return how widely each head spreads its weight, in nats: (B, H, T_q, T_k) -> (H,).

    ``mean_bi -sum_j weights_bhij log weights_bhij``: 0 where one key has it all, log n where n keys
    share it equally. Divide by log(2) for bits.

    Parameters
    ----------
    weights, counted
        As for `pattern_score`.

    Notes
    -----
    Source: Clark et al. 2019, *What does BERT look at?*, section 3.3.

    Examples
    --------
    >>> entropy = mean_entropy(np.full((1, 1, 3, 8), 1 / 8))
    >>> np.exp(entropy).round(6), (entropy / np.log(2)).round(6)  # 8 keys, 3 bits
    (array([8.]), array([3.]))
    """
    weights = _check_weights(weights)
    logs = np.log(np.where(weights > 0, weights, 1))  # 0 log 0 is 0
    entropies = -(weights * logs).sum(axis=3)  # (B, H, T_q)
    return _mean_over(entropies, weights, counted)


def _mean_over(numbers: Array, weights: Array, counted: Array | None, among: Any = True) -> Array:
    """Return the mean of (B, H, T_q) over those `among` the queries that count; NaN over none."""
    B, _, T_q, _ = weights.shape
    sizes = {"B": B, "T_q": T_q}
    counted = among & check_counted(counted, "B T_q", sizes, f"weights {weights.shape}")
    rows = numbers.swapaxes(1, 2)[counted]  # (queries, H)
    return rows.mean(axis=0) if len(rows) else np.full(numbers.shape[1], np.nan)


def _check_weights(weights: Any, *, is_self: bool = False) -> Array:
    weights = as_float_array("weights", weights)
    check_shape("weights", weights, "B H T_q T_k", {})
    if is_self and weights.shape[2] != weights.shape[3]:
        raise ShapeError(f"weights: expected (B, H, T, T), of self-attention; got {weights.shape}")
    return weights
