"""Which settings give a function's numbers: the fewest deviations from the usual ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import find_orders, in_order, layout_of
from mha_numpy.identifying.calling.subject import Called
from mha_numpy.identifying.calling.ways import Way
from mha_numpy.identifying.family import SETTINGS, USUAL, Problem, Settings, evaluate

CLOSE = {"float64": 2e-6, "float32": 5e-5, "float16": 5e-3}  # relative; float32 inside is common
CONVENTIONS: dict[str, set[Any]] = {  # values that are nobody's mistake: they cost 1
    "scale": {"1", "1/d"}, "causal": {"past and itself"}, "alignment": {"bottom right"},
    "rotation": {"halves", "pairs"}, "grouping": {"tile"}, "mask": {"true = blocked"},
    "alibi": {"slopes from 2^(-8/H)", "both sides"}, "qk_norm": {"l2", "rms"},
    "blind": {"zeros", "mean of all values", "as if nothing were hidden"}, "product": {"additive"},
    "after": {"+ x", "+ x, layer norm", "tanh"}, "beside": {"x, output"}, "normaliser": {"sigmoid"},
    "joined": {"k, q"}, "buckets": {"j - i", "i - j"},
    "scale_given": {"divided by", "divided by the root", "times exp"},
    "block": {1},
}  # fmt: skip
RARE = {  # values that hardly anybody writes: they cost 3, all others 2
    "exchanged": {"q k v", "k := q", "k, v := q", "q v"},
    "params": {"q k v", "k := q", "q v", "v := k", "v := q"},
    "normaliser": {"none", "abs, sum", "square, sum", "log-softmax", "1/T_k", "2^x", "sum",
                   "relu, sum", "sum, relu+eps", "exp of q and k", "relu of q and k"},
    "mask_index": {"of the first head", "and transposed", "of the first sequence",
                   "repeated for tiled", "tiled for repeated"},
    "hide": {"-1", "-10", "+inf", "+ mask"}, "grouping": {"mean", "only the first"},
    "softmax_axis": {"features of batch"},
    "merge": {"sum of heads", "mean of heads"}, "lengths": {"j > n", "j >= n", "j < n - 1"},
    "qk_norm": {"l2 of q", "l2 of k", "l2 over heads", "l2 over tokens"},
    "mixed": {"v reshaped", "summed apart"}, "product": {"summed apart"},
    "split": {"tokens mixed with batch", "batch mixed with tokens", "heads within each token",
              "reshape of q", "reshape of k", "reshape of v", "features before heads in q",
              "features before heads in k", "features before heads in v"},
    "frequencies": {"base^(-4i/d)"}, "rotation_axis": {"heads"},
    "scale": {"1/sqrt(T_q)", "1/sqrt(H)", "1/sqrt(2 d)", "d^(-1/4)", "1/d^2", "d", "1/D"},
    "in_blocks": {"queries counted again", "keys counted again"},
    "after": {"layer norm"}, "alibi": {"slopes from 1", "wrong sign"},
}  # fmt: skip
ANY_COST = {
    "softcap": 1,
    "turned": 1,
    "before": 1,
    "most_distance": 3,
    "block": 3,
}  # whatever the value
SILENT = 1e-9  # a smaller difference is none
TINY = 1e-3  # numbers that are smaller, or larger than 1 / TINY, are no scale, softcap or window
OUTPUTS = ("projected", "out", "merged")
OTHERS = (
    "weights", "dropped", "mean weights", "lse", "scores", "masked", "turned_k", "turned_v",
    "turned_q", "visible",
)  # fmt: skip
ROLE_OF = {  # the role that has the same axes
    "projected": "merged", "turned_k": "key", "turned_v": "value", "turned_q": "query",
    **dict.fromkeys(("dropped", "mean weights", "scores", "masked", "visible"), "weights"),
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

    def output(self, seen: Seen) -> Array:
        """Return the output among what a call returned."""
        arrays = dict(seen.called.arrays)
        return arrays.get(self.fits[0].path, seen.called.arrays[0][1])


def fit(
    array: Array, values: dict[str, Any], names: Sequence[str], close: float = 0.0
) -> Fit | None:
    """Return which of some values an array is."""
    close = close or CLOSE.get(array.dtype.name, CLOSE["float64"])
    for what in names:
        own = values.get(what)
        if what == "mean weights":
            own = values["weights"].mean(1, keepdims=True)
        if own is None or (what == "merged" and own is values["projected"]):
            continue
        for order in find_orders(own.shape, array.shape):
            error = distance(array, in_order(own, order, array.shape))
            if error <= close:
                layout = layout_of(ROLE_OF.get(what, what), order, array.shape)
                return Fit("", what, layout, error)
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


def cost_of(setting: str, value: Any) -> int:
    """Return how far a value is from the usual one: 1 for a convention, 2 or 3 for a mistake."""
    if value in CONVENTIONS.get(setting, ()):
        return 1
    if setting in ANY_COST:
        return ANY_COST[setting]
    return 3 if value in RARE.get(setting, ()) else 2


NEEDS: dict[str, tuple[str, ...]] = {  # alone they change nothing; with one of these they may
    "rotated": ("rotation",), "direction": ("rotation",), "first_position": ("rotation",),
    "q_position": ("rotation",), "base": ("rotation",), "frequencies": ("rotation",),
    "rotation_axis": ("rotation",), "angles": ("rotation",), "turned": ("rotation",),
    "in_blocks": ("blocks",),
    "alignment": ("causal", "window"), "softcap_at": ("softcap",),
    "hide": ("causal", "window"), "combined": ("causal", "window"), "bias": ("alibi",),
    "blind": ("causal", "window", "alignment", "mask", "mask_index", "lengths", "rows_by"),
    "block": ("normaliser",), "most_distance": ("buckets",), "mask_index": ("mask",),
}  # fmt: skip
Deviation = tuple[str, Any]  # a setting, and a value that is not usual


def search(
    groups: Sequence[Group], numbers: Sequence[float], *, until: float, most: Mapping[int, int],
    bases: Sequence[Settings] = ({},), only: Sequence[str] = (),
    accept: Callable[[Found], bool] = lambda found: True,
) -> Found | None:  # fmt: skip
    """Return the settings with the fewest deviations that explain one of the groups.

    `most` says for each cost how many groups are tried. Only the settings `only` may deviate, or
    all if there are none. What `accept` refuses is none.
    """
    choices = choices_of(numbers, only)
    near = [[Near(group, base, choices) for group in groups] for base in bases]
    for cost, count in most.items():
        for one in (one for of_base in near for one in of_base[:count]):
            for settings in one.at(cost):
                fits = explain(one.group[0], settings)
                if fits and all(explain(other, settings) for other in one.group[1:]):
                    found = Found(one.group[0], settings, fits)
                    if accept(found):
                        return found
                if clock() > until:
                    return None
    return None


def choices_of(numbers: Sequence[float], only: Sequence[str]) -> dict[int, list[Deviation]]:
    """Return settings with values by cost, also values that numbers of a source suggest."""
    choices = {name: [*values] for name, values in SETTINGS.items()}
    choices["base"] += [n for n in numbers if n > 1]
    for n in numbers:
        if not TINY < n < 1 / TINY:  # an eps, or a score of hidden cells
            continue
        choices["scale"] += [n, 1 / n, n**-0.5, n**0.5] * (n != 1)  # which is the setting "1"
        choices["softcap"].append(n)
        choices["most_distance"].append(n)
        choices["turned"] += [n, 1 / n]
        if n == int(n) > 1:
            choices["before"].append(int(n))  # groups
        if n == int(n) and n < 12:
            w = int(n)
            choices["window"] += [(b, a) for b in (w, w - 1) for a in (None, b, 0, b - 1)]
            choices["window"].append((w // 2, w // 2))
            for name in ("block", "blocks", "stride"):
                choices[name] += [w] * (w > 1)
    by_cost: dict[int, list[Deviation]] = {}
    for name in only or choices:
        for value in dict.fromkeys(choices.get(name, ())):
            by_cost.setdefault(cost_of(name, value), []).append((name, value))
    return by_cost


class Near:
    """The settings near a base: those with one deviation or two, by their cost."""

    def __init__(
        self, group: Group, base: Settings, choices: Mapping[int, Sequence[Deviation]]
    ) -> None:
        self.group, self.base, self.choices = group, base, choices
        self._loud: dict[int, list[Deviation]] = {}

    def at(self, cost: int) -> Iterator[dict[str, Any]]:
        """Yield the settings whose deviations cost exactly this much together."""
        if cost == 0:
            yield {**self.base}
        for each in self.loud(cost):
            yield {**self.base, **dict([each])}
        for own in range(1, cost):
            for each in self.choices.get(own, ()):
                if each[0] in NEEDS and each not in self.loud(own):
                    needed = (o for o in self.loud(cost - own) if o[0] in NEEDS[each[0]])
                    yield from ({**self.base, **dict([each, other])} for other in needed)
        for own in range(1, cost // 2 + 1):
            first, second = self.loud(own), self.loud(cost - own)
            for pair in combinations(first, 2) if first is second else product(first, second):
                if pair[0][0] != pair[1][0]:
                    yield {**self.base, **dict(pair)}

    def loud(self, cost: int) -> list[Deviation]:
        """Return the deviations of a cost that change an output."""
        if cost not in self._loud:
            self._loud[cost] = [
                each
                for each in self.choices.get(cost, ())
                if any(self._changes(seen.problem, *each) for seen in self.group)
            ]
        return self._loud[cost]

    def _changes(self, problem: Problem, name: str, value: Any) -> bool:
        if value == self.base.get(name, USUAL[name]):
            return False
        usual, own = evaluate(problem, self.base), evaluate(problem, {**self.base, name: value})
        if usual is None or own is None:
            return own is not None
        a, b = usual["projected"], own["projected"]
        return a.shape != b.shape or distance(a, b) >= SILENT


def explain(seen: Seen, settings: Settings) -> tuple[Fit, ...]:
    """Return what the arrays of a call are, the output first; () if none is an output."""
    values = evaluate(seen.problem, settings)
    if values is None:
        return ()
    is_projected = {"w_o", "w_c"} & seen.problem.given.keys() and settings.get("w_o") != "left out"
    outputs = ("projected",) if is_projected else OUTPUTS
    for path, array in seen.called.arrays:
        output = fit(array, values, outputs)
        if output:
            return (
                output._replace(path=path),
                *(
                    _fit_other(*other, seen, values)
                    for other in seen.called.arrays
                    if other[0] != path
                ),
            )
    return ()


def _fit_other(path: str, array: Array, seen: Seen, values: dict[str, Any]) -> Fit:
    """Return what an array is that is not the output: of the family, of the inputs, the scale."""
    given = {role: x for role, x in seen.problem.given.items() if isinstance(x, np.ndarray)}
    known = {**given, **values, "scale": np.array(seen.way.sizes.d**-0.5)}
    found = fit(array, known, (*OTHERS, *OUTPUTS, *given, "scale"))
    return (found or Fit("", "" if array.ndim else "number", "", np.inf))._replace(path=path)
