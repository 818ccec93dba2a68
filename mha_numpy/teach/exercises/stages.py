"""The stages of a check, in order: from "does it run" to numerical differentiation."""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import product, starmap
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking import ComparedArray, Comparison, agrees, compare, gradcheck
from mha_numpy.checking.compare import matched
from mha_numpy.checking.differences import largest_of, two_numbers
from mha_numpy.checking.trees import children, leaves, replaced
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis import find_task, right_answers
from mha_numpy.teach.diagnosis.clues import listed, rows_of_all, shared_by
from mha_numpy.teach.diagnosis.fingerprints import TOLERANCE
from mha_numpy.teach.diagnosis.search import holds_numbers
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.sandbox import Run
from mha_numpy.teach.task import Arrays, Reaction

KINDS = ("unwritten", "type", "shape", "finite", "values", "")  # of trouble, as they are met
UNWRITTEN = "not written yet"
NO_RETURN = f"{UNWRITTEN}, or its `return` is missing"
MISSED = 1e-9  # of the largest number: what a law may be off by rounding


class Stage(NamedTuple):
    """One question about the answers."""

    name: str
    passed: bool | None  # None: not asked, or not of all answers
    finding: str
    probe: int | None = None  # on which it fails; None where that is not to be said


class Evidence:
    """A function's results for every probe, next to the expected ones."""

    def __init__(self, exercise: Exercise, run: Run):
        self.exercise, self.run, self.piece = exercise, run, find_task(exercise.task)
        self.probes = self.piece.probes()
        self.expected = right_answers(exercise.task)
        twice, count = run.calls[: 2 * len(self.probes)], len(self.probes)
        self.first, self.second = twice[::2], twice[1::2]
        self.reacted = run.calls[2 * count :]
        self.name = self.piece.result or "result"

    @cached_property
    def comparisons(self) -> list[Comparison | None]:
        """Every probe's answer next to the expected one; None where it failed."""
        return [
            None
            if self._is_lost(call)
            else compare(call.answer, expected, name=self.name, tolerance=TOLERANCE)
            for call, expected in zip(self.first, self.expected, strict=False)
        ]

    @property
    def answers(self) -> list[Any]:
        """The answer to every probe, None where there is none."""
        found = [None if self._is_lost(call) else call.answer for call in self.first]
        return found + [None] * (len(self.probes) - len(found))

    def reordered(self, order: dict[str, str]) -> "Evidence":
        """Return the evidence with each array in its right place, by the names in `order`."""
        calls = list(self.run.calls)
        for number, call in enumerate(self.first):
            if not self._is_lost(call):
                expected = self.expected[number]
                mine = {order[name]: one for name, one, _ in matched(call.answer, expected)}
                calls[2 * number] = call._replace(answer=replaced(expected, mine))
        return Evidence(self.exercise, self.run._replace(calls=calls))

    def _is_lost(self, call: Call) -> bool:
        """Return whether there is nothing to compare."""
        return bool(call.error) or self.lacks_names(call)

    def lacks_names(self, call: Call) -> bool:
        """Return whether the answer is a row of numbers although a dict is expected."""
        return isinstance(self.expected[0], dict) and isinstance(call.answer, (list, tuple))

    @property
    def is_unwritten(self) -> bool:
        """Whether the function is still a stub."""
        rows = [row for _, row in self.rows]
        return bool(rows) and all(row.trouble == "unwritten" for row in rows)

    @property
    def rows(self) -> Iterator[tuple[int, ComparedArray]]:
        """Yield the comparison of each array of each answer, with the number of its probe."""
        for number, compared in enumerate(self.comparisons):
            for row in () if compared is None else compared.rows:
                yield number, row

    def placed(self, stage: Stage) -> Stage:
        """Return a stage whose finding names the input on which it fails, if there are several."""
        if stage.probe is None or len(self.probes) == 1:
            return stage
        return stage._replace(finding=f"{stage.finding} (input {stage.probe + 1})")

    @property
    def names(self) -> list[str]:
        """The names of an answer's arrays."""
        return [name for name, _, _ in matched(self.expected[0], self.expected[0], self.name)]

    def places(self, arrays: dict[str, list[int]]) -> str:
        """Return names of arrays as a list, each with its inputs unless these are all."""
        found = []
        for name, probes in arrays.items():
            inputs = f" (input{'s' * (len(probes) > 1)} {listed([str(n + 1) for n in probes])})"
            found.append(name + inputs * (len(probes) < len(self.probes)))
        return listed(found)

    @cached_property
    def arrays(self) -> list[Arrays | None]:
        """The arrays of every probe's answer, by the expected names; None if a shape is wrong."""
        pairs = zip(self.first, self.comparisons, self.expected, strict=False)
        return [_by_name(call, compared, expected) for call, compared, expected in pairs]

    @property
    def reactions(self) -> Iterator[tuple[Reaction, Arrays | None]]:
        """Yield each reaction, and the answer to the first probe after its change."""
        for reaction, call in zip(self.piece.reactions, self.reacted, strict=False):
            compared = compare(call.answer, self.expected[0], tolerance=TOLERANCE)
            yield reaction, _by_name(call, compared, self.expected[0], ("", "values", "finite"))


