"""Why an answer is wrong: a known mistake or a small edit, with the evidence, or a clue."""

from collections.abc import Callable, Sequence
from functools import cache
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking import agrees
from mha_numpy.checking.compare import agreeing, matched
from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.progress import busy
from mha_numpy.teach.conventions import conventions_of, using, variant_in_force
from mha_numpy.teach.conventions import told as in_force
from mha_numpy.teach.diagnosis import BANK, Diagnosis, diagnose
from mha_numpy.teach.diagnosis.bank import ACCUMULATES, EDITS, FLOAT32, IN_PLACE
from mha_numpy.teach.diagnosis.clues import find_clues, listed
from mha_numpy.teach.diagnosis.diagnose import NARROW
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.diagnosis.own_edits import UNUSED
from mha_numpy.teach.diagnosis.search import SmallEdit, told_edit
from mha_numpy.teach.diagnosis.steps import find_step, is_confirmed
from mha_numpy.teach.diagnosis.variables import Trace
from mha_numpy.teach.diagnosis.wrong import wrong_of
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.mends import OTHERS, Mended
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.exercises.stages import Evidence, Stage
from mha_numpy.teach.exercises.verdict import as_list

Again = Callable[[], Sequence[Trace | None]]  # makes the calls once more, its variables noted
MendOf = Callable[[int], Mended | None]  # finds what makes it right, by an input that is wrong
NUMBERS = {"shape", "finite", "invariants", "values", "gradients"}  # stages
CAUSE, CLUE = "likely cause", "clue"  # remarks: an explanation, and only a fact
MOST = 2  # alternatives that are shown
UNSTEADY = (
    "called twice with the same inputs, your function returns different numbers: something in it "
    "is random, or left from the call before"
)
EACH = "what is said of an array gives every number of it, on every input"
IN_ORDER = ", once they are in the right order"


class AtHand(NamedTuple):
    """What can be done with a function besides looking at its answers."""

    trace: Again = list
    mend: MendOf = lambda _: None
    patch: MendOf = lambda _: None
    rerun: Callable[[], Run] | None = None  # makes the calls with the inputs then in force


ONLY_ANSWERS = AtHand()


class Causes(NamedTuple):
    """The mistakes that explain an answer, if any do, and the sentences for the student."""

    mistakes: frozenset[str]
    remarks: dict[str, str]
    edit: SmallEdit | None = None
    mended: Mended | None = None


NO_CAUSES = Causes(frozenset(), {})


def explain(
    evidence: Evidence,
    stages: list[Stage],
    at_hand: AtHand,
    *,
    is_thorough: bool = True,
) -> Causes:
    """Name the mistakes or the small edit that give exactly these answers, or return clues.

    A bug of the museum is not given away, because the hints do that. Unless `is_thorough`, it says
    nothing, and names only a mistake that is quickly found.
    """
    at_hand = at_hand._replace(
        trace=cache(at_hand.trace)
    )  # the calls are made once, whatever is asked
    failed = {stage.name for stage in stages if stage.passed is False}
    manner = _manner(evidence, failed)
    if "the same twice" in failed and not manner:  # then no numbers are evidence
        return Causes(frozenset(), {**_where(evidence, stages), CAUSE: UNSTEADY})
    evidence, order, found = _diagnosed(evidence, is_thorough)
    task, wrong = evidence.exercise.task, wrong_of(evidence.exercise.task, evidence.answers)
    is_broken = bool(wrong) and all(one.is_nan_alone for one in wrong)
    if found.causes and is_broken and (traces := at_hand.trace()):
        causes = tuple(one for one in found.causes if is_confirmed(task, traces, one))
        found = found._replace(causes=causes, edit=found.edit if causes else None)
    if found.but_for_nan:  # NaN comes about in many ways, so a second mistake is not sure
        found = found._replace(causes=found.but_for_nan)
    remarks = _where(evidence, stages)
    if found.causes and is_bug_of(evidence.exercise, found.causes[0]):
        return Causes(found.causes[0], remarks)
    mistakes = (found.causes[0] if found.causes else frozenset()).union({manner} - {""})
    if not is_thorough:
        return Causes(mistakes, {}, found.edit)
    number = failing_probe(stages)
    if not (mistakes or order or evidence.run.ended) and number is not None:
        with busy("trying small changes"):
            mended = at_hand.mend(number)
        if mended:
            if found.edit and found.edit.group.endswith(UNUSED):
                mended = mended._replace(slip=found.edit.group)
            return Causes(frozenset(), {**remarks, CAUSE: mended.told}, mended=mended)
    told, others, clues, is_clue = list[str](), list[str](), list[str](), False
    if manner == ACCUMULATES or (manner and "values" not in failed):
        told.append(BANK[manner].verdict)
    elif manner:
        remarks["also"] = BANK[manner].verdict
    if order:
        told.append(_told_order(order, is_all=found.is_right))
    if found.causes or found.edit:
        first, *alternatives = _alternatives(evidence, found)
        told += first
        others = [", and ".join(one) for one in alternatives[: 0 if is_broken else MOST]]
    elif found.apart:
        told += _told_apart(evidence, found)
        explained = {name for name, _ in found.apart}
        is_clue = not explained.issuperset(_wrong_names(evidence))
        if is_clue:
            told += _clues(evidence, order, at_hand)
    elif (order or not told) and not found.is_right and failed & NUMBERS and "runs" not in failed:
        with busy("trying right numbers"):
            patched = None if order or number is None else at_hand.patch(number)
        if patched:
            return Causes(mistakes, {**remarks, CAUSE: patched.told}, mended=patched)
        clues = _clues(evidence, order, at_hand)
        told += clues
        if not clues:
            remarks["no known mistake"] = (
                f"no small edit of {evidence.exercise.function_name} gives these numbers either"
            )
    if told:
        remarks[CLUE if is_clue or told == clues else CAUSE] = told[0]
    if told[1:]:
        remarks["and also"] = as_list(told[1:])
    if others:
        remarks["or"] = "".join(f"\n- {other}" for other in others)
    if found.causes or found.edit:
        remarks["evidence"] = _evidence(evidence, found) + IN_ORDER * bool(order)
    elif found.apart:
        remarks["evidence"] = EACH
    return Causes(mistakes, remarks, found.edit)


