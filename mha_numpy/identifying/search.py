"""Which settings give a function's numbers: the fewest deviations from the usual ones."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import SETTINGS, USUAL, Problem, Settings, evaluate
from mha_numpy.identifying.layouts import find_orders, in_order, layout_of
from mha_numpy.identifying.subject import Called
from mha_numpy.identifying.ways import Way

CLOSE = 2e-6  # relative: what computing in float32 leaves
CONVENTIONS = {  # values that are nobody's mistake: they are tried before the others
    "scale": {"1", "1/d"}, "causal": {"past and itself"}, "alignment": {"bottom right"},
    "rotation": {"halves", "pairs"}, "grouping": {"tile"}, "mask": {"true = blocked"},
    "alibi": {"slopes from 2^(-8/H)", "both sides"}, "hide": {"-1e9", "-1e4"},
    "padding": {"true = blocked"}, "qk_norm": {"l2", "rms"}, "after": {"+ x", "+ x, layer norm"},
    "scale_given": {"divided by"}, "normaliser": {"sigmoid"},
}  # fmt: skip
OUTPUTS = ("projected", "out", "merged")
OTHERS = ("weights", "dropped", "mean weights", "lse", "scores", "masked", "turned_k", "turned_v", "turned_q", "visible")
ROLE_OF = {
    "projected": "merged", "dropped": "weights", "scores": "weights", "masked": "weights", "visible": "weights",
    "turned_k": "key", "turned_v": "value", "turned_q": "query",
}  # fmt: skip


class Seen(NamedTuple):
    """What a function returned for a problem, called in one way."""

    way: Way
    problem: Problem
    called: Called


class Fit(NamedTuple):
    """An array that a function returned, and what it is."""

    path: str
    what: str  # "out", "weights" ...
    layout: str
    error: float  # the largest difference, relative to the largest number


class Found(NamedTuple):
    """Settings that explain what was seen."""

    seen: Seen
    settings: dict[str, Any]
    fits: tuple[Fit, ...]  # the first is that of the output


def fit(array: Array, values: dict[str, Any], names: Sequence[str], close: float) -> Fit | None:
    """Return which of some values an array is."""
    for what in names:
        own = values.get(what)
        if what == "mean weights":
            own = values["weights"].mean(1, keepdims=True)
        if own is None:
            continue
        for order in find_orders(own.shape, array.shape):
            error = distance(array, in_order(own, order, array.shape))
            if error <= close:
                role = ROLE_OF.get(what, "weights" if what == "mean weights" else what)
                return Fit("", what, layout_of(role, order, array.shape), error)
    return None


def distance(array: Array, own: Array) -> float:
    """Return the largest difference, relative to the largest number; inf where NaN differs."""
    with np.errstate(all="ignore"):
        if array.dtype == bool or own.dtype == bool:
            return 0.0 if np.array_equal(array, own) else np.inf
        same = (array == own) | (np.isnan(array) & np.isnan(own))
        gap = np.where(same, 0.0, abs(array - own)).max(initial=0.0)
        size = abs(own[np.isfinite(own)]).max(initial=0.0)
    return float(gap / size) if gap and np.isfinite(gap) and size else (0.0 if gap == 0 else np.inf)


def cost_of(setting: str, value: Any) -> int:
    """Return how far a value is from the usual one."""
    if value in CONVENTIONS.get(setting, ()) or setting in ("softcap",):
        return 1
    return 2


def deviations(problem: Problem, numbers: Sequence[float]) -> list[tuple[str, Any]]:
    """Return the settings that change a problem's output, each with a value."""
    choices = {name: [*values[1:]] for name, values in SETTINGS.items()}
    for n in numbers:
        if n > 0:
            choices["scale"] += [n, 1 / n, n**-0.5, n**0.5]
            choices["softcap"].append(n)
            choices["base"].append(n)
            if n == int(n) and n < 12:
                w = int(n)
                choices["window"] += [(w, None), (w - 1, None), (w, w), (w - 1, w - 1), (w // 2, w // 2),
                                      (w, 0), (w - 1, 0)]  # fmt: skip
    usual = evaluate(problem, {})
    found = []
    for name, values in choices.items():
        for value in dict.fromkeys(values):
            if value == USUAL[name]:
                continue
            own = evaluate(problem, {name: value})
            if own is not None and (usual is None or not same_output(own, usual)):
                found.append((name, value))
            elif name in ("alignment", "base", "rotated", "direction", "first_position", "q_position",
                          "softcap_at", "hide", "frequencies"):  # fmt: skip
                found.append((name, value))  # quiet alone, not with others
    return sorted(found, key=lambda each: cost_of(*each))


def same_output(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether two results have the same numbers."""
    return a["projected"].shape == b["projected"].shape and (
        distance(a["projected"], b["projected"]) < 1e-9 and distance(a["out"], b["out"]) < 1e-9
    )


def combinations_of(
    problem: Problem, numbers: Sequence[float], cost: int
) -> Iterator[dict[str, Any]]:
    """Yield settings whose deviations cost exactly this much."""
    if cost == 0:
        yield {}
        return
    single = deviations(problem, numbers) if "deviations" not in problem.memo else None
    if single is not None:
        problem.memo["deviations"] = single  # type: ignore[index, assignment]
    single = problem.memo["deviations"]  # type: ignore[index, assignment]
    for start, (name, value) in enumerate(single):
        if cost_of(name, value) == cost:
            yield {name: value}
        for other, second in single[start + 1 :]:
            if other != name and cost_of(name, value) + cost_of(other, second) == cost:
                yield {name: value, other: second}


def search(
    all_seen: Sequence[Seen], numbers: Sequence[float], *, until: float, most: int = 4,
    close: float = CLOSE, base: Settings | None = None,
) -> Found | None:  # fmt: skip
    """Return the settings with the fewest deviations that explain one of the ways."""
    for cost in range(most + 1):
        for seen in all_seen:
            for settings in combinations_of(seen.problem, numbers, cost):
                values = evaluate(seen.problem, {**(base or {}), **settings})
                if values is None:
                    continue
                fits = fit_all(seen.called, values, close)
                if fits:
                    return Found(seen, {**(base or {}), **settings}, fits)
                if time.monotonic() > until:
                    return None
    return None


def fit_all(called: Called, values: dict[str, Any], close: float) -> tuple[Fit, ...]:
    """Return what each array of a result is, the output first; () if none is an output."""
    found = []
    for path, array in called.arrays:
        one = fit(array, values, OUTPUTS, close)
        if one:
            found.append(one._replace(path=path))
            break
    if not found:
        return ()
    for path, array in called.arrays:
        if path != found[0].path:
            one = fit(array, values, OTHERS + OUTPUTS, close)
            found.append(one._replace(path=path) if one else Fit(path, "", "", np.inf))
    return tuple(found)