def _by_name(
    call: Call,
    compared: Comparison | None,
    expected: Any,
    troubles: tuple[str, ...] = ("", "values"),
) -> Arrays | None:
    """Return the arrays of an answer by the expected names, if all can be compared."""
    rows = () if call.error or compared is None else compared.rows
    if not rows or any(row.trouble not in troubles for row in rows):
        return None
    names, found = leaves(expected), matched(call.answer, expected)
    return {name: np.asarray(mine) for name, (_, mine, _) in zip(names, found, strict=True)}


def examine(evidence: Evidence) -> list[Stage]:
    """Return all stages of a check, in order."""
    answers = ((name, question(evidence)) for name, question in STAGES.items())
    stages = [Stage(name, *answer) for name, answer in answers if answer is not None]
    return [evidence.placed(stage) for stage in stages]


# passed, finding, probe as in a Stage; or None: there is no such question here
Answer = tuple[bool | None, str] | tuple[bool, str, int] | None


def _runs(evidence: Evidence) -> Answer:
    if evidence.is_unwritten:
        is_none = any(call.answer is None for call in evidence.first)
        return False, NO_RETURN if is_none else UNWRITTEN
    for number, call in enumerate(evidence.first):
        if call.error:
            return False, call.error + _arguments(evidence, call.error), number
    if evidence.run.ended:
        return False, evidence.run.ended
    errors = [call.error for call in (*evidence.second, *evidence.reacted) if call.error]
    if errors:
        return False, f"a second call, or one on a changed input, failed: {errors[0]}"
    count = len(evidence.probes)
    return True, f"on {count} inputs" if count > 1 else "on 1 input"


def _arguments(evidence: Evidence, error: str) -> str:
    """Return the arguments, if an error is about their number."""
    is_own = f": {evidence.exercise.function_name}() " in error or ": <lambda>() " in error
    if not is_own or "positional argument" not in error:
        return ""
    return f"; it is called with ({', '.join(evidence.probes[0])})"


def _of_kind(kind: str, good: str = "") -> Callable[[Evidence], Answer]:
    """Check for one kind of trouble; arrays with none, or a later kind, get this far."""
    later = KINDS[KINDS.index(kind) + 1 :]

    def question(evidence: Evidence) -> Answer:
        troubles = [(n, row) for n, row in evidence.rows if row.trouble == kind]
        if troubles:
            number, first = troubles[0]
            findings: dict[str, list[str]] = {}
            for row in (row for n, row in troubles if n == number):
                # a wrong type is each array's own; wrong numbers are shown for the first
                finding = row.finding if kind == "type" else first.finding
                findings.setdefault(finding, []).append(row.name)
            more = _broken(evidence, number, first.name) if kind == "finite" else ""
            return False, "; ".join(starmap(_told_of, findings.items())) + more, number
        reached, missed = dict[str, list[int]](), dict[str, list[int]]()
        met = {(row.name, number) for number, row in evidence.rows if row.trouble in later}
        for cell in product(evidence.names, range(len(evidence.probes))):
            (reached if cell in met else missed).setdefault(cell[0], []).append(cell[1])
        if not missed:
            return True, good
        if not reached:
            return None, ""
        if len(missed) < len(reached):
            return None, f"{good or 'yes'}; not checked for {evidence.places(missed)}"
        return None, f"{good or 'yes'}, for {evidence.places(reached)}"

    return question