def _diagnosed(evidence: Evidence, is_thorough: bool) -> tuple[Evidence, dict[str, str], Diagnosis]:
    """Diagnose the answers; arrays in a different order that has no name are reordered first."""
    piece = evidence.exercise.task
    with busy("searching for the cause"):
        found = diagnose(piece, evidence.answers, is_thorough=is_thorough)
        has_name = found.causes and len(found.causes[0]) == 1 and not found.is_partial
        order = {} if has_name else _order(evidence)
        if order:
            evidence = evidence.reordered(order)
            found = diagnose(piece, evidence.answers, is_thorough=is_thorough)
    return evidence, order, found


def _alternatives(evidence: Evidence, found: Diagnosis) -> list[list[str]]:
    piece = evidence.exercise.task
    told = [[_verdict(piece, name) for name in sorted(cause)] for cause in found.causes]
    yours = listed(_wrong_names(evidence)) if found.is_partial else "numbers"
    if found.edit:
        is_usual = not conventions_of(piece)  # whose lines an edit quotes
        edit = _told_edit(found.edit, yours) if is_usual else found.edit.group
        return [[*(told[0] if told else []), edit]]
    if found.is_partial:
        told = [[f"this mistake gives exactly your {yours}: {', and '.join(one)}"] for one in told]
    return told


def _verdict(piece: str, mistake: str) -> str:
    """Return a mistake's verdict in the words of the variant in force."""
    verdict = BANK[mistake].verdict
    return in_force(piece, verdict) if EDITS[mistake] else verdict  # else it is about a convention


def _told_edit(edit: SmallEdit, yours: str) -> str:
    """Return the effect of a small edit: the wrong lines, and the right ones."""
    return f"{told_edit(edit)}, we get exactly your {yours}"


def _told_apart(evidence: Evidence, found: Diagnosis) -> list[str]:
    """Return the causes of single arrays, one sentence for those that have the same."""
    names: dict[str, list[str]] = {}
    for name, told in found.apart:
        names.setdefault(told, []).append(name or evidence.name)
    return [f"{listed(each)}: {told}" for told, each in names.items()]


def is_bug_of(exercise: Exercise, mistakes: frozenset[str]) -> bool:
    """Return whether the mistakes are the bug that an exhibit of the museum was handed out with."""
    return exercise.kind == "museum" and mistakes == {exercise.hints.mistake}


def _clues(evidence: Evidence, order: dict[str, str], at_hand: AtHand) -> list[str]:
    pairs = _pairs(evidence)
    if pairs and all(agrees(a, b, tolerance=NARROW) for a, b in pairs):
        return [
            f"the numbers are right to about {NARROW:g} of the largest one: "
            "a small number may have been added, as in x / (total + 1e-9), or part of the "
            "computation is in float32"
        ]
    task = evidence.exercise.task
    step = find_step(task, at_hand.trace())
    variant = variant_in_force()
    if variant.own:
        step = step.replace("our solution", "the solution")  # which is the teacher's
    clues = find_clues(task, evidence.answers, step)
    if (
        variant.own is None or at_hand.rerun is None
    ):  # the inputs of the exercises here do not vary much
        return clues
    for seed in OTHERS if clues else ():
        with using(variant._replace(seed=seed)):
            other = Evidence(evidence.exercise, at_hand.rerun())
            other = other.reordered(order) if order else other
            again = find_clues(task, other.answers, step)
        clues = [clue for clue in clues if clue in again]
    return clues


