"""T5's relative bias: a learned score for each bucket of distances; three ways through it."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_count, check_flag, check_integer
from mha_numpy.core.pair import Pair, Records, Values
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, ShapeError


def relative_bias_steps(
    table: Array, T_q: int, T_k: int, q_offset: int, bidirectional: bool, max_distance: int
) -> tuple[Array, Array]:
    """Look up the bias of every query and key in the table (num_buckets, H)."""
    # 1. the bucket of each distance
    distance = np.arange(T_k) - (np.arange(T_q)[:, None] + q_offset)  # (T_q, T_k), of the key
    buckets = distance_buckets(distance, len(table), bidirectional, max_distance)

    # 2. look up
    return buckets, table[buckets].transpose(2, 0, 1)  # (H, T_q, T_k)


def relative_bias_steps_backward(
    d_bias: Array, buckets: Array, table_shape: tuple[int, int]
) -> Array:
    """Pull the gradient (H, T_q, T_k) back to the table."""
    # 2. bias = table[buckets]: a bucket serves many cells, whose gradients add up
    d_table = np.zeros(table_shape, d_bias.dtype)
    np.add.at(d_table, buckets, d_bias.transpose(1, 2, 0))
    # 1. a bucket is a whole number, and has no gradient
    return d_table


def relative_bias_steps_jvp(table_dot: Array, buckets: Array) -> Array:
    """Push the tangent of the table forward to the bias (H, T_q, T_k)."""
    # 2. bias = table[buckets]
    return table_dot[buckets].transpose(2, 0, 1)


def distance_buckets(
    distance: Array, num_buckets: int, bidirectional: bool, max_distance: int
) -> Array:
    """Return the bucket of each distance: exact when near, by the logarithm when far.

    In one direction, keys after the query share bucket 0 with its own; in both, the upper half of
    the buckets is for keys after it.
    """
    in_first = np.maximum(-distance, 0)
    first: Any = 0
    if bidirectional:
        num_buckets //= 2
        in_first, first = np.abs(distance), np.where(distance > 0, num_buckets, 0)
    exact = num_buckets // 2
    # 0 to 1 from `exact` to `max_distance`
    share = np.log(np.maximum(in_first, 1) / exact) / math.log(max_distance / exact)
    far = exact + (share * (num_buckets - exact)).astype(int)
    return first + np.where(in_first < exact, in_first, np.minimum(far, num_buckets - 1))


class RelativeBiasCache(NamedTuple):
    """What `relative_bias_backward` needs."""

    buckets: Array  # (T_q, T_k)
    table_shape: tuple[int, int]  # (num_buckets, H)
    dtype: np.dtype[Any]
    inner: np.dtype[Any]  # to compute in


class RelativeBiasGrads(NamedTuple):
    """The gradient of the one input."""

    d_table: Array  # (num_buckets, H)


def relative_bias_forward(
    table: Array,
    T_q: int,
    T_k: int | None = None,
    *,
    q_offset: int = 0,
    bidirectional: bool,
    max_distance: int = 128,
) -> tuple[Array, RelativeBiasCache]:
    """Return a bias for each distance of query and key, learned for buckets of distances.

    ``bias[h, i, j] = table[bucket(j - i - q_offset), h]``. Half of the buckets of a direction are
    for one distance each, the other half for ranges that grow with the distance.

    Parameters
    ----------
    table : (num_buckets, H) float array
        T5 has 32 buckets.
    T_q, T_k : int
        Queries and keys; `T_k` defaults to `T_q`.
    q_offset : int
        Position of the first query among the keys.
    bidirectional : bool
        Whether the buckets tell keys after the query apart, as in T5's encoder. If not, as in its
        decoder, these share the bucket of distance 0, and a causal mask has to hide them.
    max_distance : int
        Every distance from here on has the last bucket of its direction.

    Returns
    -------
    bias : (H, T_q, T_k) array, to be passed as ``bias=``
    cache : RelativeBiasCache

    Notes
    -----
    T5 has one table for all layers of a stack, and does not scale its scores: pass ``scale=1.0``.
    Source: Raffel et al. 2020, *Exploring the limits of transfer learning*, section 2.1, and the
    authors' code. Derivation: ``docs/rope.md``.

    Examples
    --------
    >>> table = np.arange(8.0)[:, None]  # of one head: the bias is the number of the bucket
    >>> relative_bias_forward(table, 4, bidirectional=True)[0][0]
    array([[0., 5., 6., 6.],
           [1., 0., 5., 6.],
           [2., 1., 0., 5.],
           [2., 2., 1., 0.]])
    """
    return RELATIVE_BIAS.forward(
        table=table, T_q=T_q, T_k=T_q if T_k is None else T_k, q_offset=q_offset,
        bidirectional=bidirectional, max_distance=max_distance,
    )  # fmt: skip


def relative_bias_backward(d_bias: Array, cache: RelativeBiasCache) -> RelativeBiasGrads:
    """Pull a gradient back to the table: a bucket sums up over all its queries and keys.

    Examples
    --------
    >>> bias, cache = relative_bias_forward(np.zeros((4, 1)), 3, bidirectional=True)
    >>> relative_bias_backward(np.ones((1, 3, 3)), cache).d_table.ravel()  # how many cells each has
    array([3., 3., 0., 3.])
    """
    return RELATIVE_BIAS.backward(d_bias, cache)


def relative_bias_jvp(table_dot: Array, cache: RelativeBiasCache) -> Array:
    """Push a tangent of the table to the bias: each cell moves as its bucket does.

    Examples
    --------
    >>> bias, cache = relative_bias_forward(np.zeros((4, 1)), 2, bidirectional=True)
    >>> relative_bias_jvp(np.array([[0.0], [1.0], [2.0], [3.0]]), cache)[0]
    array([[0., 3.],
           [1., 0.]])
    """
    return RELATIVE_BIAS.jvp(table_dot, cache)


def _check(values: Values) -> None:
    num_buckets, _ = values["table_shape"] = values["table"].shape
    one_way = num_buckets // 2 if values["bidirectional"] else num_buckets
    if one_way < 2:
        least = 4 if values["bidirectional"] else 2
        raise ShapeError(
            f"table: expected (num_buckets, H) with at least {least} buckets; got "
            f"{values['table_shape']}"
        )
    if values["max_distance"] <= one_way // 2:
        raise ConfigError(
            f"max_distance: expected more than the {one_way // 2} distances that have a bucket "
            f"each; got {values['max_distance']}"
        )


def _like(cache: RelativeBiasCache) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return (cache.table_shape[1], *cache.buckets.shape), cache.inner


def _records(values: Values) -> Records:
    yield "table", "num_buckets H"
    yield "buckets", "T_q T_k"
    yield "bias", "H T_q T_k", "table[buckets].transpose(2, 0, 1)"


def _records_backward(values: Values) -> Records:
    n = values["buckets"].size
    yield "d_bias", "H T_q T_k", ""
    one_hot = f"(np.arange(num_buckets)[:, None] == buckets.reshape(1, {n}))"
    rows = f"d_bias.transpose(1, 2, 0).reshape({n}, H)"
    yield "d_table", "num_buckets H", f"{one_hot} @ {rows}"


RELATIVE_BIAS = Pair(
    relative_bias_steps,
    relative_bias_steps_backward,
    relative_bias_steps_jvp,
    RelativeBiasCache,
    RelativeBiasGrads,
    inputs={"table": "num_buckets H"},
    options={
        "T_q": partial(check_count, least=0), "T_k": partial(check_count, least=0),
        "q_offset": check_integer, "bidirectional": check_flag, "max_distance": check_count,
    },
    check=_check,
    computes="buckets bias",
    like=_like,
    shapes=lambda cache: {"table": cache.table_shape},
    records=_records,
    records_backward=_records_backward,
)  # fmt: skip
