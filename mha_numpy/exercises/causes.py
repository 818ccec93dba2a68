"""The likely causes of a wrong answer, with the evidence: a known mistake, a small edit, a clue."""

from operator import or_
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking import agrees
from mha_numpy.checking.compare import agreeing, matched
from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.exercises.exercise import Exercise
from mha_numpy.exercises.stages import Evidence, Stage
from mha_numpy.mistakes import BANK, Diagnosis, diagnose
from mha_numpy.mistakes.answers import TOLERANCE, wrong_arrays
from mha_numpy.mistakes.clues import find_clues, listed
from mha_numpy.mistakes.diagnose import NARROW
from mha_numpy.mistakes.manners import ACCUMULATES, FLOAT32, IN_PLACE
from mha_numpy.mistakes.search import SmallEdit

NUMBERS = {"shape", "finite", "invariants", "values", "gradients"}  # stages
MOST = 2  # alternatives that are told


class Causes(NamedTuple):
    """The mistakes that explain an answer, if any do, and what a student is told of them."""

    mistakes: frozenset[str]
    remarks: dict[str, str]
    edit: SmallEdit | None = None


def explain(evidence: Evidence, stages: list[Stage]) -> Causes:
    """Name the mistakes or the small edit that give just these answers, or tell the clues.

    A bug of the museum is not given away: the hints do that.
    """
    failed = {stage.name for stage in stages if stage.passed is False}
    manner = _manner(evidence, failed)
    found = diagnose(evidence.exercise.piece, evidence.answers)
    remarks = _where(evidence, stages)
    if found.causes and is_bug_of(evidence.exercise, found.causes[0]):
        return Causes(found.causes[0], remarks)
    if manner:
        explains = manner == ACCUMULATES or "values" not in failed
        remarks["likely cause" if explains else "besides"] = BANK[manner].verdict
    if found.causes or found.edit:
        first, *others = _alternatives(evidence, found)
        remarks["likely cause" if "likely cause" not in remarks else "and besides"] = first
        if others:
            remarks["or else"] = "".join(f"\n- {other}" for other in others[:MOST])
        remarks["evidence"] = _evidence(evidence, found)
    elif "likely cause" not in remarks and failed & NUMBERS and "runs" not in failed:
        remarks |= _unknown(evidence)
    cause = found.causes[0] if found.causes else frozenset()
    return Causes(cause | {manner} if manner else cause, remarks, found.edit)


def _alternatives(evidence: Evidence, found: Diagnosis) -> list[str]:
    """Return what may have been done, each in a sentence."""
    told = [_told(cause) for cause in found.causes]
    if found.edit:
        told = [_order_of_all(evidence) or ", and ".join([*told, _told_edit(found.edit)])]
    if found.is_partial:
        wrong = _wrong_names(evidence)
        verb = "are those" if len(wrong) > 1 else "is that"
        told = [f"{listed(wrong)} {verb} of this mistake: {one}" for one in told]
    return told


def _told_edit(edit: SmallEdit) -> str:
    """Return what a small edit does: the lines that are written, and those that belong there."""
    wrong, right = (lines.replace("\n", "; ") for lines in (edit.wrong, edit.right))
    if not wrong:
        return f"{edit.group}: your numbers are those without `{right}`"
    belongs = f"`{right}` belongs there" if right else "it does not belong there"
    return f"{edit.group}: your numbers are those of `{wrong}`; {belongs}"


def is_bug_of(exercise: Exercise, mistakes: frozenset[str]) -> bool:
    """Return whether the mistakes are the bug that an exhibit of the museum was handed out with."""
    return exercise.kind == "museum" and mistakes == {exercise.hints.mistake}


def _unknown(evidence: Evidence) -> dict[str, str]:
    """Say what can be said where no known mistake and no small edit fits."""
    pairs = _pairs(evidence)
    if pairs and all(agrees(a, b, tolerance=NARROW) for a, b in pairs):
        return {
            "likely cause": f"the numbers are right to about {NARROW:g} of the largest one: "
            "a small number may have been added, as in x / (total + 1e-9), or a part is computed "
            "in float32"
        }
    clues = find_clues(evidence.exercise.piece, evidence.answers)
    if clues:
        first, *others = clues
        return {"likely cause": first} | ({"and besides": "; ".join(others)} if others else {})
    name = evidence.exercise.function_name
    reason = (
        f"no small edit of {name} gives these numbers either: perhaps there are several mistakes"
    )
    return {"no known mistake": reason}


