"""What hides keys where the scores are unknown: a hidden key has weight 0."""

from collections.abc import Iterator, Mapping

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.signatures import Argument
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot
from mha_numpy.identifying.facts.options import UNCLEAR, Option, roles_of, trials
from mha_numpy.identifying.family import SETTINGS, USUAL, Settings, evaluate
from mha_numpy.identifying.searching.calls import call_way
from mha_numpy.identifying.searching.reading import read_weights
from mha_numpy.identifying.searching.search import Found, Seen

HIDING = {"mask": "mask", "padding": "mask", "lengths": "lengths"}  # the setting by role
ZERO = 1e-9  # smaller weights are rounding


def with_hiding(subject: Subject, found: Found, option: Option, given: Mapping[str, str]) -> Option:
    """Return an option that no settings explain as one that hides keys, if that is what it does.

    Unknown scores may depend on what is hidden, so only weights of 0 are compared.
    """
    if option.found or option.note != UNCLEAR:
        return option
    argument = next(a for a in subject.arguments if a.name == option.argument)
    known = given.get(argument.name)
    for role in (known,) if known else roles_of(argument):
        for slot in _slots(found, role, argument) if role in HIDING else ():
            slots = {**found.seen.way.slots, argument.name: slot}
            seen, _ = call_way(subject, found.seen.way._replace(slots=slots), seed=1)
            setting = HIDING[role]
            value = _value(seen, found.settings, setting) if seen else None
            if seen and value:
                own = {setting: value} if value != USUAL[setting] else {}
                hiding = Found(seen, {**found.settings, **own}, found.fits)
                return Option(argument.name, role, slot, hiding, own)
    return option


def _slots(found: Found, role: str, argument: Argument) -> Iterator[Slot]:
    """Yield what to pass, that with the most axes first: it says most of what is meant."""
    every = [each[argument.name] for each in trials(found.seen.way, role, argument, "", None)]
    yield from sorted(every, key=lambda slot: -len(slot.layout.split()))


def _value(seen: Seen, settings: Settings, setting: str) -> str | None:
    """Return the value of a setting with which exactly the hidden keys have no weight."""
    weights = read_weights(seen, settings)
    values = SETTINGS[setting] if weights is not None else ()
    fitting = (v for v in values if _fits(seen, {**settings, setting: v}, np.asarray(weights)))
    return next(fitting, None)


def _fits(seen: Seen, settings: Settings, weights: Array) -> bool:
    """Return whether weights are 0 where a key is hidden, and nowhere else."""
    values = evaluate(seen.problem, settings)
    if values is None:
        return False
    visible = np.broadcast_to(values["visible"], weights.shape)
    is_asked = np.broadcast_to(visible.any(-1, keepdims=True), weights.shape)
    hides = bool((is_asked & ~visible).any())
    return hides and bool(((abs(weights) > ZERO) == visible)[is_asked].all())
