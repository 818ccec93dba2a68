"""What a function drops: the weights, the scores or the output, and how the rest is scaled."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.aftermath import State
from mha_numpy.identifying.calling.builds import method_of
from mha_numpy.identifying.calling.chance import Site, is_kept
from mha_numpy.identifying.calling.layouts import arrange
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot, Way
from mha_numpy.identifying.facts.options import Option
from mha_numpy.identifying.facts.probes import Fact
from mha_numpy.identifying.family import AXES, evaluate
from mha_numpy.identifying.searching.calls import call_way
from mha_numpy.identifying.searching.search import ROLE_OF, Found, Seen, explain, fit

RATE = 0.25  # far from its complement, so that a rate and a probability to keep differ
OFF = ("deterministic", "inference", "eval")  # flags that are True without training
NEAR = 0.02  # relative


class Kind(NamedTuple):
    """What a call dropped."""

    where: str
    factor: float = 0.0  # of what is kept, 0 if there is no single one
    share: float = 0.0  # of what is dropped


def find_dropout(subject: Subject, found: Found, options: Sequence[Option]) -> Iterator[Fact]:
    """Call a function with its randomness switched on, in training and without."""
    names = {option.role: option.argument for option in options}
    names |= {slot.role: name for name, slot in found.seen.way.slots.items()}
    rate, flag, rng = (names.get(role, "") for role in ("rate", "training", "rng"))
    is_module = not flag and method_of(subject.function, "train") is not None
    modes = [False, True] if flag or is_module else [None]
    live: dict[bool | None, tuple[Way, list[Seen]]] = {}
    for mode in modes:
        for way in _ways(found, rate, flag, rng, mode):
            seen = _calls(subject, found, way, mode if is_module else None)
            if seen:
                live[mode] = way, seen
                break
    by_mask = [*_by_mask(subject, found, options, rate)]
    if not live and "dropout_mask" not in names:
        ways = _ways(found, rate, flag, rng, modes[-1])
        with _free(subject, True, None):
            runs = any(call_way(subject, way, change=lambda problem: problem)[0] for way in ways)
        if (rate or flag) and runs:
            yield Fact("dropout", "none", rate)
    if by_mask or not live:
        yield from by_mask
        return
    mode = [*live][-1]
    yield from _when(flag, [*live], bool(rate or subject.chance.rates))
    flags = {  # that return weights
        option.argument: Slot("flag", value=option.value)
        for option in options
        if any("weights" in fit.what for fit in option.fits)
    }
    yield from _where(subject, found, *live[mode], mode if is_module else None, rate, flags)


def _by_mask(
    subject: Subject, found: Found, options: Sequence[Option], rate: str
) -> Iterator[Fact]:
    """Say whether a rate scales what a mask that is passed keeps."""
    for each in (found, *(option.found for option in options if option.found)):
        slot = Slot("rate", value=1 - RATE if is_kept(rate) else RATE)
        way = each.seen.way._replace(slots={**each.seen.way.slots, rate: slot})
        seen = call_way(subject, way)[0] if rate and way.argument("dropout_mask") else None
        if seen:
            kept = seen.problem.given["dropout_mask"] / (1 - RATE)
            if explain(seen._replace(problem=seen.problem.but(dropout_mask=kept)), each.settings):
                yield Fact("dropout_scale", "1/(1-p)", rate)


def _ways(found: Found, rate: str, flag: str, rng: str, mode: bool | None) -> Iterator[Way]:
    """Yield ways to call a function with its randomness on, one for each source of it."""
    way = _smaller(found)
    slots = {**way.slots}
    if rate:
        slots[rate] = Slot("rate", value=1 - RATE if is_kept(rate) else RATE)
    if flag:
        slots[flag] = Slot("training", value=mode)
    for source in ("rng", 0, None) if rng else ():
        yield way._replace(slots={**slots, rng: Slot("rng", value=source)})
    yield way._replace(slots={name: slot for name, slot in slots.items() if name != rng})


def _smaller(found: Found) -> Way:
    """Return a way with fewer keys than values have features, so that outputs tell the weights."""
    way = found.seen.way
    sizes = way.sizes
    most = min(sizes.e, sizes.of("W") // sizes.H) - 1
    if most < sizes.S and not sizes.Z:
        sizes = sizes._replace(T=max(most, 2), S=max(most, 2))
    return way._replace(sizes=sizes)


def _train(subject: Subject, mode: bool) -> None:
    """Switch training, of an object that has kept nothing."""
    with suppress(Exception):  # anybody's
        if subject.state:
            subject.state.put_back()
        subject.function.train(mode)  # type: ignore[attr-defined]
        subject.state = State(subject.function)


@contextmanager
def _free(subject: Subject, live: Site | bool, mode: bool | None) -> Iterator[None]:
    """Leave randomness as it is, at one place or everywhere, in or out of training."""
    chance, kept = subject.chance, subject.chance.kept
    chance.live, chance.rate, chance.kept = live, RATE, 1.0
    before = bool(getattr(subject.function, "training", False))
    if mode is not None:
        _train(subject, mode)
    try:
        yield
    finally:
        chance.live, chance.rate, chance.kept = False, 0.0, kept
        if mode is not None:
            _train(subject, before)


def _calls(
    subject: Subject, found: Found, way: Way, mode: bool | None, live: Site | bool = True
) -> list[Seen]:
    """Return some calls in which something was dropped."""

    def calls() -> list[Seen | None]:
        return [call_way(subject, way, seed=s, change=lambda problem: problem)[0] for s in (1, 2)]

    quiet = calls()
    with _free(subject, live, mode):
        pairs = [*zip(calls(), quiet, strict=True)]
    return [
        seen
        for seen, other in pairs
        if seen and not explain(seen, found.settings) and not (other and _are_same(seen, other))
    ]


def _are_same(one: Seen, other: Seen) -> bool:
    """Return whether two calls returned the same, so that nothing was dropped in either."""
    pairs = zip(one.called.arrays, other.called.arrays, strict=False)
    return all(np.array_equal(a, b, equal_nan=True) for (_, a), (_, b) in pairs)


def _when(flag: str, active: Sequence[bool | None], has_rate: bool) -> Iterator[Fact]:
    is_off = any(word in flag.lower() for word in OFF)
    if active == [None]:
        yield Fact("dropout_when", "with a rate" if has_rate else "always")
    elif len(active) == 2:
        yield Fact("dropout_when", "also without training", flag)
    elif not flag:
        yield Fact("dropout_when", "in train()" if active[0] else "in eval()")
    else:
        wrong = ", against its name" if active[0] == is_off else ""
        yield Fact("dropout_when", f"if {active[0]}{wrong}", flag)


def _where(
    subject: Subject, found: Found, way: Way, seen: list[Seen], mode: bool | None, rate: str,
    flags: dict[str, Slot],
) -> Iterator[Fact]:  # fmt: skip
    """Say for each place that draws what it drops; one at a time, if there are several."""
    with _free(subject, True, mode):
        call_way(subject, way, seed=1, change=lambda problem: problem)
    draws = dict(subject.chance.draws)
    sites: list[Site | bool] = [*draws] if len(draws) > 1 else [True]
    named = rate or next(iter(subject.chance.rates), "")
    for site in sites:
        calls = seen if site is True else _calls(subject, found, way, mode, site)
        kinds = [_kind(each, found) for each in calls]
        if not kinds:
            continue
        kind = max(kinds, key=lambda kind: kind.where != "not found")
        yield Fact("dropout", kind.where)
        if not kind.factor:
            continue
        share = float(np.mean([each.share for each in kinds if each.where == kind.where]))
        own = [draw.p for at, draw in draws.items() if site in (True, at) and draw.p]
        known = own or ([RATE] if named else [p for p in subject.constants() if 0 < p < 1])
        p = min((n for p in known for n in (p, 1 - p)), key=lambda n: abs(n - share), default=share)
        if named and p in (RATE, 1 - RATE):
            is_keep = is_kept(named)
            as_named = p == RATE
            value = "rate" if as_named != is_keep else "keep"
            yield Fact("dropout_rate", value + ("" if as_named else ", against its name"), named)
        else:
            yield Fact("dropout_rate", f"{p:.3g}")
        right = any(abs(kind.factor * (1 - p) ** n - 1) < NEAR for n in range(1, len(sites) + 1))
        value = "1/(1-p)" if right else "1" if abs(kind.factor - 1) < NEAR else "other"
        yield Fact("dropout_scale", value)
        if kind.where == "weights":
            more = way._replace(slots={**way.slots, **flags})
            shown = _calls(subject, found, more, mode, site) if flags else []
            yield from _returned((shown or calls)[0], found)


def _output(seen: Seen, found: Found, mask: Array | None = None) -> Array:
    """Return the output that the settings give, with weights multiplied by a mask."""
    problem, what = seen.problem.but(dropout_mask=mask), found.fits[0].what
    values = evaluate(problem, {**found.settings, "dropout_mask": "times"})
    if values is None:
        raise ValueError("the settings do not fit these sizes")
    return arrange(values[what], AXES[ROLE_OF.get(what, what)], found.fits[0].layout, problem.sizes)


def _kind(seen: Seen, found: Found) -> Kind:
    """Compare an output with what it would be if nothing were dropped."""
    values = evaluate(seen.problem, found.settings)
    array = found.output(seen).astype(float)
    if values is None:
        return Kind("not found")
    usual = _output(seen, found)
    if array.shape != usual.shape:
        return Kind("not found")
    if kind := _dropped(array, usual, "output"):
        return kind
    w_o, b_o = seen.problem.get("w_o"), seen.problem.get("b_o")
    if w_o is not None and array.shape == values["projected"].shape:
        merged = (array - (0 if b_o is None else b_o)) @ np.linalg.pinv(w_o)
        if kind := _dropped(merged, values["merged"], "heads"):
            return kind
    mask = _mask(seen, found, array)
    weights = values["weights"]
    if mask is None:
        return Kind("not found")
    if kind := _dropped(mask * weights, weights, "weights"):
        return kind
    if abs((mask * weights).sum(-1) - 1).max() < NEAR:
        for factor in (1.0, 1 / (1 - RATE)):
            if share := _dropped_scores(mask * weights, values["masked"], factor):
                return Kind("scores", factor, share)
        return Kind("renormalised")
    return Kind("not found")


def _dropped(array: Array, usual: Array, where: str) -> Kind | None:
    """Return by what kept numbers are multiplied, if all are multiplied by it or by 0."""
    is_large = abs(usual) > 0.02 * abs(usual).max()
    ratios = array[is_large] / usual[is_large]
    kept = ratios[abs(ratios) > NEAR]
    if not 0 < len(kept) < len(ratios) or np.ptp(kept) > NEAR * abs(kept).max():
        return None
    return Kind(where, float(np.median(kept)), 1 - len(kept) / len(ratios))


def _mask(seen: Seen, found: Found, array: Array) -> Array | None:
    """Return by what each weight is multiplied: the output is linear in the weights."""
    if not np.isfinite(array).all():
        return None
    sizes = seen.problem.sizes
    shape = sizes.shape(AXES["weights"])
    zero = _output(seen, found, np.zeros(shape))
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    columns = np.stack([(_output(seen, found, unit) - zero).ravel() for unit in units], -1)
    mask = np.linalg.lstsq(columns, (array - zero).ravel(), rcond=None)[0]
    gap = abs(columns @ mask - (array - zero).ravel()).max()
    return mask.reshape(shape) if gap < 1e-3 * abs(array).max() else None


def _dropped_scores(weights: Array, scores: Array, factor: float) -> float:
    """Return the share of 0 among scores whose softmax the weights are, the others scaled."""
    with np.errstate(all="ignore"):
        logs = np.log(weights)
        new = logs[..., None, :] - logs[..., :, None]  # scores, if the score of cell j is 0
    is_zero = abs(new) < NEAR
    is_close = is_zero | (abs(new - factor * scores[..., None, :]) < NEAR)
    fits = (is_close | np.isneginf(scores)[..., None, :]).all(-1)
    has_zero = fits.any(-1)  # rows that kept all have no such j
    return float(is_zero[fits].mean()) if has_zero.mean() > 0.5 else 0.0


def _returned(seen: Seen, found: Found) -> Iterator[Fact]:
    """Say whether returned weights are those before or after dropout."""
    mask = _mask(seen, found, found.output(seen).astype(float))
    values = evaluate(seen.problem.but(dropout_mask=mask), found.settings)
    others = [each for path, each in seen.called.arrays if path != found.fits[0].path]
    for array, (when, what) in product(others, {"before": "weights", "after": "dropped"}.items()):
        own = {"weights": values[what]} if values else {}
        if own and fit(array, own, ("weights", "mean weights"), close=1e-3):
            yield Fact("dropped_weights", when)
