"""The weights of a function, read from its output, which is linear in them."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.clock import clock
from mha_numpy.identifying.family import STAGES, USUAL, Settings, evaluate
from mha_numpy.identifying.family.mixing import merge_heads
from mha_numpy.identifying.family.stages import ORDER
from mha_numpy.identifying.layouts import find_orders
from mha_numpy.identifying.search import (
    Found,
    Group,
    Near,
    Seen,
    choices_of,
    cost_of,
    distance,
    search,
)

OF_VALUES = (
    "exchanged", "params", "left_out", "packing", "split", "grouping", "merge", "w_o", "b_o",
    "after",
)  # fmt: skip
OF_SCORES = tuple(s for name in ORDER[:6] for s in STAGES[name].usual)  # from take to match
OF_WEIGHTS = (*STAGES["see"].usual, *STAGES["normalise"].usual)
CLOSE = 1e-3  # of an output; weights that are smaller may be rounding
CLOSE_SCORES = 0.02


def search_by_weights(
    groups: Sequence[Group], numbers: Sequence[float], *, until: float, bases: Sequence[Settings]
) -> Found | None:
    """Return settings that explain a group: those of values, of scores, of weights, in turn.

    Deviations of each part are found by themselves, so that there may be more of them in all.
    """
    for group in groups:
        for of_values, weights in _readings(group):
            choices = choices_of(numbers, OF_SCORES)
            near = [Near(group, {**base, **of_values}, choices) for base in bases]
            for cost, one in product(range(4), near):
                if clock() > until:
                    return None
                for settings in sorted(_fitting(one, cost, weights), key=_cost):
                    found = search(
                        [group], numbers, until=until, most=dict.fromkeys(range(5), 1),
                        bases=(settings,), only=OF_WEIGHTS,
                    )  # fmt: skip
                    if found:
                        return found
    return None


def _cost(settings: Settings) -> int:
    return sum(cost_of(*each) for each in settings.items())


def _readings(group: Group) -> Iterator[tuple[Settings, Array]]:
    """Yield weights that a call may have had, with the settings of values that give them."""
    near = Near(group, {}, choices_of((), OF_VALUES))
    known: list[Array] = []
    for settings in (each for cost in range(3) for each in near.at(cost)):
        weights = read_weights(group[0], settings)
        if weights is not None and not any(np.allclose(weights, other) for other in known):
            known.append(weights)
            yield settings, weights


def read_weights(seen: Seen, settings: Settings) -> Array | None:
    """Return the weights (B, H, T, S) that give an output with its values, None if none do."""
    values = evaluate(seen.problem, settings)
    if values is None or "layer norm" in settings.get("after", ""):
        return None
    v = np.broadcast_to(values["values"], (*values["heads"].shape[:2], *values["values"].shape[2:]))
    for _, array in seen.called.arrays:
        for what in ("out", "projected"):
            for order in find_orders(values[what].shape, array.shape):
                shape = values[what].shape
                ones = [axis for axis in range(len(shape)) if axis not in order]
                last = array.reshape([shape[axis] for axis in (*ones, *order)])
                last = last.transpose(np.argsort((*ones, *order)))
                heads = last if what == "out" else _heads(last, values, seen, settings)
                if heads is None or v.shape[2] > v.shape[3]:
                    continue
                weights = heads @ np.linalg.pinv(v)
                if abs(weights @ v - heads).max() < CLOSE * abs(heads).max():
                    return weights
    return None


def _heads(last: Array, values: dict[str, Array], seen: Seen, settings: Settings) -> Array | None:
    """Undo what follows the mixing."""
    given, heads = seen.problem.given, values["heads"]
    if settings.get("after") == "+ x":
        last = last - values["from_q"]
    if "b_o" in given and settings.get("b_o") != "left out":
        last = last - given["b_o"]
    if "w_o" in given and settings.get("w_o") != "left out":
        last = last @ np.linalg.pinv(given["w_o"])
    places = np.arange(heads.size).reshape(heads.shape)
    how = "reshape without transpose" if values["goes_back"] else settings.get("merge", "columns")
    if how in ("mean of heads", "sum of heads") or last.size != heads.size:
        return None
    out = np.empty(heads.size)
    out[merge_heads(places, how).ravel()] = last.ravel()
    return out.reshape(heads.shape)


def _fitting(near: Near, cost: int, weights: Array) -> Iterator[Settings]:
    """Yield settings whose scores give weights, whatever hides cells and normalises."""
    problem = near.group[0].problem
    scales = [value for each in near.choices.values() for name, value in each if name == "scale"]
    for settings in near.at(cost):
        own = evaluate(problem, settings)
        factor = find_factor(own["scores"], weights) if own else 0.0
        if factor == 1:
            yield settings
        for scale in (USUAL["scale"], *scales) if own and factor not in (0, 1) else ():
            new = evaluate(problem, {**settings, "scale": scale})
            if new and own and distance(new["scores"], factor * own["scores"]) < CLOSE:
                yield {**settings, "scale": scale}


def _commonest(numbers: Array) -> float:
    """Return the middle of the closest third of numbers that are neither 0 nor infinite."""
    some = np.sort(numbers[np.isfinite(numbers) & (abs(numbers) > CLOSE)])
    count = max(len(some) // 3, 1)
    at = np.argmin(some[count:] - some[:-count]) if len(some) > count else 0
    return float(np.median(some[at : at + count])) if len(some) else 1.0


@np.errstate(all="ignore")
def find_factor(scores: Array, weights: Array) -> float:
    """Return f if most weights are exp(f * score) but for a factor of each query, key or cell.

    0 if there is no such f.
    """
    logs = np.where(weights > CLOSE, np.log(weights), np.nan)
    for axis in (-1, -2, 1) if scores.shape == weights.shape else ():
        a, b = (x.swapaxes(axis, -1).reshape(-1, x.shape[axis]) for x in (logs, scores))
        is_long = np.isfinite(a).sum(-1) > 2
        a, b = a[is_long], b[is_long]
        for factor in (1.0, _commonest(np.diff(a) / np.diff(b))) if len(a) else ():
            gap = a - factor * b
            close = abs(gap - np.nanmedian(gap, -1, keepdims=True)) < CLOSE_SCORES
            if close.sum() > 0.5 * np.isfinite(gap).sum():
                return factor
    return 0.0
