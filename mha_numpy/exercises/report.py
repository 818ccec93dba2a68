"""The exercises and their checks on the command line."""

from pathlib import Path

from mha_numpy.exercises.catalogue import EXERCISES
from mha_numpy.exercises.folder import RECORD, exercises_in, judge_file
from mha_numpy.exercises.records import Record, Records
from mha_numpy.exercises.runner import Limits
from mha_numpy.exercises.sandbox import LIMITS
from mha_numpy.exercises.verdict import Verdict
from mha_numpy.progress import progress
from mha_numpy.tables import Table, show


def overview(folder: Path) -> Table:
    """Return all exercises, with what the record of a folder says about each."""
    records = Records(folder / RECORD)
    done = sum(records[exercise.id].passed for exercise in EXERCISES)
    rows = [
        [
            _state(records[e.id]), e.id, e.title, str(e.difficulty), str(e.minutes),
            ", ".join(e.needs),
        ]
        for e in EXERCISES
    ]  # fmt: skip
    title = f"{len(EXERCISES)} exercises, {done} of them done" if done else (
        f"{len(EXERCISES)} exercises; mha-numpy exercises start DIR writes them into a folder"
    )  # fmt: skip
    return Table(title, ["", "id", "title", "difficulty", "minutes", "after"], rows)


def _state(record: Record) -> str:
    """Return what was done for an exercise, in two words."""
    if record.passed:
        return "done"
    return "tried" if record.checks else ""


def check_one(folder: Path, exercise_id: str, limits: Limits = LIMITS) -> int:
    """Judge one exercise, print all stages, and return 0 if it is right, else 1."""
    verdict = judge_file(folder, exercise_id, limits)
    _print(verdict)
    if not verdict.passed:
        print(f"a hint: mha-numpy hint {folder} {exercise_id}")
    return 0 if verdict.passed else 1


def check_all(folder: Path, limits: Limits = LIMITS) -> int:
    """Judge all exercises of a folder, print a line each, and return 0 if all are right, else 1."""
    found = exercises_in(folder)
    verdicts = [
        judge_file(folder, exercise.id, limits)
        for exercise in progress(found, len(found), "checking")
    ]
    rows = [[_mark(v), v.exercise.id, v.summary] for v in verdicts]
    bad = frozenset(i for i, row in enumerate(rows) if row[0] == "FAIL")
    right = sum(verdict.passed for verdict in verdicts)
    title = f"{right} of {len(verdicts)} right"
    show(Table(title, ["", "exercise", "verdict"], rows, bad))
    first = next((verdict for verdict in verdicts if not verdict.passed), None)
    if first is not None:
        print(f"next: mha-numpy check {folder} {first.exercise.id}")
    return 0 if first is None else 1


def _mark(verdict: Verdict) -> str:
    """Return the mark of a verdict in the list."""
    return "ok" if verdict.passed else "" if verdict.is_unwritten else "FAIL"


def _print(verdict: Verdict) -> None:
    """Print the sections of a verdict."""
    for section in verdict.sections:
        show(section)
    if verdict.difference is not None:
        show(verdict.difference.table())
