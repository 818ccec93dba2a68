"""The weights of a function, read from its output, which is linear in them."""

from collections.abc import Iterator, Sequence
from itertools import product, takewhile
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import find_orders
from mha_numpy.identifying.family import STAGES, Problem, Settings, evaluate
from mha_numpy.identifying.family.mixing import merge_heads
from mha_numpy.identifying.searching.search import Found, Group, Near, Seen, choices_of, search

CLOSE = 1e-3  # of an output; weights that are smaller may be rounding
CLOSE_SCORES = 0.02
MOST_FAR = 5  # what deviations of the values may cost


def settings_of(*stages: str) -> tuple[str, ...]:
    """Return the names of all settings of some stages."""
    return tuple(setting for name in stages for setting in STAGES[name].usual)


OF_VALUES = settings_of("take", "project", "split", "group", "finish")
OF_SCORES = settings_of("take", "project", "split", "rotate", "group", "match")
OF_WEIGHTS = ("scale", *settings_of("see", "normalise"))


def search_by_weights(
    groups: Sequence[Group], numbers: Sequence[float], *, until: float, bases: Sequence[Settings]
) -> Found | None:
    """Return settings that explain a group: those of values, of scores, of weights, in turn.

    Deviations of each part are found by themselves, so that there may be more of them in all.
    """
    choices = choices_of(numbers, OF_SCORES)
    for group, of_values, weights in readings(groups, until):
        problem = group[0].problem
        near = [Near(group, {**base, **of_values}, choices) for base in bases]
        for cost in range(4):
            tried = ((s, evaluate(problem, s)) for one in near for s in one.at(cost))
            in_time = takewhile(lambda _: clock() < until, tried)
            fitting, measured = list[Settings](), list[Settings]()
            for settings, own in in_time:
                if own and fits_scores(own["scores"], weights):
                    fitting.append(settings)
                scale = own and scale_of(problem, settings, weights)
                measured += [{**settings, "scale": scale}] if scale else []
            for most, near_by in ((4, fitting), (0, measured)):
                found = search(
                    [group], numbers, until=until, most=dict.fromkeys(range(most + 1), 1),
                    bases=near_by, only=OF_WEIGHTS,
                )  # fmt: skip
                if found or clock() > until:
                    return found
    return None


def readings(
    groups: Sequence[Group], until: float
) -> Iterator[tuple[Group, dict[str, Any], Array]]:
    """Yield weights that a call may have had, with the settings of values that give them.

    Those with the fewest deviations come first, whichever call it is.
    """
    choices = choices_of((), OF_VALUES)
    near = [(group, Near(group, {}, choices), list[Array]()) for group in groups]
    for cost, (group, one, known) in product(range(MOST_FAR), near):
        for settings in one.at(cost):
            if clock() > until:
                return
            weights = read_weights(group[0], settings)
            if weights is None:
                continue
            same = (other for other in known if other.shape == weights.shape)
            if not any(np.allclose(weights, other) for other in same):
                known.append(weights)
                yield group, settings, weights


def read_weights(seen: Seen, settings: Settings) -> Array | None:
    """Return the weights (B, H, T, S) that give an output with its values, None if none do."""
    values = evaluate(seen.problem, settings)
    if values is None:
        return None
    for _, array in seen.called.arrays:
        for what in ("out", "projected"):
            shape = values[what].shape
            for order in find_orders(shape, array.shape):
                every = (*(axis for axis in range(len(shape)) if axis not in order), *order)
                last = array.reshape([shape[axis] for axis in every]).transpose(np.argsort(every))
                heads, mixed = last, values["values"]
                if what == "projected":
                    heads, mixed = _heads(last, values, seen, settings)
                if any(
                    1 != a != b != 1 for a, b in zip(heads.shape[:2], mixed.shape[:2], strict=True)
                ):
                    continue  # merged otherwise
                weights = heads @ np.linalg.pinv(mixed)
                is_close = abs(weights @ mixed - heads).max() < CLOSE * abs(heads).max()
                if is_close and mixed.shape[2] < mixed.shape[3]:
                    B, H, T, S = values["dropped"].shape
                    if weights.shape[-1] > S:
                        weights = weights.reshape(B, T, H, S).swapaxes(1, 2)
                    return np.broadcast_to(weights, values["dropped"].shape)
    return None


def _heads(
    last: Array, values: dict[str, Array], seen: Seen, settings: Settings
) -> tuple[Array, Array]:
    """Undo what follows the mixing; return heads and their values, zeros where that fails.

    A projection to fewer features cannot be undone: its heads are one, of all their values.
    """
    given = {} if settings.get("w_o") == "left out" else seen.problem.given
    w_o, (B, H, _, e), S = given.get("w_o"), values["heads"].shape, values["values"].shape[2]
    is_added = settings.get("after") == "+ x"
    if is_added and seen.problem.get("query") is not None:  # to each head, before they are merged
        return np.zeros(values["heads"].shape), values["values"]
    added = values["whole_q"] if is_added else 0
    last = last - added - given.get("b_o", 0)
    if w_o is not None and w_o.shape[1] < len(w_o) == H * e:
        parts = np.broadcast_to(values["values"], (B, H, S, e))
        return last[:, None], (parts @ w_o.reshape(H, -1, w_o.shape[1])).reshape(B, 1, H * S, -1)
    last = last if w_o is None else last @ np.linalg.pinv(w_o)
    places = np.arange(values["heads"].size).reshape(values["heads"].shape)
    how = "reshape without transpose" if values["goes_back"] else settings.get("merge", "columns")
    merged = merge_heads(places, how)
    if merged.size != places.size or last.size != places.size:
        return np.zeros(places.shape), values["values"]
    return last.ravel()[np.argsort(merged, None)].reshape(places.shape), values["values"]


def scale_of(
    problem: Problem, settings: Settings, weights: Array
) -> float | tuple[float, ...] | None:
    """Return the scale with which weights are a softmax of scores: a number, or one per head."""
    plain = evaluate(problem, {**settings, "scale": "1"})
    if plain is None or plain["scores"].shape != weights.shape:
        return None
    is_exact = weights > CLOSE
    count = np.maximum(is_exact.sum(-1, keepdims=True), 1)
    logs, scores = (
        np.where(is_exact, x - np.where(is_exact, x, 0).sum(-1, keepdims=True) / count, 0)
        for x in (np.log(np.where(is_exact, weights, 1)), plain["scores"])
    )
    scale = (logs * scores).sum((0, 2, 3)) / (scores**2).sum((0, 2, 3))
    if not abs(logs - scale[:, None, None] * scores).max() < CLOSE:
        return None
    return float(scale[0]) if np.ptp(scale) < CLOSE * scale[0] else (*map(float, scale),)


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
            middle = np.maximum(np.isfinite(gap).sum(-1, keepdims=True) - 1, 0) // 2
            median = np.take_along_axis(np.sort(gap), middle, -1)  # NaN comes last
            close = abs(gap - median) < CLOSE_SCORES
            if close.sum() > 0.5 * np.isfinite(gap).sum():
                return True
    return False
