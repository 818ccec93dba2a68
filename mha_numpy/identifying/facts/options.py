"""The arguments that may be left out: what each does, found by passing it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mha_numpy.identifying.calling.layouts import LAYOUTS
from mha_numpy.identifying.calling.names import is_mask, roles_by_name
from mha_numpy.identifying.calling.roles import NUMBERS, TOKENS
from mha_numpy.identifying.calling.signatures import Argument
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import CHOICES, Slot, Way, fits, variants
from mha_numpy.identifying.family import Problem, Sizes, evaluate
from mha_numpy.identifying.searching.calls import call_way
from mha_numpy.identifying.searching.search import (
    OUTPUTS,
    Fit,
    Found,
    Group,
    Seen,
    explain,
    fit,
    search,
)

UNCLEAR, IDLE = "what it does was not found out", "changes nothing"
HOW_HIDDEN = ("hide", "combined", "alignment", "blind", "softcap_at")
RELATED: dict[str, tuple[str, ...]] = {  # the settings that say how an option is meant
    "mask": ("mask", "mask_index", "rows", *HOW_HIDDEN),
    "bias": ("bias", "softcap_at", "mask_index"), "more_bias": ("bias", "mask_index"),
    "lengths": ("lengths", "rows_by", "rows", *HOW_HIDDEN),
    "is_causal": ("causal", "alibi", *HOW_HIDDEN),
    "window": ("window_given", "causal", *HOW_HIDDEN), "scale": ("scale_given",),
    "softcap": ("softcap_at",), "dropout_mask": ("dropout_mask",), "head_gate": ("head_gate",),
    "sink": ("normaliser",), "base": ("frequencies",),
    "offset": ("q_position", "alignment", "first_position", "causal"),
    "segments": ("combined", *HOW_HIDDEN), "q_segments": ("combined", *HOW_HIDDEN),
    "k_positions": ("rotation", "causal"),
    "positions": ("rotation", "rotated", "direction"), "cos": ("rotation", "rotated", "direction"),
    "cos_sin": ("rotation", "rotated", "direction"),
    "cache_k": ("alignment", "q_position", "causal"), "memory": ("exchanged",),
    "key": ("exchanged",), "block": ("normaliser",), "eps": (),
}  # fmt: skip
TOGETHER = {"cache_k": "cache_v", "cos": "sin", "key": "value"}  # passed as a pair
PARTNER = {"is_causal": "mask", "offset": "is_causal"}  # may change something only together
ALSO = {"mask": ("bias",), "padding": ("mask", "bias"), "bias": ("mask",), "sink": ()}


class Option(NamedTuple):
    """An argument that may be left out, and what is known of it."""

    argument: str
    role: str  # "" if nothing is known
    slot: Slot | None
    found: Found | None  # with the option passed
    settings: dict[str, Any]  # those that say how it is meant
    note: str = ""
    fits: tuple[Fit, ...] = ()  # what a flag returns in addition
    value: Any = None  # of the flag, then


def look_at_options(subject: Subject, found: Found, given: dict[str, str]) -> list[Option]:
    """Pass each argument that may be left out, and find out what it does."""
    options: list[Option] = []
    left = [a for a in subject.arguments if a.name not in found.seen.way.slots]
    by_name = {a.name: a for a in left}
    done: set[str] = set()
    for argument in left:
        if argument.name in done:
            continue
        flags = {o.argument: o.value for o in options if o.fits}
        with subject.within(subject.left / max(len(left) - len(options), 1)):
            option = _look_at(subject, found, argument, given, left, flags)
        done.add(argument.name)
        if option.found:  # a pair is passed together
            done |= option.found.seen.way.slots.keys() - found.seen.way.slots.keys()
        options.append(option)
    for at, option in enumerate(options):
        options[at] = _with_other(subject, option, options, by_name, given, left)
    return [_with_masks(subject, option, options) for option in options]


def _with_other(
    subject: Subject, option: Option, options: Sequence[Option], by_name: Mapping[str, Argument],
    given: dict[str, str], left: Sequence[Argument],
) -> Option:  # fmt: skip
    """Pass an argument that did nothing together with the one that it needs."""
    argument = by_name[option.argument]
    needed = {PARTNER.get(role) for role in roles_of(argument)}
    for other in options if not option.found else ():
        if other.found and other.slot and other.slot.role in needed:
            again = _look_at(subject, other.found, argument, given, left, {})
            if not again.note:
                return again._replace(note=f"where {other.argument} is passed")
            if option.note == UNCLEAR != again.note:  # other arguments may matter, too
                return again._replace(note=f"{again.note} if only {other.argument} is passed too")
    return option


def _with_masks(subject: Subject, rule: Option, options: Sequence[Option]) -> Option:
    """Pass a rule or a mask together with each other mask: one may silence the other."""
    is_mask = rule.slot is not None and rule.slot.role == "mask"
    if rule.found is None or not (is_mask or rule.role in ("is_causal", "window")):
        return rule
    others = options[options.index(rule) + 1 :] if is_mask else options
    for mask in others:
        if not mask.found or not mask.slot or mask.slot.role not in ("mask", "lengths"):
            continue
        slot, settings = mask.slot, {**mask.found.settings, **rule.found.settings}
        if is_mask and slot.role == "mask":
            slot = slot._replace(role="more_mask")
            if mask.found.settings.get("mask") != settings.get("mask"):
                continue  # they mean different things
        way = rule.found.seen.way
        way = way._replace(slots={**way.slots, mask.argument: slot})
        seen, _ = call_way(subject, way, seed=1)
        both = seen and search(
            [[seen]], (), until=subject.until, most={0: 1, 2: 1}, bases=(settings,),
            only=("combined",),
        )  # fmt: skip
        if both and "combined" in both.settings:
            settings = {**rule.settings, "combined": both.settings["combined"]}
            return rule._replace(found=both, settings=settings)
    return rule


def _look_at(
    subject: Subject, found: Found, argument: Argument, given: dict[str, str],
    left: Sequence[Argument], flags: Mapping[str, Any],
) -> Option:  # fmt: skip
    """Find the role of an argument, and what it means."""
    roles = [given[argument.name]] if argument.name in given else roles_of(argument)
    more = {"bias": "more_bias"} if "bias" in found.seen.way.roles() else {}
    roles = [more.get(role, role) for role in roles]
    quiet: set[int] = set()  # numbers of axes with which it changes nothing
    groups: dict[str, list[Group]] = {}
    for role in roles:
        if role == "flag":
            return look_at_flag(subject, found, argument, flags)
        if role in ("training", "rate", "rng", "d_out"):
            if groups:  # it is something else, with a mistake
                continue
            return Option(argument.name, role, None, None, {})
        partner = TOGETHER.get(role)
        second = next((a.name for a in left if partner and partner in roles_by_name(a.word)), "")
        for slots in trials(found.seen.way, role, argument, second, partner):
            group, same = _calls(subject, found, role, slots)
            quiet |= {_axes(slots, argument)} if same else set()
            if group:
                option = _search(found, argument, role, [group], (0, 1), subject.until)
                if option:
                    return option
                groups.setdefault(role, []).append(group)
    for cost in (2, 3, 4):
        for role, each in groups.items():
            option = _search(found, argument, role, each, (cost,), subject.until)
            if option:
                return option
    loud = [
        _axes(one.way.slots, argument)
        for each in groups.values()
        for group in each
        for one in group
    ]
    if not quiet or min(loud, default=9) <= min(quiet):  # an axis too many may do anything
        return Option(argument.name, "", None, None, {}, UNCLEAR)
    return Option(argument.name, roles[0], None, None, {}, IDLE * (roles[0] != "eps"))


def _axes(slots: Mapping[str, Slot], argument: Argument) -> int:
    return len(slots[argument.name].layout.split())


def look_at_flag(
    subject: Subject, found: Found, argument: Argument, flags: Mapping[str, Any]
) -> Option:
    """Switch a flag, alone and with other flags that return more; see what comes back."""
    default = argument.default if isinstance(argument.default, bool) else False
    note = ""
    for others in ({}, flags) if flags else ({},):
        off, on = (
            _returned(subject, found, {**others, argument.name: value})
            for value in (default, not default)
        )
        if on is None:
            note = note or UNCLEAR
            continue
        for value, here, there in ((not default, on, off), (default, off, on)):
            known = {(one.what, one.layout) for one in there or ()}
            new = tuple(one for one in here or () if (one.what, one.layout) not in known)
            if new and here and there:
                return Option(argument.name, "flag", None, None, {}, "", new, value)
    return Option(argument.name, "flag", None, None, {}, note or IDLE)


def _returned(subject: Subject, found: Found, flags: Mapping[str, Any]) -> tuple[Fit, ...] | None:
    """Return what comes back with some flags, None if the output does not."""
    slots = {name: Slot("flag", value=value) for name, value in flags.items()}
    way = found.seen.way._replace(slots={**found.seen.way.slots, **slots})
    seen, _ = call_way(subject, way, seed=1)
    return (seen and explain(seen, found.settings)) or None


def _calls(subject: Subject, found: Found, role: str, slots: dict[str, Slot]) -> tuple[Group, bool]:
    """Pass an option, with several lengths; return what was seen, and whether it did nothing."""
    loud: list[Seen] = []
    quiet: list[Seen] = []
    for sizes in _sizes(found.seen.way, role):
        way = found.seen.way._replace(slots={**found.seen.way.slots, **slots}, sizes=sizes)
        seen, _ = call_way(subject, way, seed=1)
        change = _change(found.output(seen), found, seen.problem) if seen else None
        if seen and change is not None:
            (loud if change else quiet).append(seen)
        if loud and role != "window":  # which needs more tokens, too
            break
    return [*loud, *quiet] if loud else [], bool(quiet)


def _search(
    found: Found, argument: Argument, role: str, groups: Sequence[Group], costs: Sequence[int],
    until: float,
) -> Option | None:  # fmt: skip
    base = dict(found.settings)
    if role == "is_causal" and not base.get("causal"):
        base["causal"] = "past and itself"
    only = RELATED.get(role, ("",))
    bases = [base, {**base, "blind": "mean of all values"}][: 1 + (role == "mask")]  # with -1e9
    most = dict.fromkeys(costs, len(groups))
    option = search(groups, (), until=until, most=most, bases=bases, only=only)
    is_odd = option and role == "mask" and option.settings.get("hide") == "+ mask"
    if option is None or (is_odd and not is_mask(argument.word)):
        return None
    new = {n: v for n, v in option.settings.items() if found.settings.get(n) != v}
    return Option(argument.name, role, option.seen.way.slots[argument.name], option, new)


def roles_of(argument: Argument) -> list[str]:
    """Return the roles that an option may have, the likeliest first."""
    roles = []
    for role in roles_by_name(argument.word):
        role = "dropout_mask" if role == "rate" and argument.default is None else role
        roles += [role, *ALSO.get(role, ())]
    if isinstance(argument.default, bool):
        flags = [role for role in roles if role in ("is_causal", "training", "flag")]
        return flags or ["is_causal", "flag"]
    if isinstance(argument.default, (int, float)):
        roles = [role for role in roles if role not in LAYOUTS and role not in NUMBERS]
    known = [*RELATED, "flag", "training", "rate", "rng", "padding", "d_out"]
    roles = [role for role in dict.fromkeys(roles) if role in known]
    if isinstance(argument.default, int) and not roles:
        roles = ["block", "window"]
    if argument.default is None and not {*roles} - {"base"}:
        roles = ["mask", "bias", "scale", "window"]
    return roles


def trials(
    way: Way, role: str, argument: Argument, second: str, partner: str | None
) -> Iterator[dict[str, Slot]]:
    """Yield what to pass."""
    if role == "is_causal":
        for kind in ("", "reversed"):
            yield {argument.name: Slot(role, value=not argument.default, kind=kind)}
    elif role in ("memory", "key"):
        if second and partner:
            yield {argument.name: Slot("x_k", "B S C"), second: Slot("x_v", "B S E")}
        elif role == "key":
            yield {argument.name: Slot("x_k", "B S C")}
        yield {argument.name: Slot("memory", "B S C")}
    elif role in LAYOUTS or role == "padding":
        layouts = way.roles()
        of_queries = next((layouts[r] for r in TOKENS if r in layouts), "")
        of_keys = next((layouts[r] for r in ("key", "memory") if r in layouts), "")
        for slot in variants(role, argument.name):
            if not fits(slot, of_queries, of_keys, way.is_inside):
                continue
            layout = slot.layout.replace("d", "e") if role == "cache_k" else slot.layout
            pair = {second: Slot(str(partner), layout)} if second else {}
            yield {argument.name: slot, **pair}
    elif role in CHOICES:
        for value in CHOICES[role]:
            other = value + 1 if value == argument.default else value  # which changes something
            yield {argument.name: Slot(role, value=other)}


def _sizes(way: Way, role: str) -> Iterator[Sizes]:
    """Yield the sizes that a call may have; more keys than queries, if it takes them."""
    sizes = way.sizes
    if role.startswith("cache"):
        yield sizes._replace(Z=2)
    elif role in ("memory", "key"):
        yield from (sizes._replace(S=7), sizes)
    else:
        yield sizes
        if role == "window":  # longer than what it leaves visible
            yield sizes._replace(T=9, S=9)
        elif sizes.S != sizes.T and role in ("is_causal", "mask", "padding", "lengths", "bias"):
            yield sizes._replace(S=sizes.T)


def _change(array: Any, found: Found, problem: Problem) -> bool | None:
    """Return whether an option changes something; None if the output gets more axes."""
    roles = found.seen.way.roles()
    known = {*roles, *found.seen.problem.given}
    plain = Problem(problem.sizes, {r: x for r, x in problem.given.items() if r in known})
    values = evaluate(plain, found.settings)
    close = max(1e-9, 10 * found.fits[0].error)
    if array.ndim != found.output(found.seen).ndim:
        return None
    return values is None or fit(array, values, OUTPUTS, close) is None
