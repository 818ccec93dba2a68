"""Merge attention over parts of the keys: each part's output counts by its lse.

A head that sees half of the keys knows their mean and, by its lse, how much weight they have. That
is all it takes to put the halves together: merging is softmax over the parts. Keys split over
threads or machines, shared prefixes, and streams of blocks all use these lines; a learned sink is
one more part, with an output of 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_type
from mha_numpy.core.masks import only_visible
from mha_numpy.core.pair import Records, Values, as_gradient, record
from mha_numpy.core.softmax import softmax_steps, softmax_steps_backward, softmax_steps_jvp
from mha_numpy.core.tangents import tangents_of
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ShapeError
from mha_numpy.steps import is_watched


def merge_steps(outs: Array, lses: Array) -> tuple[Array, Array, Array]:
    """Merge P parts, outs (P, ..., T_q, d_v) and lses (P, ..., T_q): out, lse, shares."""
    # 1. each part's share of the weight; one that saw nothing, lse -inf, has none
    by_part = np.moveaxis(lses, 0, -1)  # (..., T_q, P)
    _, lse, shares = softmax_steps(by_part, by_part != -np.inf)
    shares = np.moveaxis(shares, -1, 0)  # (P, ..., T_q)

    # 2. mix
    out = only_visible(shares[..., None] * outs, (lses != -np.inf)[..., None]).sum(axis=0)
    return out, lse, shares


def merge_steps_backward(
    d_out: Array, d_lse: Array | None, outs: Array, lses: Array, shares: Array
) -> tuple[Array, Array]:
    """Pull back to the parts: d_outs, d_lses."""
    # 2. out = sum_p shares_p outs_p
    d_outs = shares[..., None] * d_out
    d_shares = np.einsum("...d,p...d->...p", d_out, outs)  # (..., T_q, P)

    # 1. shares, lse = softmax(lses)
    seen, shares = (np.moveaxis(x, 0, -1) for x in (lses != -np.inf, shares))
    return d_outs, np.moveaxis(softmax_steps_backward(d_shares, shares, seen, d_lse), -1, 0)


def merge_steps_jvp(
    outs_dot: Array, lses_dot: Array, outs: Array, lses: Array, shares: Array
) -> tuple[Array, Array]:
    """Push the tangents of the parts forward: out_dot, lse_dot."""
    # 1. shares, lse = softmax(lses)
    seen, by_part = (np.moveaxis(x, 0, -1) for x in (lses != -np.inf, shares))
    shares_dot, lse_dot = softmax_steps_jvp(np.moveaxis(lses_dot, 0, -1), by_part, seen)
    shares_dot = np.moveaxis(shares_dot, -1, 0)  # (P, ..., T_q)

    # 2. out = sum_p shares_p outs_p
    moved = shares_dot[..., None] * outs + shares[..., None] * outs_dot
    return only_visible(moved, (lses != -np.inf)[..., None]).sum(axis=0), lse_dot


class MergeCache(NamedTuple):
    """What `merge_backward` needs, and the lse of all parts together."""

    outs: Array  # (P, ..., T_q, d_v)
    lses: Array  # (P, ..., T_q)
    shares: Array  # (P, ..., T_q): of each part in a row's weight; they sum to 1
    lse: Array  # (..., T_q): -inf where no part saw anything
    dtype: np.dtype[Any]


class MergeGrads(NamedTuple):
    """Gradients, in the order of the inputs: d_lses goes to `attention_backward` as its d_lse."""

    d_outs: Array  # (P, ..., T_q, d_v)
    d_lses: Array  # (P, ..., T_q)


def merge_forward(
    outs: Array | Sequence[Array], lses: Array | Sequence[Array]
) -> tuple[Array, MergeCache]:
    """Merge attention over P parts of the keys into attention over all of them.

    ``lse = log(sum_p e^lse_p)`` and ``out = sum_p e^(lse_p - lse) out_p``.

    Parameters
    ----------
    outs : (P, ..., T_q, d_v) float array, or a sequence of P arrays
        The output of each part.
    lses : (P, ..., T_q) float array, or a sequence of P arrays
        The ``cache.lse`` of each part, -inf where a row saw nothing.

    Returns
    -------
    out : (..., T_q, d_v) array
    cache : MergeCache
        With ``cache.lse`` of all parts together, to be merged again: the order of merging changes
        only rounding.

    Notes
    -----
    Sources: Milakov and Gimelshein 2018, section 3.1; Dao 2023, *FlashAttention-2*, section 3.1.
    Derivation: ``docs/merging.md``.

    Examples
    --------
    >>> from mha_numpy import attention_forward
    >>> q, k, v = np.ones((2, 4)), np.eye(6, 4), np.arange(6.0)[:, None]
    >>> parts = [attention_forward(q, k[s], v[s]) for s in (slice(0, 2), slice(2, 6))]
    >>> out, cache = merge_forward([out for out, _ in parts], [part.lse for _, part in parts])
    >>> whole, whole_cache = attention_forward(q, k, v)
    >>> np.allclose(out, whole), np.allclose(cache.lse, whole_cache.lse)
    (True, True)
    """
    outs, lses = _stack("outs", outs), _stack("lses", lses)
    if outs.ndim < 2 or lses.shape != outs.shape[:-1]:
        expected = "(P, ..., T_q)" if outs.ndim < 2 else str(outs.shape[:-1])
        raise ShapeError(f"lses: expected {expected}, as outs {outs.shape}; got {lses.shape}")
    if not len(outs):
        raise ShapeError(f"outs: expected at least one part; got {outs.shape}")
    dtype = result_dtype(outs, lses)
    outs, lses = (x.astype(compute_dtype(dtype), copy=False) for x in (outs, lses))
    out, lse, shares = merge_steps(outs, lses)
    if is_watched():
        values = {"outs": outs, "lses": lses, "shares": shares, "out": out}
        record(values, _records(values))
    cache = MergeCache(outs, lses, shares, lse, dtype)
    return out.astype(dtype, copy=False), cache


def merge_backward(d_out: Array, cache: MergeCache, *, d_lse: Array | None = None) -> MergeGrads:
    """Pull gradients back through a merge, to the output and the lse of each part.

    ``d_out_p = share_p d_out`` and ``d_lse_p = share_p (d_out . out_p - d_out . out + d_lse)``.

    Parameters
    ----------
    d_out : (..., T_q, d_v) float array
    cache : MergeCache
    d_lse : (..., T_q) float array, optional
        The gradient of ``cache.lse``, if that was used.

    Returns
    -------
    MergeGrads
        ``d_outs`` and ``d_lses``, exactly 0 for a part that saw nothing.

    Examples
    --------
    >>> out, cache = merge_forward(np.array([[[4.0]], [[8.0]]]), np.log([[3.0], [1.0]]))
    >>> out, cache.shares.ravel()
    (array([[5.]]), array([0.75, 0.25]))
    >>> merge_backward(np.ones((1, 1)), cache).d_lses.ravel()
    array([-0.75,  0.75])
    """
    check_type("cache", cache, MergeCache, "merge_forward")
    outs, lses, shares, lse, dtype = cache
    d_out = as_gradient("d_out", d_out, outs.shape[1:], outs.dtype)
    if d_lse is not None:
        d_lse = as_gradient("d_lse", d_lse, lse.shape, lse.dtype)
    d_outs, d_lses = merge_steps_backward(d_out, d_lse, outs, lses, shares)
    if is_watched():
        values = {"d_out": d_out, "d_lse": d_lse, "d_outs": d_outs, "d_lses": d_lses}
        record(values, _records_backward(values))
    return MergeGrads(d_outs.astype(dtype, copy=False), d_lses.astype(dtype, copy=False))


class MergeTangents(NamedTuple):
    """Tangents of what a merge returns."""

    out_dot: Array  # (..., T_q, d_v)
    lse_dot: Array  # (..., T_q)


def merge_jvp(tangents: Any, cache: MergeCache) -> MergeTangents:
    """Push tangents through a merge: from the output and the lse of each part.

    ``lse_dot = sum_p share_p lse_dot_p`` and
    ``out_dot = sum_p share_p (out_dot_p + (lse_dot_p - lse_dot) out_p)``.

    Parameters
    ----------
    tangents : tuple or dict
        ``(outs_dot, lses_dot)``, or by name: ``{"outs": outs_dot}``. None does not move.
    cache : MergeCache

    Returns
    -------
    MergeTangents
        ``out_dot`` and ``lse_dot``.

    Examples
    --------
    >>> out, cache = merge_forward(np.array([[[4.0]], [[8.0]]]), np.log([[3.0], [1.0]]))
    >>> merge_jvp({"lses": np.array([[0.0], [1.0]])}, cache)  # the second part gains weight
    MergeTangents(out_dot=array([[0.75]]), lse_dot=array([0.25]))
    """
    check_type("cache", cache, MergeCache, "merge_forward")
    outs, lses, shares, _, dtype = cache
    moving = tangents_of(tangents, {"outs": outs.shape, "lses": lses.shape}, outs.dtype)
    dots = merge_steps_jvp(moving["outs"], moving["lses"], outs, lses, shares)
    return MergeTangents._make(dot.astype(dtype, copy=False) for dot in dots)


AXES = {1: "T_q", 2: "B T_q", 3: "B H T_q"}  # of lse, by rank


def _records(values: Values) -> Records:
    lses = values["lses"]
    axes = AXES.get(lses.ndim - 1, "")
    yield "outs", f"P {axes} d_v", ""
    yield "lses", f"P {axes}", ""
    equation = "np.exp(lses - lses.max(axis=0)) / np.exp(lses - lses.max(axis=0)).sum(axis=0)"
    if np.isneginf(lses).any():
        equation = f"np.where(np.isneginf(lses), 0, {equation})"
    yield "shares", f"P {axes}", equation
    yield "out", f"{axes} d_v", "(shares[..., None] * outs).sum(axis=0)"


def _records_backward(values: Values) -> Records:
    axes, has_d_lse = AXES.get(values["d_out"].ndim - 1, ""), values["d_lse"] is not None
    yield "d_out", f"{axes} d_v", ""
    yield "d_lse", axes, ""
    yield "d_outs", f"P {axes} d_v", "shares[..., None] * d_out"
    d_shares = "(d_out * (outs - out)).sum(axis=-1)"
    yield "d_lses", f"P {axes}", f"shares * ({d_shares}{' + d_lse' if has_d_lse else ''})"


def _stack(name: str, parts: Any) -> Array:
    """Return the parts as one array, (P, ...)."""
    if isinstance(parts, np.ndarray):
        return as_float_array(name, parts)
    arrays = [as_float_array(f"{name}[{p}]", part) for p, part in enumerate(parts)]
    for p, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"{name}[{p}]: expected {arrays[0].shape}, as {name}[0]; got {array.shape}"
            )
    return np.stack(arrays) if arrays else np.empty(0)
