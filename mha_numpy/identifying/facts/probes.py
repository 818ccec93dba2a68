"""Special inputs: rows that see nothing, hidden NaN, large scores, no keys, narrow floats."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.layouts import find_orders, in_order
from mha_numpy.identifying.calling.roles import TOKENS
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot, Way
from mha_numpy.identifying.facts.options import Option
from mha_numpy.identifying.family import AXES, Problem, Sizes, evaluate
from mha_numpy.identifying.searching.calls import call_way, with_sizes
from mha_numpy.identifying.searching.search import OUTPUTS, Found, Seen, explain, fit

HIDING = ("mask", "lengths", "more_bias", "bias")  # roles that can hide all keys of a query
OF_KEYS = (
    "value",
    "wide_v",
    "x_v",
    "memory",
    "key_value",
    "x",
    "packed",
)  # roles whose rows become values
INPUTS = (*TOKENS, "key", "wide_k", "x_k", *OF_KEYS)
BLIND_KINDS = ("mean of all values", "zeros", "nan", "as if nothing were hidden")
RULES = ("is_causal", "window")  # roles of arguments that hide keys by their positions
WITHOUT_PLACES = ("mask", "lengths", "segments", "q_segments")  # that hide keys otherwise
WIDE = 2e-8  # no output in float64 is as far from the exact one
TINY = 1e-12  # a difference of weights that comes of rounding
LARGE = 1e3  # times the scores
LOW, LOWERED = 100.0, 20  # what is added to make scores low, and directions that are tried


class TooHighError(Exception):
    """No direction makes scores low."""


class Fact(NamedTuple):
    """What a function does with special inputs."""

    name: str
    value: str
    argument: str = ""  # that it is about
    seen: Seen | None = None  # the call that shows it
    first: Mapping[str, Any] = {}  # what an object was given before


def find_facts(subject: Subject, found: Found, options: Sequence[Option]) -> list[Fact]:
    """Call a function with special inputs."""
    others = [(option, option.found) for option in options if option.found]
    findings = [found, *(each for _, each in others)]
    rules = [("", found), *((o.argument, each) for o, each in others if o.role in RULES)]
    cross = next((each.seen.way.slots for each in findings if not each.seen.way.is_self), {})
    rules = [(argument, _passing(each, cross)) for argument, each in rules]
    hiding = [each for each in findings if any(map(each.seen.way.argument, HIDING[:2]))]
    added = [each for each in findings if each.settings.get("bias") != "subtracted"]
    hiding = hiding or [each for each in added if _argument(each.seen.way)]
    is_known = "read" not in found.seen.problem.given
    probes = [
        (True, _alignment(subject, rules)),
        (True, _blind_rows(subject, hiding, findings)),
        (True, _hidden_nan(subject, [*hiding, *findings])),
        (True, _float_masks(subject, hiding)),
        (True, _groups(subject, found, options)),
        (is_known, _large_scores(subject, found)),
        (is_known, _no_keys(subject, findings)),
        (is_known, _narrow(subject, found)),
        (is_known, _half_masked(subject, hiding[:1])),
        (True, _changes(subject, findings)),
        (True, _repeats(subject, found)),
        (True, _order(subject, found)),
    ]
    probed = [facts for is_possible, facts in probes if is_possible]
    found_out = [fact for facts in probed for fact in in_time(subject, facts)]
    half = [fact for fact in found_out if fact.name in ("float16", "half_masked")]
    if len({fact.value for fact in half}) < len(half):  # because of a mask that is always there?
        found_out.remove(half[0 if found in hiding[:1] else 1])
    return found_out


def in_time(subject: Subject, facts: Iterable[Fact]) -> list[Fact]:
    """Return facts; none if the time was over before all were there, as calls fail then."""
    found = [*facts] if subject.left > 0 else []
    return found if subject.left > 0 else []


def main_role(way: Way) -> str:
    """Return the first role of tokens that are passed; an object may have its queries itself."""
    return next(filter(way.argument, (*TOKENS, *OF_KEYS)))


def mixes(subject: Subject, found: Found) -> bool:
    """Return whether changing a token changes more than its own output: else nothing attends.

    Nor does a mean, whose weights are the same for all inputs, or each token for itself alone.
    """
    way, problem = found.seen.way, found.seen.problem
    others = way.problem(subject, seed=1).given
    other = problem.but(**{role: others[role] for role in INPUTS if role in others})
    own, new = (evaluate(each, found.settings) for each in (problem, other))
    s, is_called = found.settings, re.search(r"atten|attn|softmax", subject.source.lower())
    if s.get("split") == "heads within each token":
        return bool(is_called)  # a mistake of something that was meant to attend
    if own and new and np.allclose(own["dropped"], new["dropped"], 0, TINY, equal_nan=True):
        return False
    weights = own["dropped"] if own else np.empty((0, 1))
    is_alone = way.is_self and abs(weights - np.eye(*weights.shape[-2:])).max(initial=0) < 1e-4
    is_bare = s.get("exchanged") or (s.get("scale") == "1" and not is_called)
    if is_alone or (s.get("normaliser") == "none" and is_bare):  # a product of three matrices
        return False
    if way.sizes.T < 2:
        return True
    plain, _ = call_way(subject, way)
    for role in INPUTS:
        for token in (0, -1) if plain and role in way.roles() else ():
            after, _ = call_way(subject, way, change=partial(moved, role=role, token=token))
            if after is None or plain is None:
                continue
            layout = found.fits[0].layout
            rows = [_rows(found.output(one), layout, one.problem) for one in (plain, after)]
            changed = rows[0] != rows[1]
            if role in TOKENS:
                changed[:, token] = False
            if changed.any():
                return True
    return subject.left < 0


def moved(problem: Problem, role: str, token: int) -> Problem:
    """Change a token so that a norm of its features changes, too."""
    array = problem.given[role].copy()
    array[..., token, :] *= -1.5
    return problem.but(**{role: array})


def _argument(way: Way) -> str:
    """Return the argument that hides keys."""
    return next((name for role in HIDING if (name := way.argument(role))), "")


def hide(problem: Problem, settings: dict[str, Any], *, last: bool) -> Problem:
    """Hide the last key from all queries, or all keys from the first query (or sequence)."""
    given = problem.given
    if "lengths" in given:
        lengths = given["lengths"].copy()
        lengths[:] = np.minimum(lengths, problem.sizes.S - 1) if last else lengths
        if not last:
            lengths[0] = 0
        return problem.but(lengths=lengths)
    if "mask" in given:
        is_visible = settings.get("mask", "true = visible") == "true = visible"
        visible = given["mask"] == is_visible
        visible[..., -1] = visible[..., -1] & (not last)
        if last:
            visible[..., 0] = True
        else:
            visible[:1, :, 0] = False
        return problem.but(mask=visible == is_visible)
    role = "more_bias" if "more_bias" in given else "bias"
    bias = given[role].copy()
    if last:
        bias[..., -1] = -np.inf
    else:
        bias[:1, :, 0] = -np.inf
    return problem.but(**{role: bias})


def _passing(found: Found, slots: Mapping[str, Slot]) -> Found:
    """Return a finding whose way passes other arguments, too."""
    way = found.seen.way._replace(slots={**slots, **found.seen.way.slots})
    return found._replace(seen=found.seen._replace(way=way))


def _alignment(subject: Subject, rules: Sequence[tuple[str, Found]]) -> Iterator[Fact]:
    """Say where the rows of a rule begin if T_q and T_k differ, where no setting says it."""
    for argument, found in rules:
        way, plain = found.seen.way, found.seen.problem.but(**dict.fromkeys(WITHOUT_PLACES))
        values = evaluate(plain, found.settings)
        if not values or not values["has_rule"] or (way.is_self and not way.sizes.Z):
            continue
        T, single = way.sizes.T, {**found.settings, "alignment": "none with one query"}
        calls = [with_sizes(subject, way, S=S) for S in (T + 2, T - 2)]
        if "alignment" not in found.settings and not any(calls):
            one = with_sizes(subject, way, T=1, S=T)
            is_fine = one is not None and explain(one, single)
            yield Fact("alignment", "one query" if is_fine else "error", argument)
        elif any(seen and explain(seen, found.settings) for seen in calls):
            value = found.settings.get("alignment", "top left")
            yield Fact("alignment", value, argument)
        if not argument:
            return


def _blind_rows(
    subject: Subject, hiding: Sequence[Found], findings: Sequence[Found]
) -> Iterator[Fact]:
    for each in hiding:
        change = partial(hide, settings=each.settings, last=False)
        seen, trouble = call_way(subject, each.seen.way, seed=2, change=change)
        if trouble:
            yield Fact("blind", "error", _argument(each.seen.way))
        elif seen and _has_blind(seen, each):
            yield Fact("blind", _blind_kind(seen, each), _argument(each.seen.way), seen=seen)
    for each in () if hiding else findings:
        for way in _blinding(each.seen.way):
            seen, _ = call_way(subject, way, change=_unchanged)
            kind = _blind_kind(seen, each) if seen and _has_blind(seen, each) else "other"
            if kind != "other":
                yield Fact("blind", kind, seen=seen)
                return


def _blinding(way: Way) -> Iterator[Way]:
    """Yield ways in which rules alone may hide all keys: few keys, and a window of none."""
    name = way.argument("window")
    is_number = isinstance(way.slots.get(name, Slot("")).value, int)
    windows = [{}, {name: Slot("window", value=0)}] if is_number else [{}]
    for slots, S in product(windows, (way.sizes.S, 3, 2)):
        yield way._replace(slots={**way.slots, **slots}, sizes=way.sizes._replace(S=S))


def _has_blind(seen: Seen, found: Found) -> bool:
    values = evaluate(seen.problem, found.settings)
    if values is None:
        return False
    hidden = np.isneginf(values["scores"]) | ~values["visible"]
    for role in ("bias", "more_bias"):  # a cap may make it finite
        hidden = hidden | np.isneginf(seen.problem.given.get(role, 0.0))
    return bool(hidden.all(-1).any())


def _unchanged(problem: Problem) -> Problem:
    return problem


def _blind_kind(seen: Seen, found: Found) -> str:
    kinds = (kind for kind in BLIND_KINDS if explain(seen, {**found.settings, "blind": kind}))
    kind = next(kinds, "other")
    return kind if kind != "nan" or np.isnan(found.output(seen)).any() else BLIND_KINDS[-1]


def _hidden_nan(subject: Subject, findings: Sequence[Found]) -> Iterator[Fact]:
    """Put NaN into the last row of the values; look at queries that do not see it.

    These are the queries whose weight of it is 0; if there are none, those that should not see it.
    """
    optional = [argument.name for argument in subject.arguments if not argument.is_required]
    for is_meant, found in product((False, True), findings):
        own = found.seen.way.slots  # as small a block as in other calls may be hidden whole
        blocks = {n: s for n, s in own.items() if s.role == "block" and n in optional}
        way = found.seen.way._replace(slots={n: s for n, s in own.items() if n not in blocks})
        if blocks and not call_way(subject, way)[0]:
            whole = {n: s._replace(value=way.sizes.S) for n, s in blocks.items()}
            way = way._replace(slots={**own, **whole})
        if is_meant and _argument(way).startswith("q"):  # this one hides queries
            continue
        role = next((role for role in OF_KEYS if role in way.roles()), "")
        if not role or way.sizes.T < 2:
            continue
        own = found._replace(seen=found.seen._replace(way=way))
        tokens = (-1,) if _argument(way) else (-1, 1, -2)  # tiles may leave out the last one
        spreads = [_nan_spreads(subject, own, role, token, is_meant) for token in tokens]
        if {*spreads} - {None}:
            value = "spreads" if any(spreads) else "no effect"
            yield Fact("hidden_nan", value, _argument(way))
            return


def _nan_spreads(
    subject: Subject, found: Found, role: str, token: int, is_meant: bool
) -> bool | None:
    """Return whether NaN in a token reaches queries that do not see it; None if all see it."""
    way = found.seen.way
    change = partial(_with_nan, role=role, token=token, found=found)
    seen, _ = call_way(subject, way, seed=3, change=change)
    finite = seen and seen.problem.but(**{role: np.nan_to_num(seen.problem.given[role])})
    usual = finite and evaluate(finite, found.settings)
    if not seen or not usual:
        return None
    is_apart = (usual["weights"][..., token] == 0).all(1)  # (B, T): no weight on NaN
    is_apart |= is_meant & (~usual["visible"][..., token].any(1) | bool(_argument(way)))
    if role in ("x", "packed"):
        is_apart[..., token] = False  # this query is NaN itself
    array = found.output(seen)
    output = fit(np.nan_to_num(array), usual, OUTPUTS, np.inf)
    if not output or not is_apart.any():
        return None
    return bool(~np.isfinite(_rows(array, output.layout, seen.problem)[is_apart]).all())


def _with_nan(problem: Problem, role: str, token: int, found: Found) -> Problem:
    if _argument(found.seen.way):
        problem = hide(problem, found.settings, last=True)
    array = problem.given[role].copy()
    array[..., token, :] = np.nan
    return problem.but(**{role: array})


def _rows(array: Array, layout: str, problem: Problem) -> Array:
    """Return an output with axes (B, T), all others joined by the sum."""
    axes = layout.split()
    rest = tuple(at for at, axis in enumerate(axes) if axis not in "BT")
    array = array.sum(axis=rest)
    kept = [axis for axis in axes if axis in "BT"]
    if kept == ["T", "B"]:
        array = array.T
    return array.reshape(problem.sizes.B, problem.sizes.T)


def _float_masks(subject: Subject, findings: Sequence[Found]) -> Iterator[Fact]:
    """Pass floats where a bool mask is taken."""

    def change(problem: Problem) -> Problem:
        bias = problem.given["bias"]
        return problem.but(bias=np.where(bias.argsort(-1) % 2, bias, 0))

    def exp_of_bias(problem: Problem) -> Problem:
        return problem.but(bias=np.exp(problem.given["bias"]))

    for found in findings:
        way, name = found.seen.way, found.seen.way.argument("mask")
        if not name or way.slots[name].kind != "bool":
            continue
        slot = way.slots[name]._replace(role="bias", kind="")
        way = way._replace(slots={**way.slots, name: slot})
        seen, _ = call_way(subject, way, seed=8, change=change)
        if seen is None:
            yield Fact("float_mask", "error", name)
            continue
        bias = seen.problem.given["bias"]
        as_bool = seen._replace(problem=seen.problem.but(bias=None, mask=bias != 0))
        meant = [("added", seen), ("not 0 is True", as_bool)]
        positive, _ = call_way(subject, way, seed=8, change=exp_of_bias)
        if positive:
            log = np.log(positive.problem.given["bias"])
            meant.append(("weights", positive._replace(problem=positive.problem.but(bias=log))))
        for value, each in meant:
            if explain(each, found.settings):
                yield Fact("float_mask", value, name)


def _groups(subject: Subject, found: Found, options: Sequence[Option]) -> Iterator[Fact]:
    """Pass fewer key/value heads than query heads, alone and with each flag."""
    way = found.seen.way
    if way.is_inside or "G" not in way.roles().get("key", ""):
        if 1 < way.sizes.G < way.sizes.H and "grouping" not in found.settings:
            yield Fact("grouping", "repeat")
        return
    flags = [option.argument for option in options if option.role == "flag"]
    for flag in ("", *flags):
        slots = way.slots | ({flag: Slot("flag", value=True)} if flag else {})
        seen, _ = call_way(subject, way._replace(slots=slots, sizes=way.sizes._replace(G=2)))
        if seen and explain(seen, found.settings):
            yield Fact("groups", "taken", flag)
            if "grouping" not in found.settings:
                yield Fact("grouping", "repeat", flag)
            return
    one, _ = call_way(subject, way._replace(sizes=way.sizes._replace(G=1)))
    yield Fact("groups", "one" if one and explain(one, found.settings) else "error")


def _large_scores(subject: Subject, found: Found) -> Iterator[Fact]:
    """Make all scores so large that exp overflows, or else all rows but those of the largest."""

    def change(problem: Problem, size: float = LARGE**2) -> Problem:
        role = main_role(found.seen.way)
        times = size ** (0.5 if role in ("x", "packed") else 1)
        is_blocked = found.settings.get("mask") == "true = blocked"
        for name, value in (("mask", not is_blocked), ("lengths", problem.sizes.S)):
            if problem.get(name) is not None:  # none is hidden
                problem = problem.but(**{name: np.full_like(problem.given[name], value)})
        return problem.but(**{role: problem.given[role] * times})

    seen, _ = call_way(subject, found.seen.way, seed=4, change=change)
    is_capped = found.settings.get("softcap") or found.seen.way.argument("softcap")
    if seen is None or is_capped or found.settings.get("normaliser", "softmax") != "softmax":
        return
    array, close = found.output(seen), 10 * LARGE * found.fits[0].error  # grows with the scores
    values = evaluate(seen.problem, found.settings) or {}
    is_fine = explain(seen, found.settings) or fit(array, values, OUTPUTS, close)
    is_finite = np.isfinite(array)
    if is_fine or (is_finite.any() and not is_finite.all()):
        yield Fact("large_scores", "fine", seen=seen)
        yield Fact("uneven_scores", "fine" if is_fine else "not finite", seen=seen)
        if is_fine:
            yield from _low_scores(subject, found)
    else:
        kind = "other numbers" if is_finite.all() else "not finite"
        if kind == "other numbers":  # -10000 hides as long as no score is as large as that
            less, _ = call_way(subject, found.seen.way, seed=4, change=partial(change, size=LARGE))
            kind = "fine" if less and explain(less, found.settings) else kind
        yield Fact("large_scores", kind, seen=seen)


def _low_scores(subject: Subject, found: Found) -> Iterator[Fact]:
    """Make all scores of some query so low that exp underflows."""
    roles = [role for role in (*TOKENS, "key", "wide_k", "x_k", "memory") if role in AXES]

    def change(problem: Problem) -> Problem:
        for seed in range(LOWERED):
            rng = np.random.default_rng(seed)
            moved = {
                role: array + LOW * rng.normal(size=array.shape[-1])
                for role, array in problem.given.items()
                if role in roles
            }
            values = evaluate(problem.but(**moved), found.settings) or problem.given
            if "scores" in values and (values["scores"].max(-1) < -LARGE).any():
                return problem.but(**moved)
        raise TooHighError

    with contextlib.suppress(TooHighError):
        seen, _ = call_way(subject, found.seen.way, seed=4, change=change)
        if seen and np.isnan(found.output(seen)).any() and not explain(seen, found.settings):
            yield Fact("low_scores", "not finite", seen=seen)


def _no_keys(subject: Subject, findings: Sequence[Found]) -> Iterator[Fact]:
    def change(problem: Problem) -> Problem:
        lengths = problem.get("lengths")
        return problem if lengths is None else problem.but(lengths=lengths * 0)

    for found in [each for each in findings if not each.seen.way.is_self][:1]:
        way = found.seen.way._replace(sizes=found.seen.way.sizes._replace(S=0))
        seen, trouble = call_way(subject, way, change=change)
        if trouble:
            yield Fact("no_keys", "error")
        elif seen and (not found.output(seen).any() or explain(seen, found.settings)):
            yield Fact("no_keys", "zeros")
        elif seen:
            yield Fact("no_keys", "nan" if np.isnan(found.output(seen)).all() else "other")


def _narrow(subject: Subject, found: Found) -> Iterator[Fact]:
    """Pass float32 and float16, and measure how exact the output is."""
    own = subject.dtype
    has_params = bool(found.seen.way.hidden)
    is_wide = all(x.dtype == float for x in subject.hidden.values())
    width = _width_inside(subject, found) if own == "float64" and is_wide else ""
    is_exact = not has_params or found.fits[0].error < 1e-11
    if width and (is_exact or width != "float64"):
        yield Fact("sums", width)
    if has_params and not subject.is_module and subject.framework != "numpy":
        return  # params have a dtype that inputs must have, too
    for dtype in ("float32", "float16"):
        subject.narrow(dtype)
        calls = [call_way(subject, found.seen.way, seed=seed) for seed in (5, 6, 7)]
        subject.narrow(own)
        seen = [one for one, _ in calls if one]
        if len(seen) < len(calls):
            trouble = calls[0][1]
            value = "error" if trouble else "not finite"
            yield Fact(dtype, value, seen=found.seen)
            continue
        returned = found.output(seen[0]).dtype.name
        if subject.framework == "jax" and returned == "float64":
            continue  # as usual JAX has no float64, and rounds to float32
        is_exact = all(_is_rounded_once(one, found, dtype) for one in seen)
        note = ", computed in a wider dtype" if is_exact and returned == dtype else ""
        if returned != dtype and returned in (x.dtype.name for x in subject.hidden.values()):
            note = ", as its params"
        yield Fact(dtype, returned + note)


def _is_rounded_once(seen: Seen, found: Found, dtype: str) -> bool:
    """Return whether the numbers of an output are the exact ones, rounded."""
    rounded = {
        role: x.astype(dtype).astype(float)
        for role, x in seen.problem.given.items()
        if isinstance(x, np.ndarray) and x.dtype == float
    }
    values = evaluate(seen.problem.but(**rounded), found.settings)
    if values is None:
        return False
    exact, array = values[found.fits[0].what], found.output(seen)
    orders = find_orders(exact.shape, array.shape)
    shares = [
        (in_order(exact, order, array.shape).astype(dtype) == array).mean() for order in orders
    ]
    return max(shares, default=0.0) > 0.95


def _half_masked(subject: Subject, hiding: Sequence[Found]) -> Iterator[Fact]:
    """Pass float16 and a mask: a hidden score of -1e9 is -inf there, or does not fit."""
    for each in hiding:
        if each.seen.way.hidden:
            return
        with subject.passing("float16"):
            plain, _ = call_way(subject, each.seen.way, seed=5, change=_unchanged)
        if plain is None:
            yield Fact("half_masked", "error", _argument(each.seen.way), seen=each.seen)
        elif not np.isfinite(each.output(plain)).all():
            yield Fact("half_masked", "not finite", _argument(each.seen.way), seen=plain)


def _width_inside(subject: Subject, found: Found) -> str:
    """Return float64 if the output follows a change of the scores that float32 cannot hold."""

    def change(problem: Problem) -> Problem:
        role = main_role(found.seen.way)
        array = problem.given[role]  # a norm would undo a change of its length
        return problem.but(**{role: array * (1 + 1e-10 * np.sin(np.arange(array.shape[-1])))})

    before, _ = call_way(subject, found.seen.way)
    after, _ = call_way(subject, found.seen.way, change=change)
    if before is None or after is None:
        return "float64"
    first, second = found.output(before), found.output(after)
    values = [evaluate(one.problem, found.settings) or {} for one in (before, after)]
    usual, moved_on = (own[found.fits[0].what] for own in values)
    if abs(usual - moved_on).max() < 1e-13 * abs(usual).max():  # rounding, but no scores
        return ""
    if found.fits[0].error > WIDE:
        if found.settings.get("normaliser", "softmax") != "softmax":  # something small is added
            return ""
        return "float32" if found.fits[0].error < 2e-5 else "float16"
    if (first != second).mean() > 0.5 * (usual != moved_on).mean():  # a single key hides changes
        return "float64"
    return "float32" if found.fits[0].error < 2e-5 else "float16"


def _changes(subject: Subject, findings: Sequence[Found]) -> Iterator[Fact]:
    slots = {n: slot for found in findings for n, slot in found.seen.way.slots.items()}
    result = findings[0].seen.way.argument("result")
    names: list[str] = []
    for found in findings:
        passed = found.seen.way.given(found.seen.way.problem(subject, seed=6))
        names += subject.changed(passed)
    for name in dict.fromkeys(names):
        if name != result:
            is_room = slots[name].kind == "room" or slots[name].role.startswith("cache")
            yield Fact("inputs", "filled" if is_room else "changed", name)
    if not {*names} - {result}:
        yield Fact("inputs", "unchanged")


def _repeats(subject: Subject, found: Found) -> Iterator[Fact]:
    calls = [call_way(subject, found.seen.way, seed=7)[0] for _ in range(2)]
    if all(calls):
        first, second = (found.output(one) for one in calls if one)
        if not np.array_equal(first, second):
            yield Fact("repeats", "different numbers in two calls")


def _order(subject: Subject, found: Found) -> Iterator[Fact]:
    """Say if the tokens of several sequences come before the axis of sequences."""
    way = found.seen.way
    role = main_role(way)
    axes = way.roles()[role].replace("S", "T").split()
    if {"B", "T"} <= {*axes} and axes.index("T") < axes.index("B"):
        yield Fact("order", "tokens first")
    if "B" in axes or len(axes) != 2:
        return
    slots = {
        name: slot._replace(layout=f"{slot.layout.split()[0]} B {slot.layout.split()[-1]}")
        for name, slot in way.slots.items()
        if slot.role in INPUTS
    }
    sizes = way.sizes._replace(B=Sizes().B)
    seen, _ = call_way(subject, way._replace(slots={**way.slots, **slots}, sizes=sizes))
    if seen and explain(seen, found.settings):
        yield Fact("order", "tokens first")
