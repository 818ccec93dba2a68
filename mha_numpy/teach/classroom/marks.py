"""Marks: the points of one function, by how many of its arrays are right on the hidden inputs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.checking.differences import differing, largest_of
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis import CONVENTIONS
from mha_numpy.teach.diagnosis.bank import ACCUMULATES, FLOAT32, IGNORE_ALL, IN_PLACE
from mha_numpy.teach.diagnosis.diagnose import NARROW
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.exercises.stages import Evidence, Stage
from mha_numpy.teach.exercises.verdict import Verdict

# percent of a function's points; and, as `slip`, of the values of a wrong array
MARKS: dict[str, float] = {"shape": 10, "values": 80, "robustness": 10, "slip": 40}
FORM = ("shape", "robustness")
GROUPS = {
    "type and dtype": "shape", "shape": "shape", "invariants": "invariants", "values": "values",
    "gradients": "gradients", "finite": "robustness", "inputs left alone": "robustness",
    "the same twice": "robustness", "memory": "robustness",
}  # fmt: skip
WITHIN = ("invariants", "gradients")  # questions about values, which right values answer
RULES = (
    "Your function is called with several hidden inputs, and each array that it returns is "
    "compared with the right one. You earn the share of arrays that are right. Sometimes the right "
    "array is all zeros, constant, or a copy of an input. You earn nothing for returning it, but a "
    "wrong array in its place still counts against you. Of what you earn, {values:g}% is for the "
    "numbers, {shape:g}% for types and shapes, and {robustness:g}% for robustness. So a right mask "
    "of type int, or right numbers in float32, lose only the part for types. Numbers that overflow "
    "on large inputs, inputs changed in place, and a second call that returns something else lose "
    "only the part for robustness. If one known mistake explains everything that is wrong, each "
    "wrong array still earns {slip:g}% of its numbers, unless it is zero, constant or a copy of an "
    "input. A question that was not asked costs nothing."
)


class Values(NamedTuple):
    """How many arrays are right, of those that count, over all hidden inputs."""

    right: int
    asked: int
    slips: int = 0  # of the wrong ones: explained by one known mistake
    is_coarse: bool = False  # some are right to the precision of float32 only

    @property
    def are_right(self) -> bool:
        """Whether no array is wrong."""
        return 0 < self.right == self.asked

    @property
    def told(self) -> str:
        """How many of how many, where some are wrong."""
        return f"{self.right} of {self.asked}" if self.right < self.asked else ""


class Pair(NamedTuple):
    """An array of one answer, as floats, next to the right one."""

    name: str
    mine: Array | None
    right: Array
    largest: np.floating[Any]  # of all right arrays of this answer
    inputs: list[Array]
    is_narrow: bool  # in less precision than the right one

    def wrong(self, tolerance: float) -> Array:
        """Return which numbers are wrong; all of them if there is no such array."""
        if self.mine is None or self.mine.shape != self.right.shape:
            return np.ones(self.right.shape, bool)
        return differing(self.mine, self.right, self.largest, tolerance)

    def is_easy(self, array: Array) -> bool:
        """Return whether an array is zero, constant, or an input, perhaps reshaped."""
        flat = np.where(np.abs(array) <= NARROW * self.largest, 0, array).ravel()
        if not flat.any() or (flat.size > 1 and (flat == flat[0]).all()):
            return True
        return flat.size > 1 and any(np.array_equal(array.ravel(), x.ravel()) for x in self.inputs)


def count_values(exercise: Exercise, run: Run, verdict: Verdict) -> Values:
    """Count the arrays that have the right numbers, whatever their dtype; none of tests.

    If the right array is zero, constant or a copy of an input, it counts only where it is wrong. If
    a known mistake breaks only some numbers, by an overflow or 0 / 0, the stage "finite" counts it.
    """
    if verdict.share is not None:
        return Values(0, 0)
    pairs = list(_pairs(Evidence(exercise, run)))
    is_near = not any(pair.wrong(NARROW).any() for pair in pairs)
    has_slip, is_coarse, shows = _is_slip(verdict), False, False
    right = wrong = lost = easy = 0
    named: dict[str, list[bool | None]] = {}  # wrong, but explained: is it easy? None: one number
    for pair in pairs:
        off = pair.wrong(NARROW if is_near or pair.is_narrow else TOLERANCE)
        if not off.any():
            is_easy = pair.is_easy(pair.right)
            right, easy = right + (not is_easy), easy + is_easy
            is_coarse |= bool(pair.wrong(TOLERANCE).any())
            continue
        wrong += 1
        if has_slip and pair.mine is not None:
            is_simple = pair.mine.size == 1 or pair.is_easy(pair.mine)
            named.setdefault(pair.name, []).append(None if pair.right.size == 1 else is_simple)
            is_lost = pair.mine.shape == off.shape and not np.isfinite(pair.mine[off]).all()
            lost += is_lost
            shows |= is_lost and bool(pair.mine[~off].any())  # the rest is right
    slips = sum(len(ones) for ones in named.values() if False in ones or True not in ones)
    if lost == wrong and (right or shows):
        right, wrong, slips = right + lost, 0, 0
    if not right + wrong:
        right = easy  # nothing else was asked
    return Values(right, right + wrong, slips, is_coarse)


def _pairs(evidence: Evidence) -> Iterator[Pair]:
    """Yield each array that was expected, over all inputs."""
    answered = zip(evidence.probes, evidence.answers, evidence.expected, strict=True)
    for probe, answer, expected in answered:
        found = [_as_array(leaf) for leaf in leaves(probe).values()]
        inputs = [array.astype(float) for array in found if array is not None]
        mine = {name: _as_array(leaf) for name, leaf, _ in matched(answer, expected)}
        wanted = {name: np.asarray(leaf) for name, leaf, _ in matched(expected, expected)}
        largest = max(largest_of(array.astype(float)) for array in wanted.values())
        for name, right in wanted.items():
            one = mine.get(name)
            is_narrow = one is not None and one.dtype.kind == "f" and one.itemsize < right.itemsize
            floats = None if one is None else one.astype(float)
            yield Pair(name, floats, right.astype(float), largest, inputs, is_narrow)


def _as_array(leaf: Any) -> Array | None:
    """Return numbers or bools as an array; None for anything else."""
    try:
        array = np.asarray(leaf)
    except ValueError:  # rows of several lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _is_slip(verdict: Verdict) -> bool:
    """Return whether one known mistake explains the numbers; a convention not followed is none."""
    names = verdict.mistakes - {ACCUMULATES, FLOAT32, IN_PLACE, IGNORE_ALL.name}
    followed = {convention.ignored for convention in CONVENTIONS.values()}
    return len(names) == 1 and verdict.edit is None and names.isdisjoint(followed)


def groups_of(stages: Iterable[Stage], values: Values) -> dict[str, bool]:
    """Return which groups of questions a function has passed, without those that were not asked.

    Values are also asked where they come in the wrong dtype. Right values answer the questions
    about invariants and gradients too.

    Examples
    --------
    >>> stages = [Stage("runs", True, ""), Stage("shape", True, ""), Stage("gradients", None, "")]
    >>> groups_of(stages, Values(2, 3))
    {'shape': True, 'values': False}
    """
    asked: dict[str, list[bool]] = {}
    for stage in stages:
        if stage.name in GROUPS and stage.passed is not None:
            asked.setdefault(GROUPS[stage.name], []).append(stage.passed)
        elif stage.name == "runs" and not stage.passed and values.are_right:
            asked["robustness"] = [False]  # a second call, or one on a changed input, failed
    if asked and values.asked:
        asked["values"] = [values.are_right]
    asked.setdefault("shape", []).extend([False] * values.is_coarse)
    if values.are_right:
        asked |= {group: [True] for group in WITHIN if group in asked}
    order = dict.fromkeys(GROUPS.values())
    return {group: all(asked[group]) for group in order if asked.get(group)}


def points_of(
    values: Values, groups: Mapping[str, bool], out_of: float, marks: Mapping[str, float]
) -> float:
    """Return the points of a function, to two decimals.

    Parameters
    ----------
    values : Values
        Of `count_values`.
    groups : {group: bool}
        Of `groups_of`.
    out_of : float
        The points of a right function.
    marks : {group: number}
        The percent of each group, and `slip`.

    Returns
    -------
    float

    Examples
    --------
    >>> points_of(Values(2, 3), {"shape": True, "values": False}, 12, MARKS)
    8.0
    >>> points_of(Values(0, 3, slips=3), {"shape": True, "values": False}, 12, MARKS)
    3.84
    """
    if not values.asked:
        return 0.0
    marks = read_marks(marks)
    form = sum(marks[group] for group in FORM if groups.get(group, True))
    earned = values.right * (marks["values"] + form)
    earned += values.slips * marks["values"] * marks["slip"] / 100
    return round(out_of * earned / (100 * values.asked), 2)


def read_marks(marks: Mapping[str, float]) -> dict[str, float]:
    """Return the marks of a table; an older one lists parts of the values, and has no slip.

    No marks at all are the usual ones.

    Examples
    --------
    >>> read_marks({"shape": 10, "invariants": 20, "values": 40, "gradients": 20, "robustness": 10})
    {'shape': 10, 'values': 80, 'robustness': 10, 'slip': 40}
    """
    found = {**(marks or MARKS)}
    found.setdefault("slip", MARKS["slip"])
    more = sum(found.pop(name, 0) for name in WITHIN)
    return found | ({"values": found["values"] + more} if "values" in found else {})


def rules(marks: Mapping[str, float]) -> str:
    """Return how points are given, as a paragraph for students.

    Examples
    --------
    >>> rules(MARKS)[-44:]
    'A question that was not asked costs nothing.'
    """
    return RULES.format(**read_marks(marks))