def _wrong_names(evidence: Evidence) -> list[str]:
    """Return which arrays are wrong."""
    wrong = wrong_arrays(evidence.answers, evidence.expected)
    names = [name for name, _, _ in matched(evidence.expected[0], evidence.expected[0])]
    return [name for name, is_wrong in zip(names, wrong, strict=True) if is_wrong]


def _pairs(evidence: Evidence) -> list[tuple[Any, Any]]:
    """Return the answers that there are, each with the expected one."""
    both = zip(evidence.answers, evidence.expected, strict=True)
    return [(answer, expected) for answer, expected in both if answer is not None]


def _order_of_all(evidence: Evidence) -> str:
    """Say so where all answers are right arrays in the same wrong order."""
    orders = {_order(*pair) for pair in _pairs(evidence)}
    return orders.pop() if len(orders) == 1 else ""


def _order(answer: Any, expected: Any) -> str:
    """Say so where right arrays are returned in another order."""
    arrays = [(name, np.asarray(leaf)) for name, leaf in leaves(expected).items()]
    found = {}
    for name, actual, _ in matched(answer, expected):
        found[name] = next(
            (other for other, array in arrays if agrees(actual, array, tolerance=TOLERANCE)), None
        )
    wrong = [f"{name} holds {other}" for name, other in found.items() if name != other]
    is_permuted = sorted(map(str, found.values())) == sorted(name for name, _ in arrays)
    if len(arrays) == 1 or not wrong or not is_permuted:
        return ""
    return f"the arrays are right, but in another order: {', '.join(wrong)}"


def failing_probe(stages: list[Stage]) -> int | None:
    """Return on which input the first stage fails, if it says so."""
    return next((stage.probe for stage in stages if stage.probe is not None), None)


def _where(evidence: Evidence, stages: list[Stage]) -> dict[str, str]:
    """Say what the input was where the first stage fails."""
    number = failing_probe(stages)
    if number is None:
        return {}
    shapes = [
        f"{name} {value.shape}" if isinstance(value, np.ndarray) else f"{name} {_short(value)}"
        for name, value in evidence.probes[number].items()
    ]
    return {f"input {number + 1} of {len(evidence.probes)}": ", ".join(shapes)}


def _short(value: Any) -> str:
    """Return an argument that is no array: a number, or arrays under names by their names."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"({', '.join(value._fields)})"
    return repr(value)


def _told(cause: frozenset[str]) -> str:
    """Return the verdicts of one mistake, or of two."""
    return ", and ".join(BANK[name].verdict for name in sorted(cause))


def _evidence(evidence: Evidence, found: Diagnosis) -> str:
    """Say what speaks for a cause."""
    mistakes = found.causes[0] if found.causes else frozenset()
    if mistakes == {FLOAT32}:
        return "every number is a float32 number, and right to the precision of float32"
    is_one = len(mistakes) + bool(found.edit) == 1
    which = (
        ("this edit gives" if found.edit else "this mistake gives")
        if is_one
        else "these two give together"
    )
    if found.is_partial:
        return f"the wrong arrays are just what {which}; the other arrays are right"
    answered = [answer for answer in evidence.answers if answer is not None]
    arrays = sum(len(leaves(answer)) for answer in answered)
    what = {1: "the array is", 2: "both arrays are"}.get(arrays, f"all {arrays} arrays are")
    inputs = "the input" if len(answered) == 1 else f"the {len(answered)} inputs"
    where = (
        "" if len(answered) == len(evidence.probes) else f", on {inputs} where your function ran"
    )
    others = found.edit.others if found.edit else 0
    same = f"; at most {others} other small edit{'s do' if others > 1 else ' does'} so, too"
    return f"{what} just what {which}{where}{same if others else ''}"


def _manner(evidence: Evidence, failed: set[str]) -> str:
    """Return the mistake that shows in how a function behaves, not in its numbers."""
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
