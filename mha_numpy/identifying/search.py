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

CLOSE = {"float64": 2e-6, "float32": 5e-5, "float16": 5e-3}  # relative; float32 inside is common
CONVENTIONS = {  # values that are nobody's mistake: they are tried before the others
    "scale": {"1", "1/d"}, "causal": {"past and itself"}, "alignment": {"bottom right"},
    "rotation": {"halves", "pairs"}, "grouping": {"tile"}, "mask": {"true = blocked"},
    "alibi": {"slopes from 2^(-8/H)", "both sides"}, "blind": {"zeros", "mean of all values", "as if nothing were hidden"},
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


Group = Sequence[Seen]  # calls in one way, with different lengths: settings have to explain all


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


def fit(
    array: Array, values: dict[str, Any], names: Sequence[str], close: float = 0.0
) -> Fit | None:
    """Return which of some values an array is."""
    close = close or CLOSE.get(array.dtype.name, CLOSE["float64"])
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
    if array.dtype == bool or own.dtype == bool:
        return 0.0 if np.array_equal(array, own) else np.inf
    with np.errstate(all="ignore"):
        gap = abs(array - own).max(initial=0.0)
        size = abs(own).max(initial=0.0)
        if not np.isfinite(gap + size):  # the slow way: NaN and inf have to be at the same places
            same = (array == own) | (np.isnan(array) & np.isnan(own))
            gap = np.where(same, 0.0, abs(array - own)).max(initial=0.0)
            size = abs(own[np.isfinite(own)]).max(initial=0.0)
    return float(gap / size) if gap and np.isfinite(gap) and size else (0.0 if gap == 0 else np.inf)


RARE = {
    "exchanged": {"q k v", "k := q", "k, v := q", "q v"}, "params": {"q k v", "k := q", "q v", "v := k", "v := q"},
    "normaliser": {"none", "abs, sum", "square, sum", "log-softmax", "1/T_k", "2^x", "sum, relu+eps",
                   "exp of q and k", "relu of q and k", "sum", "relu, sum"},
    "mask_index": {"of the first head", "and transposed", "of the first sequence"},
    "hide": {"-1", "-10", "+inf", "+ mask", "0 - mask", "-100"}, "grouping": {"mean", "only the first"},
    "softmax_axis": {"features of batch"}, "merge": {"sum of heads", "mean of heads"},
    "lengths": {"j > n", "j >= n", "j < n - 1"}, "qk_norm": {"l2 of q", "l2 of k"}, "mixed": {"v reshaped"},
    "split": {"tokens mixed with batch"}, "frequencies": {"base^(-4i/d)"}, "rotation_axis": {"heads"},
    "scale": {"1/sqrt(T_q)", "1/sqrt(H)", "1/sqrt(2 d)", "d^(-1/4)", "1/d^2", "d", "1/D"},
    "after": {"layer norm"}, "alibi": {"slopes from 1", "wrong sign"},
}  # fmt: skip


def cost_of(setting: str, value: Any) -> int:
    """Return how far a value is from the usual one: 1 for a convention, 2 or 3 for a mistake."""
    if value in CONVENTIONS.get(setting, ()) or setting == "softcap":
        return 1
    if value in RARE.get(setting, ()) or setting in ("most_distance", "block"):
        return 3
    return 2


def deviations(
    problem: Problem, numbers: Sequence[float], base: Settings, only: Sequence[str] = ()
) -> list[tuple[str, Any]]:
    """Return the settings that change a problem's output, each with a value."""
    key = ("deviations", *base.items(), *only)
    if key not in problem.memo:
        problem.memo[key] = _deviations(problem, numbers, base, only)  # type: ignore[assignment]
    return problem.memo[key]  # type: ignore[return-value]


QUIET = (  # alone they change nothing, but with others they do
    "alignment", "base", "rotated", "direction", "first_position", "q_position", "softcap_at",
    "hide", "blind", "frequencies", "combined", "bias", "mask_index", "block", "buckets", "most_distance",
)  # fmt: skip


def _deviations(
    problem: Problem, numbers: Sequence[float], base: Settings, only: Sequence[str]
) -> list[tuple[str, Any]]:
    choices = {name: [*values] for name, values in SETTINGS.items() if not only or name in only}
    for n in numbers if not only else ():
        choices["scale"] += [n, 1 / n, n**-0.5, n**0.5]
        choices["softcap"].append(n)
        choices["base"].append(n)
        choices["most_distance"].append(n)
        if n == int(n) and n < 12:
            w = int(n)
            choices["window"] += [(w, None), (w - 1, None), (w, w), (w - 1, w - 1), (w // 2, w // 2),
                                  (w, 0), (w - 1, 0)]  # fmt: skip
            choices["block"].append(w)
    usual = evaluate(problem, base)
    found = []
    for name, values in choices.items():
        for value in dict.fromkeys(values):
            if value == base.get(name, USUAL[name]):
                continue
            own = evaluate(problem, {**base, name: value})
            is_loud = own is not None and (usual is None or not same_output(own, usual))
            if is_loud or name in QUIET:
                found.append((name, value))
    return sorted(found, key=lambda each: cost_of(*each))


def same_output(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether two results have the same numbers."""
    return a["projected"].shape == b["projected"].shape and (
        distance(a["projected"], b["projected"]) < 1e-9 and distance(a["out"], b["out"]) < 1e-9
    )


def combinations_of(single: Sequence[tuple[str, Any]], cost: int) -> Iterator[dict[str, Any]]:
    """Yield settings whose deviations, at most two, cost exactly this much."""
    if cost == 0:
        yield {}
    by_cost: dict[int, list[tuple[str, Any]]] = {}
    for each in single:
        by_cost.setdefault(cost_of(*each), []).append(each)
    for name, value in by_cost.get(cost, ()):
        yield {name: value}
    for own in range(1, cost // 2 + 1):
        first, others = by_cost.get(own, []), by_cost.get(cost - own, [])
        for at, (name, value) in enumerate(first):
            for other, second in others[at + 1 :] if first is others else others:
                if other != name:
                    yield {name: value, other: second}


def search(
    groups: Sequence[Group], numbers: Sequence[float], *, until: float, costs: Sequence[int],
    bases: Sequence[Settings] = ({},), only: Sequence[str] = ()
) -> Found | None:  # fmt: skip
    """Return the settings with the fewest deviations that explain one of the ways."""
    for cost in costs:
        for base in bases:
            for group in groups:
                first = group[0]
                single = deviations(first.problem, numbers, base, only) if cost else ()
                for deviant in combinations_of(single, cost):
                    settings = {**base, **deviant}
                    fits = explain(first, settings)
                    if fits and all(explain(other, settings) for other in group[1:]):
                        return Found(first, settings, fits)
                    if time.monotonic() > until:
                        return None
    return None


def explain(seen: Seen, settings: Settings) -> tuple[Fit, ...]:
    """Return what the arrays of a call are under some settings, () if the output is none."""
    values = evaluate(seen.problem, settings)
    return fit_all(seen.called, values) if values else ()


def fit_all(called: Called, values: dict[str, Any]) -> tuple[Fit, ...]:
    """Return what each array of a result is, the output first; () if none is an output."""
    found = []
    for path, array in called.arrays:
        one = fit(array, values, OUTPUTS)
        if one:
            found.append(one._replace(path=path))
            break
    if not found:
        return ()
    for path, array in called.arrays:
        if path != found[0].path:
            one = fit(array, values, OTHERS + OUTPUTS)
            found.append(one._replace(path=path) if one else Fit(path, "", "", np.inf))
    return tuple(found)
