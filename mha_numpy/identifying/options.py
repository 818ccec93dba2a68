"""The arguments that may be left out: what each does, found by passing it."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.identifying.layouts import OF_ROLE
from mha_numpy.identifying.names import roles_by_name
from mha_numpy.identifying.search import Fit, Found, Seen, distance, fit_all, search
from mha_numpy.identifying.family import evaluate
from mha_numpy.identifying.subject import Argument, Subject
from mha_numpy.identifying.ways import CHOICES, NUMBERS, Slot, Way, variants

HIDING = ("hide", "combined", "alignment")
RELATED: dict[str, tuple[str, ...]] = {  # the settings that say how an option is meant
    "mask": ("mask", "mask_index", "rows", *HIDING), "bias": ("bias", "mask_index"),
    "lengths": ("lengths", "rows_by", "rows", *HIDING), "is_causal": ("causal", *HIDING),
    "window": ("window_given", "causal", *HIDING), "scale": ("scale_given",),
    "softcap": ("softcap_at",), "dropout_mask": ("dropout_mask",), "head_gate": ("head_gate",),
    "sink": ("normaliser",), "base": ("frequencies",),
    "offset": ("q_position", "alignment", "first_position", "causal"),
    "positions": ("rotation", "rotated", "direction"), "cos": ("rotation", "rotated", "direction"),
    "cache_k": ("alignment", "q_position", "causal"), "memory": ("exchanged",),
    "key": ("exchanged",), "block": (), "eps": (),
}  # fmt: skip
TOGETHER = {"cache_k": "cache_v", "cos": "sin", "key": "value"}  # passed as a pair
ALSO = {"mask": ("bias",), "padding": ("mask", "bias"), "bias": ("mask",), "sink": ()}


class Option(NamedTuple):
    """An argument that may be left out, and what is known of it."""

    argument: str
    role: str  # "" if nothing is known
    slot: Slot | None
    found: Found | None  # with the option passed
    settings: dict[str, Any]  # those that say how it is meant
    note: str = ""


def look_at_options(subject: Subject, found: Found, given: dict[str, str], until: float) -> list[Option]:
    """Pass each argument that may be left out, and find out what it does."""
    options: list[Option] = []
    left = [a for a in subject.arguments if a.name not in found.seen.way.slots]
    done: set[str] = set()
    for argument in left:
        if argument.name in done:
            continue
        share = time.monotonic() + (until - time.monotonic()) / max(len(left) - len(options), 1)
        option = _look_at(subject, found, argument, given, share, left)
        done.add(argument.name)
        options.append(option)
    return options


def _look_at(
    subject: Subject, found: Found, argument: Argument, given: dict[str, str], until: float,
    left: Sequence[Argument],
) -> Option:  # fmt: skip
    roles = [given[argument.name]] if argument.name in given else _roles(argument)
    is_quiet = False
    for role in roles:
        if role in ("flag", "training", "rate", "rng"):
            return Option(argument.name, role, None, None, {})
        partner = TOGETHER.get(role)
        second = next((a.name for a in left if partner and partner in roles_by_name(a.name)), "")
        seen = []
        for slots in _trials(role, argument, second, partner):
            for sizes in _sizes(found.seen.way, role, slots):
                way = found.seen.way._replace(
                    slots={**found.seen.way.slots, **slots}, sizes=sizes
                )
                problem = way.problem(subject, seed=1)
                called = subject.call(way.given(problem), way.argument("result"))
                if called.trouble or not called.arrays or not np.isfinite(called.arrays[0][1]).all():
                    continue
                if _is_same(called.arrays[0][1], subject, found, way):
                    is_quiet = True
                    continue
                seen.append(Seen(way, problem, called))
        base = dict(found.settings)
        if role == "is_causal" and not base.get("causal"):
            base["causal"] = "past and itself"
        option = search(seen, (), until=until, costs=range(5), bases=(base,), only=RELATED.get(role, ("",)))
        if option:
            new = {n: v for n, v in option.settings.items() if found.settings.get(n) != v}
            return Option(argument.name, role, option.seen.way.slots[argument.name], option, new)
        if is_quiet and role in ("block", "eps", "T"):
            return Option(argument.name, role, None, None, {}, "changes nothing")
    return Option(argument.name, "", None, None, {}, "changes nothing" if is_quiet else "not clear")


def _roles(argument: Argument) -> list[str]:
    """Return the roles that an option may have, the likeliest first."""
    roles = []
    for role in roles_by_name(argument.name):
        roles += [role, *ALSO.get(role, ())]
    if isinstance(argument.default, bool):
        flags = [role for role in roles if role in ("is_causal", "training", "flag")]
        return flags or ["flag"]
    if isinstance(argument.default, (int, float)):
        roles = [role for role in roles if role not in OF_ROLE and role not in NUMBERS]
    if not roles and argument.default is None:
        roles = ["mask", "bias", "scale", "window"]
    known = [*RELATED, "flag", "training", "rate", "rng", "padding"]
    return [role for role in dict.fromkeys(roles) if role in known]


def _trials(
    role: str, argument: Argument, second: str, partner: str | None
) -> Iterator[dict[str, Slot]]:
    """Yield what to pass."""
    if role == "is_causal":
        yield {argument.name: Slot(role, value=not argument.default)}
    elif role in ("memory", "key"):
        yield {argument.name: Slot("memory", "B S C")}
        if second and partner:
            yield {argument.name: Slot("x_k", "B S C"), second: Slot("x_v", "B S E")}
    elif role in OF_ROLE or role == "padding":
        for slot in variants(role):
            pair = {second: Slot(str(partner), slot.layout.replace("d", "e") if role == "cache_k" else slot.layout)}
            yield {argument.name: slot, **(pair if second else {})}
    elif role in CHOICES:
        for value in CHOICES[role]:
            yield {argument.name: Slot(role, value=value)}


def _sizes(way: Way, role: str, slots: dict[str, Slot]) -> Iterator[Any]:
    """Yield the sizes that a call may have; more keys than queries, if it takes them."""
    if role.startswith("cache"):
        yield way.sizes._replace(Z=2)
    elif role in ("memory", "key"):
        yield way.sizes._replace(S=7)
    else:
        yield way.sizes
        if way.sizes.S != way.sizes.T and role in ("is_causal", "mask", "window", "bias"):
            yield way.sizes._replace(S=way.sizes.T)


def _is_same(array: Any, subject: Subject, found: Found, way: Way) -> bool:
    """Return whether an option changes nothing, by the numbers without it."""
    values = evaluate(way._replace(slots=found.seen.way.slots).problem(subject, seed=1), found.settings)
    if values is None:
        return False
    from mha_numpy.identifying.search import OUTPUTS, fit

    return fit(array, values, OUTPUTS, 1e-9) is not None
