"""identify: look at a function that computes attention, from outside."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.errors import ConfigError, MhaError, did_you_mean
from mha_numpy.identifying.calling.builds import callable_of
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.layouts import LAYOUTS, find_orders
from mha_numpy.identifying.calling.names import is_mask
from mha_numpy.identifying.calling.roles import TOKENS, is_telling
from mha_numpy.identifying.calling.subject import Subject, trouble_of
from mha_numpy.identifying.calling.ways import Way, find_ways
from mha_numpy.identifying.facts.dropout import find_dropout
from mha_numpy.identifying.facts.feeding import feed
from mha_numpy.identifying.facts.hiding import with_hiding
from mha_numpy.identifying.facts.options import Option, look_at_options
from mha_numpy.identifying.facts.probes import Fact, find_facts, in_time, mixes
from mha_numpy.identifying.family import Settings, evaluate
from mha_numpy.identifying.gradients.beside import find_backward
from mha_numpy.identifying.gradients.look import GradientRow, look_at_gradients
from mha_numpy.identifying.searching.calls import call_way, with_sizes
from mha_numpy.identifying.searching.mixture import Mixture, find_mixture
from mha_numpy.identifying.searching.reading import search_by_weights
from mha_numpy.identifying.searching.search import OUTPUTS, Found, Seen, explain, search

BASES: tuple[Settings, ...] = ({}, {"causal": "past and itself"})
CACHED: Settings = {"q_position": "after the cache"}  # at 0, a rotation would change nothing
WITH_GRADIENTS = ("mask", "padding", "bias", "is_causal", "lengths")  # a backward may forget them
FOR_CALLS = 0.9  # of the time; the rest is for lines of mistakes, and examples
MOST_SEEN = 24
MOST_UNNAMED = 80  # where names do not tell queries, keys and values apart
MOST_CALLS = {False: 12_000, True: 1000}  # by whether one worked
MOST_WAYS = {0: 24, 1: 24, 2: 24, 3: 8}  # by cost: there are more settings than time
MOST_FAR: dict[int, int] = {4: 8, 5: 4}  # after the weights are read, which finds most of them
DOUBTFUL = {("hide", "+ mask"), ("mask", "ignored"), ("combined", "or")}  # if it is a mask at all
EXCHANGE = ("exchanged", "params")  # settings that exchange queries, keys and values: wrong roles
ARE_MAIN = ("w_", "x_", "wi", "qu", "ke", "va", "me")  # how their roles begin
GROWING = re.compile(  # what an object keeps of each call
    r"self\.[\w.\[\]'\"]*\.append\(|self\.(\w+) = .*\w\([\[(]self\.\1\b"
    r"|self\.\w+\[[^\n=]*self\.\w+[^\n=]*\] = "
)
SAME_TROUBLE = 3  # ranks of masks
MOST_DOUBTFUL = {1: 60, 2: 24}


class Looked(NamedTuple):
    """Everything that was found out."""

    subject: Subject
    found: Found | None
    options: list[Option]
    facts: list[Fact]
    gradients: list[GradientRow]
    trouble: str  # of the last call that failed
    seen: Sequence[Seen] = ()  # calls that worked
    is_late: bool = False  # the time was over before all was tried
    beside: str = ""  # the name of a backward that was found by it
    mixture: Mixture | None = None  # what is known where nothing was found


def find_base(subject: Subject, given: Mapping[str, str]) -> tuple[Found | None, list[Seen], str]:
    """Find a way to call a function, and the settings that give its numbers.

    Where the names of the arguments lead nowhere, one of them may be wrong.
    """
    with subject.within(subject.left * 2 / 3):
        first = _find_base(subject, given, doubt=False)
    if first[0] or first[2].startswith("TimeoutError"):  # a call that does not end
        return first
    framework, dtype = subject.framework, subject.dtype
    second = _find_base(subject, given, doubt=True)
    if second[0]:
        return second
    subject.framework = framework  # as it was seen
    subject.narrow(dtype)
    return *first[:2], first[2] or second[2]


def _find(subject: Subject, given: Mapping[str, str]) -> tuple[Found | None, list[Seen], str]:
    """Find a base; an object that adds to what it keeps is also fed one token at a time."""
    plain: tuple[Found | None, list[Seen], str] = (None, [], "")
    orders = ("d", "", "1 d") if GROWING.search(subject.source) else ("",)
    for count, feeding in enumerate(orders):
        subject.feeding = feeding
        with subject.within(subject.left / (len(orders) - count)):
            found = find_base(subject, given)
        if found[0]:
            return found
        plain = plain if feeding else found
    subject.feeding = ""
    return plain


Failed = defaultdict[Any, dict[str, set[Any]]]  # by tokens, then by trouble: ranks of the masks


def _put_off(ways: Iterator[Way], failed: Failed) -> Iterator[Way]:
    """Yield ways; those of tokens that failed in the same way with several masks come last."""
    later = []
    for way in ways:
        known = failed.get(_parted(way)[0], {}).values()
        if max(map(len, known), default=0) < SAME_TROUBLE:
            yield way
        else:
            later.append(way)
    yield from later


def _parted(way: Way) -> tuple[Any, Any]:
    """Return all slots that are no masks and the like, and the ranks of these."""
    slots = way.slots.values()
    roles = tuple(slot.role for slot in slots)  # a table is no mask that fails
    tokens = (*(slot for slot in slots if slot.role not in LAYOUTS), roles, way.sizes)
    return tokens, tuple(len(slot.layout.split()) for slot in slots if slot.role in LAYOUTS)


def _find_base(
    subject: Subject, given: Mapping[str, str], doubt: bool
) -> tuple[Found | None, list[Seen], str]:
    """Find a base, trusting the names of arguments or doubting one of them."""
    until = clock() + subject.left / 3
    numbers, attends = subject.constants(), partial(_attends, subject, given)
    seen: list[Seen] = []
    trouble = ""
    for framework, dtype in product(subject.frameworks, ("float64", "float32")):
        subject.framework = framework
        subject.narrow(dtype)
        for is_cached in (False, True):
            ways = partial(find_ways, subject, given, doubt, is_cached)
            found, own, trouble = _call_ways(subject, ways, numbers, until, doubt, trouble, attends)
            seen += own
            if found:
                return settle(subject, found, numbers), seen, trouble
        if seen or clock() > until:
            break
    seen.sort(key=_is_odd)
    groups = [[one] for one in seen]
    few, many = (MOST_DOUBTFUL, {}) if doubt else (MOST_WAYS, MOST_FAR)
    half, most = (subject.until - subject.left / part for part in (2, 3))
    bases = (*BASES, CACHED) if any(one.way.sizes.Z for one in seen) else BASES
    found = search(groups, numbers, until=half, most=few, bases=bases, accept=attends)
    if found is None and not doubt:
        found = search_by_weights(groups, numbers, until=most, bases=BASES)
    if found is None:
        found = search(groups, numbers, until=subject.until, most=many, bases=BASES, accept=attends)
    if found is None or not attends(found):
        return None, seen, trouble
    return settle(subject, found, numbers), seen, trouble


def _attends(subject: Subject, given: Mapping[str, str], found: Found) -> bool:
    """Return whether settings are of an attention, and exchange no roles that were only guessed."""
    words = {a.name: a.word for a in subject.arguments}
    if DOUBTFUL & {*found.settings.items()}:
        return is_mask(words.get(found.seen.way.argument("mask"), "mask")) and mixes(subject, found)
    if {found.settings.get(name) for name in EXCHANGE} & {"k v", "q k", "q v", "q k v"}:
        slots = [(n, slot.role) for n, slot in found.seen.way.slots.items() if slot.layout]
        main = [name for name, role in slots if role[:2] in ARE_MAIN]
        is_known = bool(given) or all(is_telling(words[name]) for name in main)
        return is_known and mixes(subject, found)
    return mixes(subject, found)


def _call_ways(
    subject: Subject, find: Callable[[], Iterator[Way]], numbers: Sequence[float], until: float,
    doubt: bool, trouble: str, accept: Callable[[Found], bool],
) -> tuple[Found | None, list[Seen], str]:  # fmt: skip
    """Call a function in many ways, until one has the usual numbers."""
    is_named = all(is_telling(a.word) for a in subject.arguments if a.is_required)
    most = MOST_SEEN if is_named and not doubt else MOST_UNNAMED
    failed: Failed = defaultdict(dict)
    ways, calls, usual, seen = _put_off(find(), failed), 0, 0, list[Seen]()
    while (way := next(ways, None)) is not None:
        one, own_trouble = call_way(subject, way)
        if one is None:
            tokens, ranks = _parted(way)
            failed[tokens].setdefault(own_trouble, set()).add(ranks)
        trouble = trouble or own_trouble
        if subject.learn(own_trouble):
            failed.clear()
            trouble = ""
            ways, seen = _put_off(find(), failed), []
            continue
        if one and not _is_trivial(way, seen):
            tries = [one, *_scaled(subject, one)]
            usual += not _is_odd(one)
            seen += tries
            groups = [[each] for each in tries]
            most_now = {} if _is_odd(one) else {0: len(tries)}
            found = search(
                groups, numbers, until=np.inf, most=most_now, bases=BASES,
                accept=accept,
            )  # fmt: skip
            if found:
                return found, seen, trouble
        calls += 1
        is_late = calls > MOST_CALLS[bool(seen)] or clock() > until
        if is_late or usual >= most:
            break
    return None, seen, trouble


def _is_trivial(way: Way, seen: Sequence[Seen]) -> bool:
    """Return whether a single query sees a single key, so that any function attends.

    Nor does one query say anything of positions and rules where calls with more of them work.
    """
    has_more = any(each.way.sizes.T > 1 and not _is_odd(each) for each in seen)
    has_more &= not any("n m" in layout for layout in way.roles().values())  # each has its own keys
    return way.sizes.T == 1 and (has_more or (way.is_self and way.sizes.Z == 0))


def _scaled(subject: Subject, one: Seen) -> Iterator[Seen]:
    """Yield what was seen, as if weights were multiplied: what dropout keeps, at a fixed rate."""
    for kept in subject.chance.scaled(subject.constants()):
        yield one._replace(problem=one.problem.but(dropout_mask=np.full((1, 1, 1, 1), kept)))


def _is_odd(seen: Seen) -> bool:
    """Return whether nothing that came back has the axes of an output, or a 1 more than tokens."""
    values = evaluate(seen.problem, {}) or {}
    shapes = [values[name].shape for name in OUTPUTS if name in values]
    layouts = seen.way.roles()
    axes = max((len(layouts[role].split()) for role in TOKENS if role in layouts), default=2)
    arrays = [x for _, x in seen.called.arrays if x.ndim <= axes or 1 not in x.shape]
    return not any(find_orders(own, x.shape) for own in shapes for x in arrays)


def other_lengths(subject: Subject, found: Found) -> Iterator[Seen]:
    """Yield calls with other lengths: of tokens, of keys, of values, and of groups of heads."""
    way = found.seen.way
    sizes = way.sizes
    others: list[dict[str, int]] = []
    if not way.is_self:
        others = [{"S": S} for S in (7, sizes.T, 3) if S != sizes.S]
        others += [{"T": 1}] if found.settings.get("causal") and 1 < sizes.T != sizes.S else []
    elif sizes.T > 1:
        others = [{"T": 6, "S": 6}]
    odd: list[dict[str, int]] = []
    if not way.is_inside:
        odd += [{"G": 2}] if sizes.G == sizes.H > 1 else []
        odd += [{"e": 10}] if sizes.e == sizes.d else []
    whole = {axis: n for changed in (*others[-1:], *odd) for axis, n in changed.items()}
    seen = [with_sizes(subject, way, **changed) for changed in (*others[:-1], whole)]
    if seen[-1] is None and odd:  # some functions refuse one of them
        seen += [with_sizes(subject, way, **changed) for changed in (*others[-1:], *odd)]
    yield from filter(None, seen)


def _has_all_queries(seen: Seen, found: Found) -> bool:
    """Return whether an output has a row for each query, and no others by broadcasting."""
    axes, shape = found.fits[0].layout.split(), found.output(seen).shape
    return "T" not in axes or len(shape) < len(axes) or shape[axes.index("T")] == seen.way.sizes.T


def settle(subject: Subject, found: Found, numbers: Sequence[float]) -> Found:
    """Return settings that explain other lengths, too; the same if there are none."""
    kept = found.seen.problem.get("dropout_mask")
    if kept is not None and not found.seen.way.argument("dropout_mask"):
        subject.chance.kept = float(kept.flat[0])
    found = _with_heads_first(subject, found)
    others = [one for one in other_lengths(subject, found) if _has_all_queries(one, found)]
    if not all(explain(one, found.settings) for one in others):
        group = sorted([found.seen, *others], key=lambda one: bool(explain(one, found.settings)))
        most = {1: 1, 2: 1, 3: 1}
        again = search([group], numbers, until=subject.until, most=most, bases=(found.settings,))
        found = found._replace(settings=again.settings) if again else found
    return _with_lengths_apart(subject, found)


def _with_heads_first(subject: Subject, found: Found) -> Found:
    """Return a call in which the first axis has heads, if there may be fewer of the keys."""
    way = found.seen.way
    is_given = way.roles().get("query") in ("B T d", "B H T d") and not way.argument("lengths")
    if not is_given or (way.sizes.G > 1 and with_sizes(subject, way, G=2)):
        return found
    turned = {"query": "H T d", "key": "G S d", "value": "G S e"}
    slots = {
        name: slot._replace(layout=turned.get(slot.role, slot.layout.replace("B", "H")))
        for name, slot in way.slots.items()
    }
    sizes = way.sizes._replace(B=1, H=4, G=2)
    seen, _ = call_way(subject, Way(slots, way.hidden, sizes, is_inside=False))
    grouped = seen and search(
        [[seen]], (), until=subject.until, most=dict.fromkeys(range(4), 1), bases=(found.settings,),
        only=("grouping",),
    )  # fmt: skip
    return grouped or found


def _with_lengths_apart(subject: Subject, found: Found) -> Found:
    """Return a call in which T_q and T_k, and d_k and d_v, differ as far as they may."""
    sizes = found.seen.way.sizes
    apart = {"S": 7} if sizes.S == sizes.T and not found.seen.way.is_self else {}
    apart |= {"e": 10} if sizes.e == sizes.d and not found.seen.way.is_inside else {}
    for changed in (apart, *({axis: n} for axis, n in apart.items()), {}):
        seen = with_sizes(subject, found.seen.way, **changed) if changed else found.seen
        fits = explain(seen, found.settings) if seen else ()
        if seen and fits:
            return Found(seen, found.settings, fits)
    return found


def _all_gradients(
    subject: Subject, found: Found, options: Sequence[Option], backward: Callable[..., Any] | None
) -> list[GradientRow]:  # fmt: skip
    """Return what is known of each gradient; with a backward of its own, also under masks."""
    findings = [found]
    if backward is not None:
        findings += [each.found for each in options if each.found and each.role in WITH_GRADIENTS]
    rows: dict[str, list[GradientRow]] = {}
    for each in findings:
        new = look_at_gradients(subject, each, backward)
        for name in dict.fromkeys(row.name for row in new):
            own = [row for row in new if row.name == name]
            if name not in rows or (rows[name][0].is_right and not own[0].is_right):
                rows[name] = own
    return [row for name, own in rows.items() if name or len(rows) == 1 for row in own]


def _look_at_mixture(looked: Looked, given: Mapping[str, str]) -> Looked:
    """Find out what can be known without knowing the scores: they are read in each call."""
    subject, numbers = looked.subject, looked.subject.constants()
    mixture = find_mixture(subject, looked.seen, numbers)
    if mixture is None or not mixture.depend:
        return looked._replace(mixture=mixture)
    with subject.completing(mixture.complete):
        found = settle(subject, mixture.found, numbers)
        with subject.within(subject.left * 2 / 3):
            options = look_at_options(subject, found, dict(given))
        facts = find_facts(subject, found, options)
        options = [with_hiding(subject, found, option, given) for option in options]
    mixture = mixture._replace(found=found)
    return looked._replace(mixture=mixture, options=options, facts=facts)


def look(
    function: Callable[..., Any],
    given: Mapping[str, str] | None = None,
    seconds: float = 60.0,
    backward: Callable[..., Any] | None = None,
    *,
    pass_all: bool = True,
) -> Looked:
    """Find out what a function computes.

    Arguments with roles that are given are passed in each call, if `pass_all`; otherwise only
    those that have to be.
    """
    try:
        subject = Subject(callable_of(function))
    except MhaError:
        raise
    except Exception as error:  # anybody's attributes
        raise ConfigError(f"function: cannot look into it ({trouble_of(error)})") from error
    names = [argument.name for argument in subject.arguments]
    for name in given or {}:
        if name not in names:
            meant = did_you_mean(name, names) or f"its arguments are {', '.join(names)}"
            raise ConfigError(f"given: {subject.name} has no argument {name!r}; {meant}")
    subject.given = dict(given or {})
    optional = {a.name for a in subject.arguments if not a.is_required and not pass_all}
    needed = {name: role for name, role in subject.given.items() if name not in optional}
    subject.until = clock() + seconds
    with np.errstate(all="ignore"), subject.within(seconds * FOR_CALLS):
        with subject.within(seconds * 3 / 4):
            found, seen, trouble = _find(subject, needed)
        if found is None:
            is_late = subject.left < seconds / 4
            return _look_at_mixture(
                Looked(subject, None, [], [], [], trouble, seen, is_late), given or {}
            )
        with subject.within(subject.left / 2):
            options = look_at_options(subject, found, dict(given or {}))
        with subject.within(subject.left / 2):
            facts = find_facts(subject, found, options)
            facts += in_time(subject, find_dropout(subject, found, options))
            facts += in_time(subject, feed(subject, found, options))
        if subject.feeding:  # as many keys as queries; its gradients are those of many calls
            facts = [fact for fact in facts if fact.name not in ("alignment", "no_keys")]
            return Looked(subject, found, options, facts, [], trouble, seen, subject.left < 0)
        own, is_beside = (backward, False) if backward else find_backward(subject, found)
        gradients = _all_gradients(subject, found, options, own)
        if is_beside and not any(row.is_right or row.mistake for row in gradients):
            own, is_beside, gradients = None, False, _all_gradients(subject, found, options, None)
        is_late = subject.left < 0
    beside = str(getattr(own, "__name__", "")) if is_beside else ""
    return Looked(subject, found, options, facts, gradients, trouble, seen, is_late, beside)
