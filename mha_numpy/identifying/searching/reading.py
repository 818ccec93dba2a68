"""The weights of a function, read from its output, which is linear in them."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import find_orders
from mha_numpy.identifying.family import STAGES, Settings, evaluate
from mha_numpy.identifying.family.mixing import merge_heads
from mha_numpy.identifying.searching.search import Found, Group, Near, Seen, choices_of, search

CLOSE = 1e-3  # of an output; weights that are smaller may be rounding
CLOSE_SCORES = 0.02


def _settings_of(*stages: str) -> tuple[str, ...]:
    return tuple(setting for name in stages for setting in STAGES[name].usual)


OF_VALUES = _settings_of("take", "project", "split", "group", "finish")
OF_SCORES = _settings_of("take", "project", "split", "rotate", "group", "match")
OF_WEIGHTS = ("scale", *_settings_of("see", "normalise"))


def search_by_weights(
    groups: Sequence[Group], numbers: Sequence[float], *, until: float, bases: Sequence[Settings]
) -> Found | None:
    """Return settings that explain a group: those of values, of scores, of weights, in turn.

    Deviations of each part are found by themselves, so that there may be more of them in all.
    """
    choices = choices_of(numbers, OF_SCORES)
    for group in groups:
        problem = group[0].problem
        for of_values, weights in _readings(group, until):
            near = [Near(group, {**base, **of_values}, choices) for base in bases]
            for cost in range(4):
                tried = ((s, evaluate(problem, s)) for one in near for s in one.at(cost))
                in_time = takewhile(lambda _: clock() < until, tried)
                fitting = [s for s, own in in_time if own and fits_scores(own["scores"], weights)]
                found = search(
                    [group], numbers, until=until, most=dict.fromkeys(range(5), 1),
                    bases=fitting, only=OF_WEIGHTS,
                )  # fmt: skip
                if found or clock() > until:
                    return found
    return None


def _readings(group: Group, until: float) -> Iterator[tuple[Settings, Array]]:
    """Yield weights that a call may have had, with the settings of values that give them."""
    near = Near(group, {}, choices_of((), OF_VALUES))
    known: list[Array] = []
    for settings in (each for cost in range(3) for each in near.at(cost)):
        if clock() > until:
            return
        weights = read_weights(group[0], settings)
        if weights is not None and not any(np.allclose(weights, other) for other in known):
            known.append(weights)
            yield settings, weights


def read_weights(seen: Seen, settings: Settings) -> Array | None:
    """Return the weights (B, H, T, S) that give an output with its values, None if none do."""
    values = evaluate(seen.problem, settings)
    if values is None or values["values"].shape[2] >= values["values"].shape[3]:
        return None
    for _, array in seen.called.arrays:
        for what in ("out", "projected"):
            shape = values[what].shape
            for order in find_orders(shape, array.shape):
                axes = (*(axis for axis in range(len(shape)) if axis not in order), *order)
                last = array.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))
                heads = last if what == "out" else _heads(last, values, seen, settings)
                weights = heads @ np.linalg.pinv(values["values"])
                if abs(weights @ values["values"] - heads).max() < CLOSE * abs(heads).max():
                    return np.broadcast_to(weights, values["dropped"].shape)
    return None


def _heads(last: Array, values: dict[str, Array], seen: Seen, settings: Settings) -> Array:
    """Undo what follows the mixing; zeros where that cannot be undone."""
    given = {} if settings.get("w_o") == "left out" else seen.problem.given
    added = values["whole_q"] if settings.get("after") == "+ x" else 0
    last = last - added - given.get("b_o", 0)
    last = last @ np.linalg.pinv(given["w_o"]) if "w_o" in given else last
    places = np.arange(values["heads"].size).reshape(values["heads"].shape)
    how = "reshape without transpose" if values["goes_back"] else settings.get("merge", "columns")
    merged = merge_heads(places, how)
    if merged.size != places.size or last.size != places.size:
        return np.zeros(places.shape)
    return last.ravel()[np.argsort(merged, None)].reshape(places.shape)


@np.errstate(all="ignore")
def fits_scores(scores: Array, weights: Array) -> bool:
    """Return whether most weights are exp(f * score), but for factors of queries, keys or cells."""
    logs = np.where(weights > CLOSE, np.log(weights), np.nan)
    for axis in (-1, -2, 1) if scores.shape == weights.shape else ():
        a, b = (x.swapaxes(axis, -1).reshape(-1, x.shape[axis]) for x in (logs, scores))
        a, b = (x[np.isfinite(a).sum(-1) > 2] for x in (a, b))
        factors = np.sort((np.diff(a) / np.diff(b)).ravel())
        factors = factors[np.isfinite(factors) & (abs(factors) > CLOSE)]
        third = len(factors) // 3
        if third:  # f is where factors are closest
            at = np.argmin(factors[third:] - factors[:-third])
            gap = a - np.median(factors[at : at + third]) * b
            close = abs(gap - np.nanmedian(gap, -1, keepdims=True)) < CLOSE_SCORES
            if close.sum() > 0.5 * np.isfinite(gap).sum():
                return True
    return False