def _wrong_names(evidence: Evidence) -> list[str]:
    return [one.name for one in wrong_of(evidence.exercise.task, evidence.answers)]


def _pairs(evidence: Evidence) -> list[tuple[Any, Any]]:
    both = zip(evidence.answers, evidence.expected, strict=True)
    return [(answer, expected) for answer, expected in both if answer is not None]


def _order(evidence: Evidence) -> dict[str, str]:
    """Return which array is in each place, if all inputs have the same wrong order."""
    orders = [_order_of(*pair) for pair in _pairs(evidence)]
    return orders[0] if orders and all(order == orders[0] for order in orders) else {}


def _order_of(answer: Any, expected: Any) -> dict[str, str]:
    """Return which array is in each place, if at most one of them is also wrong."""
    arrays = {name: np.asarray(leaf) for name, leaf in leaves(expected).items()}
    mine = {name: actual for name, actual, _ in matched(answer, expected)}
    if len(arrays) == 1 or mine.keys() != arrays.keys():
        return {}
    found = {}
    for place, actual in mine.items():
        names = (n for n in (place, *arrays) if agrees(actual, arrays[n], tolerance=TOLERANCE))
        found[place] = next(names, "")
    left = [name for name in arrays if name not in found.values()]
    unknown = [place for place, name in found.items() if not name]
    if len(left) == len(unknown) == 1 and np.shape(mine[unknown[0]]) == arrays[left[0]].shape:
        found[unknown[0]] = left[0]
    is_other = any(place != name for place, name in found.items())
    return found if is_other and set(found.values()) == arrays.keys() else {}


def _told_order(order: dict[str, str], *, is_all: bool) -> str:
    moved = ", ".join(
        f"{name} is in the place of {place}" for place, name in order.items() if place != name
    )
    return f"the arrays are {'right, but ' * is_all}in a different order: {moved}"


def failing_probe(stages: list[Stage]) -> int | None:
    """Return on which input the first stage fails, if it says so."""
    return next((stage.probe for stage in stages if stage.probe is not None), None)


def _where(evidence: Evidence, stages: list[Stage]) -> dict[str, str]:
    """Describe the input on which the first stage fails."""
    number = failing_probe(stages)
    if number is None:
        return {}
    shapes = [
        f"{name} {value.shape}" if isinstance(value, np.ndarray) else f"{name} {_short(value)}"
        for name, value in evidence.probes[number].items()
    ]
    return {f"input {number + 1} of {len(evidence.probes)}": ", ".join(shapes)}


def _short(value: Any) -> str:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"({', '.join(value._fields)})"
    return repr(value)


def _evidence(evidence: Evidence, found: Diagnosis) -> str:
    mistakes = found.causes[0] if found.causes else frozenset()
    if mistakes == {FLOAT32}:
        return "every number is a float32 number, and right to the precision of float32"
    is_one = len(mistakes) + bool(found.edit) == 1
    which = (
        ("this edit reproduces" if found.edit else "this mistake reproduces")
        if is_one
        else "these two together reproduce"
    )
    if found.is_partial:
        return f"{which} all of your wrong arrays; the others are right"
    if found.causes == found.but_for_nan != ():
        return f"{which} every number of yours that is not NaN"
    answered = [answer for answer in evidence.answers if answer is not None]
    arrays = sum(len(leaves(answer)) for answer in answered)
    what = {1: "your array", 2: "both of your arrays"}.get(arrays, f"all {arrays} of your arrays")
    inputs = "the input" if len(answered) == 1 else f"the {len(answered)} inputs"
    where = (
        "" if len(answered) == len(evidence.probes) else f", on {inputs} where your function ran"
    )
    others = found.edit.others if found.edit else 0
    same = (
        "; "
        + (f"up to {others} other small edits" if others > 1 else "one other small edit")
        + " may too"
    )
    return f"{which} {what}{where}{same if others else ''}"


def _manner(evidence: Evidence, failed: set[str]) -> str:
    """Return the mistake that shows in a function's behaviour, not in its numbers."""
    if "inputs left alone" in failed:
        return IN_PLACE
    pairs = zip(evidence.first, evidence.second, strict=False)
    doubled = any(
        _is_double(other.answer, one.answer)
        for one, other in pairs
        if not (one.error or other.error)
    )
    return ACCUMULATES if "the same twice" in failed and doubled else ""


def _is_double(other: Any, one: Any) -> bool:
    """Return whether arrays of the second answer are twice those of the first, others the same."""
    found = leaves(one)
    if not all(isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" for leaf in found.values()):
        return False
    twice = replaced(one, {name: 2 * leaf for name, leaf in found.items()})
    same, doubled = (list(agreeing(other, tree, tolerance=TOLERANCE)) for tree in (one, twice))
    return not all(same) and all(map(or_, same, doubled))