def _broken(evidence: Evidence, number: int, name: str) -> str:
    """Say how many numbers are wrongly NaN or infinite, and what their places have in common."""
    arrays = matched(evidence.first[number].answer, evidence.expected[number], evidence.name)
    _, mine, right = next(pair for pair in arrays if pair[0] == name)
    cells = ~np.isfinite(mine) & ~np.equal(mine, right)
    rows = cells.ndim > 0 and rows_of_all(cells, evidence.probes[number])
    troubled = {probe for probe, row in evidence.rows if row.trouble == "finite"}
    where = shared_by(evidence.probes, [n in troubled for n in range(len(evidence.probes))])
    which = f", all in {rows}" if rows else f", only where {where}" if where else ""
    return f"; {cells.sum()} {'is' if cells.sum() == 1 else 'are'} NaN or infinite{which}"


def _told_of(finding: str, names: list[str]) -> str:
    first, *also = dict.fromkeys(names)
    more = f" (and {', '.join(also)})" if also else ""
    return f"{first}{more}: {finding}"


def _types(evidence: Evidence) -> Answer:
    unwritten = [(n, row) for n, row in evidence.rows if row.trouble == "unwritten"]
    if unwritten and not evidence.is_unwritten:
        number, row = unwritten[0]
        return False, f"{row.name}: {row.finding}; is a `return` missing?", number
    for number, call in enumerate(evidence.first):
        if evidence.lacks_names(call):
            keys, got = ", ".join(evidence.names), type(call.answer).__name__
            return False, f"expected a dict with keys {keys}; got a {got}", number
    answer = _of_kind("type")(evidence)
    if answer is None or answer[0] is False:
        return answer
    for number, call in enumerate(evidence.first):
        for name, actual, expected in matched(call.answer, evidence.expected[number]):
            mine, theirs = (getattr(array, "dtype", None) for array in (actual, expected))
            if mine and theirs and mine.kind == "f" and mine.itemsize < theirs.itemsize:
                name = name if name != "result" else evidence.name
                return False, f"{name}: expected {theirs}; got {mine}", number
    return answer


def _left_alone(evidence: Evidence) -> Answer:
    calls = [*evidence.first, *evidence.second]
    changed = sorted({name for call in calls for name in call.changed})
    if changed:
        return False, f"{', '.join(changed)}: changed in place; work on a copy"
    return (True, "") if any(not call.error for call in calls) else (None, "")


def _repeats(evidence: Evidence) -> Answer:
    pairs = [
        (number, one.answer, other.answer)
        for number, (one, other) in enumerate(zip(evidence.first, evidence.second, strict=False))
        if not (one.error or other.error) and _is_numbers(one.answer)
    ]
    for number, *answers in pairs:
        one, other = (_by_expected_names(a, evidence.expected[number]) for a in answers)
        if not agrees(other, one, tolerance=TOLERANCE):
            compared = compare(other, one, name=evidence.name, tolerance=TOLERANCE)
            row = next(row for row in compared.rows if not row.passed)
            found = row.finding.replace("expected", "at first")
            return False, f"{row.name} in the second call: {found}", number
    return (True, "") if pairs else (None, "")


def _is_numbers(answer: Any) -> bool:
    return bool(leaves(answer)) and holds_numbers(answer)


