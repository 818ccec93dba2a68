"""Which cells are visible, and what becomes of the scores of hidden ones."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family.problem import Problem
from mha_numpy.identifying.family.stages import softmax, stage

CAUSAL = ("", "past and itself", "past", "one ahead", "future and itself", "future")


@stage(
    causal=CAUSAL,
    alignment=("top left", "bottom right", "none with one query"),
    window=(None,),  # (keys before, keys after); other values come from numbers in the source
    blocks=(None, 2),  # tokens in each; or what is given as the size of blocks
    in_blocks=("its own", "queries counted again", "keys counted again"),
    stride=(None, 2),
    window_given=("w-1 before", "w before", "w-1 both", "w both", "w//2 both", "w+1 before",
                  "w/2-1 both", "w-2 before", "w after", "w before, w-1 after", "left, right"),
    mask=("true = visible", "true = blocked", "ignored"),
    mask_index=("", "transposed", "and transposed", "of the first sequence", "of the first head",
                "repeated for tiled", "tiled for repeated"),
    lengths=("j < n", "j <= n", "j < n - 1", "last n", "j > n", "j >= n"),
    rows_by=("keys", "queries", "both"),
    combined=("and", "or", "mask alone", "causal alone", "first mask", "second mask"),
)  # fmt: skip
def see(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Decide for each cell whether the query sees the key."""
    B, H, T, S = x.scores.shape
    i, j = np.arange(T)[:, None], np.arange(S)
    if s.alignment == "bottom right":
        i = i + S - T
    i = i + (problem.get("offset") or 0)
    if problem.get("k_positions") is not None:
        i, j = problem.given["positions"][:, None, :, None], x.k_positions[:, None, None, :]
    elif problem.get("q_segments") is not None:
        i, j = (each[:, None] for each in _places(x.q_segments, x.segments, s.alignment))
    is_causal, block = problem.get("is_causal"), problem.get("block") or s.blocks
    ruled = []
    if s.blocks and s.in_blocks == "its own":
        ruled.append(i // block == j // block)
    elif s.blocks:
        i, j = (i % block, j) if s.in_blocks.startswith("queries") else (i, j % block)
    if s.causal and is_causal is not False and not (s.alignment.startswith("none") and T == 1):
        ruled.append({
            "past and itself": j <= i, "past": j < i, "one ahead": j <= i + 1,
            "future and itself": j >= i, "future": j > i,
        }[s.causal])  # fmt: skip
    w = problem.get("window")
    if w is not None or s.window is not None:
        before, after = s.window if w is None else window_of(w, s.window_given)
        ruled.append((j >= i - before) & (True if after is None else j <= i + after))
    if s.stride and T > 1:  # a single query shows no stride
        ruled.append((i - j) % (problem.get("block") or s.stride) == 0)
    masked = []
    mask = problem.get("mask")
    if mask is not None and s.mask != "ignored":
        cells = mask if s.mask == "true = visible" else ~mask
        if s.mask_index.endswith("transposed"):
            turned = cells.swapaxes(-1, -2)
            cells = turned & cells if s.mask_index.startswith("and") else turned
        if s.mask_index == "of the first sequence":
            cells = cells[:1]
        if s.mask_index == "of the first head":
            cells = cells[:, :1]
        b, h = np.arange(B)[:, None], np.arange(H)  # heads and batch in one axis
        if s.mask_index == "repeated for tiled":
            cells = cells[(h * B + b) // H, 0]
        if s.mask_index == "tiled for repeated":
            cells = cells[(b * H + h) % B, 0]
        masked.append(cells)
    more = problem.get("more_mask")
    if more is not None and s.mask != "ignored":
        masked.append(more if s.mask == "true = visible" else ~more)
    if problem.get("segments") is not None:
        of_queries = x.segments if problem.get("q_segments") is None else x.q_segments
        masked.append(of_queries[:, None, :, None] == x.segments[:, None, None, :])
    if problem.get("lengths") is not None:
        of_keys = _rows(x.lengths[:, None], S, s.lengths)[:, None, None, :]
        of_queries = _rows(x.lengths[:, None], T, s.lengths)[:, None, :, None]
        masked.append({"keys": of_keys, "queries": of_queries}.get(s.rows_by, of_keys & of_queries))
    if problem.get("q_lengths") is not None:
        masked.append(_rows(x.q_lengths[:, None], T, "j < n")[:, None, :, None])
    if s.combined == "mask alone" and masked:
        ruled = []
    if s.combined == "causal alone" and ruled:
        masked = []
    if s.combined.endswith(" mask") and len(masked) > 1:
        masked = masked[:1] if s.combined.startswith("first") else masked[1:]
    visible = np.ones((B, H, T, S), bool)
    if s.combined == "or" and ruled and masked:
        visible = visible & (np.logical_and.reduce(ruled) | np.logical_and.reduce(masked))
    else:
        for cells in (*ruled, *masked):
            visible = visible & cells
    return {"visible": visible, "has_rule": bool(ruled or masked)}


def _places(of_queries: Array, of_keys: Array, alignment: str) -> tuple[Array, Array]:
    """Return the places of queries (B, T, 1) and keys (B, 1, S), each in its own sequence."""
    j = np.tril(of_keys[:, :, None] == of_keys[:, None], -1).sum(-1)
    same = of_queries[:, :, None] == of_queries[:, None]
    i = np.tril(same, -1).sum(-1)
    if alignment == "bottom right":
        i = i + (of_queries[:, :, None] == of_keys[:, None]).sum(-1) - same.sum(-1)
    return i[:, :, None], j[:, None]


def _rows(n: Array, count: int, lengths: str) -> Any:
    j = np.arange(count)
    return {"j < n": j < n, "j <= n": j <= n, "j < n - 1": j < n - 1, "last n": j >= count - n,
            "j > n": j > n, "j >= n": j >= n}[lengths]  # fmt: skip


def window_of(w: Any, given: str) -> tuple[float, int | None]:
    """Return how many keys before and after a query are in a window of w."""
    if isinstance(w, tuple):
        return {"left, right": w}[given]
    return {
        "w-1 before": (w - 1, None), "w before": (w, None), "w+1 before": (w + 1, None),
        "w-2 before": (w - 2, None), "w-1 both": (w - 1, w - 1), "w both": (w, w),
        "w//2 both": (w // 2, w // 2), "w/2-1 both": (max(w // 2 - 1, 0),) * 2,
        "w after": (np.inf, w), "w before, w-1 after": (w, w - 1),
    }[given]  # fmt: skip


HIDE = ("-inf", "-10", "-1", "0", "+inf", "after the softmax", "+ mask")


@stage(
    hide=HIDE,
    softmax_axis=("keys", "queries", "heads", "all", "features of batch"),
    normaliser=("softmax", "sigmoid", "sigmoid, -log T_k", "none", "elu(x)+1 of q and k",
                "relu of q and k", "exp of q and k", "streamed, sum not rescaled",
                "streamed, output not rescaled", "streamed, divided in each block", "sum",
                "relu, sum", "abs, sum", "square, sum", "one more in the sum", "2^x",
                "log-softmax", "softmax twice", "1/T_k", "sum, relu+eps", "relu, 1/T_k",
                "sum of other queries", "own maximum, sum of other queries",
                "maximum of other queries", "sum and maximum of other queries",
                "elu(x)+1 of q and k, no sum"),
    block=(2, 1),
    blind=("nan", "zeros", "mean of all values", "as if nothing were hidden"),
    dropout_mask=("times", "1 = dropped", "before the softmax", "ignored", "renormalised"),
)  # fmt: skip
def normalise(x: SimpleNamespace, s: SimpleNamespace, problem: Problem) -> dict[str, Any]:
    """Hide cells, turn scores into weights, and drop some of these."""
    drop = problem.get("dropout_mask")
    scores = _hide(x.scores, x.visible, s.hide, x.floor) if x.has_rule else x.scores
    if drop is not None and s.dropout_mask == "before the softmax":
        scores = scores * drop
    if "of q and k" in s.normaliser:
        seen = np.ones_like(x.visible) if s.hide == "after the softmax" else x.visible
        weights, lse = _by_features(x, s.normaliser, seen)
    elif s.normaliser.startswith("streamed"):
        weights, lse = _streamed(scores, s.normaliser, problem.get("block") or s.block)
    else:
        axis = {"keys": -1, "queries": -2, "heads": 1, "all": (-1, -2), "features of batch": 0}
        weights, lse = _normalise(scores, axis[s.softmax_axis], s, problem, x.visible)
        weights = weights * x.late_scale
    if s.hide == "after the softmax":
        weights = weights * x.visible
    if s.blind != "nan":
        blind = ~(x.visible & ~np.isneginf(x.scores)).any(-1, keepdims=True)
        plain = softmax(x.scores, -1) if s.blind.startswith("as if") else 1 / scores.shape[-1]
        weights = np.where(blind, 0 if s.blind == "zeros" else plain, weights)
    dropped = weights if drop is None else _drop(weights, drop, s.dropout_mask)
    return {"masked": scores, "weights": weights, "lse": lse, "dropped": dropped}


def _hide(scores: Array, visible: Array, how: str, floor: float) -> Array:
    """Return the scores with those of hidden cells changed."""
    if how == "after the softmax":
        return scores
    if how == "+ mask":
        return scores + visible
    return np.where(visible, scores, {"+inf": 1e9, "-inf": floor}.get(how) or float(how))


def _drop(weights: Array, drop: Array, how: str) -> Array:
    """Return weights times a dropout mask."""
    if how in ("ignored", "before the softmax"):
        return weights
    dropped = weights * ((drop == 0) if how == "1 = dropped" else drop)
    return dropped / dropped.sum(-1, keepdims=True) if how == "renormalised" else dropped


def _normalise(
    scores: Array, axis: Any, s: SimpleNamespace, problem: Problem, visible: Array
) -> tuple[Array, Array]:
    largest = scores.max(-1, keepdims=True, initial=-1e30)
    lse = (np.log(np.exp(scores - largest).sum(-1, keepdims=True)) + largest)[..., 0]
    kind = s.normaliser
    sink = problem.get("sink")
    if sink is not None and kind == "softmax":
        lse = np.logaddexp(lse, sink[..., None])
        return np.exp(scores - lse[..., None]), lse
    if kind == "softmax":
        return softmax(scores, axis), lse
    if "of other queries" in kind:  # without keepdims, row i's belongs to column i
        shift = largest if kind.startswith("own") else largest.swapaxes(-1, -2)
        shift = largest.max() if kind == "sum of other queries" else shift
        weights = np.exp(scores - shift)
        sums = weights.sum(-1, keepdims=True)
        return weights / (sums if kind.startswith("maximum of") else sums.swapaxes(-1, -2)), lse
    if kind == "softmax twice":
        return softmax(softmax(scores, axis), axis), lse
    if kind == "one more in the sum":
        return np.exp(scores - np.logaddexp(lse, 0)[..., None]), lse
    if kind == "2^x":
        return softmax(scores * np.log(2), axis), lse
    if kind == "log-softmax":
        return np.log(softmax(scores, axis)), lse
    if kind.startswith("sigmoid"):
        shift = np.log(scores.shape[-1]) if "log" in kind else 0
        return 1 / (1 + np.exp(shift - scores)), lse
    scores = np.where(np.isneginf(scores), 0, scores)
    scores = scores.clip(0) if "relu" in kind else scores
    if kind in ("none", "1/T_k", "relu, 1/T_k"):
        return scores if kind == "none" else scores / scores.shape[-1], lse
    weights = {"sum": scores, "relu, sum": scores, "abs, sum": abs(scores),
               "square, sum": scores**2, "sum, relu+eps": scores + 1e-6}[kind]  # fmt: skip
    weights = np.where(visible, weights, 0)
    return weights / weights.sum(axis=axis, keepdims=True), lse


def _by_features(x: SimpleNamespace, kind: str, visible: Array) -> tuple[Array, Array]:
    """Return the weights of linear attention: products of positive features of q and k."""
    feature: Callable[[Array], Array] = {
        "elu(x)+1": lambda a: np.where(a > 0, a + 1, np.exp(np.minimum(a, 0))),
        "relu": lambda a: a.clip(0),
        "exp": lambda a: np.exp(a),
    }[kind.split()[0]]
    products = feature(x.turned_q) @ feature(x.keys).swapaxes(-1, -2) * visible
    sums = products.sum(-1, keepdims=True)
    return products / (1 if "no sum" in kind else sums), np.log(sums[..., 0])


def _streamed(scores: Array, kind: str, block: int) -> tuple[Array, Array]:
    """Return weights as computed by blocks of keys, where something keeps an earlier maximum."""
    ends = np.minimum(np.arange(scores.shape[-1]) // block * block + block, scores.shape[-1])
    largest = np.maximum.accumulate(scores, -1)[..., ends - 1]  # so far, for each key
    own, right = np.exp(scores - largest), np.exp(scores - largest[..., -1:])
    if kind.endswith("divided in each block"):
        so_far = np.where(np.arange(scores.shape[-1]) <= ends[:, None] - 1, 1.0, 0.0)  # (S, S)
        shifted = np.exp(scores[..., None, :] - largest[..., :, None]) * so_far
        return right / shifted.sum(-1), (np.log(right.sum(-1)) + largest[..., -1])
    above, below = (right, own) if kind.endswith("sum not rescaled") else (own, right)
    sums = below.sum(-1, keepdims=True)
    return above / sums, (np.log(sums) + largest[..., -1:])[..., 0]