def _by_expected_names(answer: Any, expected: Any) -> Any:
    """Return an answer with its numbers as arrays; a plain tuple gets the expected names."""
    answer = replaced(answer, {name: np.asarray(leaf) for name, leaf in leaves(answer).items()})
    is_plain = isinstance(answer, (tuple, list)) and len(answer) == len(children(expected) or ())
    return dict(zip(children(expected) or (), answer, strict=True)) if is_plain else answer


def _holds(evidence: Evidence) -> Answer:
    """Check the rules that every right answer obeys, without the right numbers."""
    piece, answers = evidence.piece, evidence.arrays
    if not piece.laws and not piece.reactions:
        return None
    for law in piece.laws:
        for number, arrays in enumerate(answers):
            if arrays is None:
                continue
            missed = _missed(law.residual(evidence.probes[number], arrays), arrays)
            if missed:
                return False, f"{law.statement}: {missed}", number
    reactions, before = list(evidence.reactions), answers[0] if answers else None
    for reaction, after in reactions:
        if before is None or after is None:
            continue
        probe = evidence.probes[0]
        missed = _missed(reaction.unmoved(probe, after) - reaction.unmoved(probe, before), before)
        if missed:
            return False, f"{reaction.statement}: {missed}", 0
    asked = [*answers, *(after for _, after in reactions)]
    if not asked or any(arrays is None for arrays in asked):
        return None, ""
    statements = [law.statement for law in piece.laws]
    statements += [reaction.statement for reaction in piece.reactions]
    return True, "; ".join(statements)


def _missed(off: Array, arrays: Arrays) -> str:
    """Say where and by how much a law is broken most, if it is; for a mask, the cell's value."""
    floats = [array for array in arrays.values() if array.dtype != bool]
    largest = max([1.0, *(float(largest_of(array)) for array in floats)])
    if off.size == 0 or np.abs(off).max() <= MISSED * largest:
        return ""
    worst = np.unravel_index(np.abs(off).argmax(), off.shape)
    at = [int(i) for i in worst]
    if not floats:  # the law says by how much a cell is larger than it should be, 1 or -1
        return f"{at} is {off[worst] > 0} and should be {off[worst] < 0}"
    return f"off by {off[worst]:.4g}" + (f" at {at}" if at else "")


def _differentiates(evidence: Evidence) -> Answer:
    """Compare with numerical differentiation, which uses no backward."""
    slope = evidence.piece.slope
    if slope is None:
        return None
    arrays = evidence.arrays[0] if evidence.arrays else None
    if arrays is None:
        return None, ""
    forward, inputs, d_out = slope(evidence.probes[0])
    gradients = iter(arrays.values())
    backward = {f"d_{name}": _like(value, gradients) for name, value in inputs.items()}
    report = gradcheck(
        forward, lambda *_, **__: backward, inputs, d_out=d_out,
        max_full=0, samples=12, directions=4,
    )  # fmt: skip
    for row in report.rows:
        if not row.passed:
            is_direction = isinstance(row.worst, str)
            at = "along a random direction" if is_direction else f"at {list(row.worst)}"
            mine, theirs = two_numbers(row.analytic, row.numeric)
            numbers = f"{mine}; numerical differentiation says {theirs}"
            return False, f"d_{row.name} {at}: {numbers}", 0
    return True, f"numerical differentiation agrees to {report.max_error:.0e}"


def _like(value: Any, gradients: Iterator[Array]) -> Any:
    """Take the gradients of an input, one for each of its arrays, from those returned."""
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(next(gradients) for _ in value)
    return next(gradients)


STAGES: dict[str, Callable[[Evidence], Answer]] = {
    "runs": _runs,
    "type and dtype": _types,
    "shape": _of_kind("shape"),
    "finite": _of_kind("finite"),
    "inputs left alone": _left_alone,
    "the same twice": _repeats,
    "invariants": _holds,
    "values": _of_kind("values", "as expected"),
    "gradients": _differentiates,
}
