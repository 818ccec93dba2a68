"""The exercises and their checks on the command line."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mha_numpy.errors import ConfigError
from mha_numpy.progress import QUIET, progress
from mha_numpy.tables import Table, show
from mha_numpy.teach.exercises.catalogue import EXERCISES
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.folder import RECORD, exercises_in, judge_file
from mha_numpy.teach.exercises.records import Records
from mha_numpy.teach.exercises.sandbox import LIMITS
from mha_numpy.teach.exercises.verdict import Verdict

PERIOD = 0.25  # seconds between two looks


def overview(folder: Path) -> Table:
    """Return all exercises, with the progress recorded in a folder."""
    records = Records(folder / RECORD)
    done = sum(records[exercise.id].passed for exercise in EXERCISES)
    rows = [
        [records[e.id].state, e.id, e.title, str(e.difficulty), str(e.minutes), ", ".join(e.needs)]
        for e in EXERCISES
    ]
    title = f"{len(EXERCISES)} exercises, {done} of them done" if done else (
        f"{len(EXERCISES)} exercises; mha-numpy exercises start DIR writes them into a folder"
    )  # fmt: skip
    return Table(title, ["", "id", "title", "difficulty", "minutes", "after"], rows)


def check_files(
    folder: Path,
    exercise_id: str | None = None,
    limits: Limits = LIMITS,
    *,
    strict: bool = False,
    as_json: bool = False,
) -> int:
    """Judge one exercise or all, print the verdicts, and return 0 if all are right, else 1."""
    if exercise_id is None:
        found = [exercise.id for exercise in exercises_in(folder)]
        ids: Iterator[str] = progress(found, len(found), "checking")
    else:
        ids = iter([exercise_id])
    quiet = QUIET.set(as_json or exercise_id is None)
    try:
        verdicts = [judge_file(folder, each, limits, strict=strict) for each in ids]
    finally:
        QUIET.reset(quiet)
    if as_json:
        print(json.dumps([verdict.as_dict() for verdict in verdicts], indent=1))
    elif exercise_id is None:
        _print_list(folder, verdicts)
    else:
        _print_one(folder, verdicts[0])
    return 0 if all(verdicts) else 1


def _print_list(folder: Path, verdicts: list[Verdict]) -> None:
    marks = ["ok" if v.passed else "" if v.is_unwritten else "FAIL" for v in verdicts]
    rows = [[mark, v.exercise.id, v.summary] for mark, v in zip(marks, verdicts, strict=True)]
    bad = frozenset(number for number, mark in enumerate(marks) if mark == "FAIL")
    right = sum(verdict.passed for verdict in verdicts)
    title = f"{right} of {len(verdicts)} right"
    show(Table(title, ["", "exercise", "verdict"], rows, bad))
    waiting = sorted((v for v in verdicts if not v.passed), key=lambda v: v.is_unwritten)
    if waiting:  # what is begun comes first
        print(f"next: mha-numpy check {folder} {waiting[0].exercise.id}")


def _print_one(folder: Path, verdict: Verdict) -> None:
    for section in verdict.sections:
        show(section)
    if verdict.difference is not None:
        show(verdict.difference.table())
    if not verdict.passed and verdict.exercise.hints.where:
        print(f"a hint: mha-numpy hint {folder} {verdict.exercise.id}")
    if not verdict.passed:
        return
    records = Records(folder / RECORD)
    left = (exercise.id for exercise in exercises_in(folder) if not records[exercise.id].passed)
    following = next(left, None)
    if following is not None:
        print(f"next: mha-numpy check {folder} {following}")


class Watch:
    """Watches the Python files of a folder, from now on."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._states = self._look()

    def __iter__(self) -> Iterator[list[Path]]:
        """Yield, again and again, the files that were saved since the last time; Ctrl-C ends it."""
        while True:
            time.sleep(PERIOD)
            before, self._states = self._states, self._look()
            changed = [path for path, state in self._states.items() if before.get(path) != state]
            if changed:
                yield changed

    def _look(self) -> dict[Path, tuple[int, int]]:
        if not self.folder.is_dir():
            raise ConfigError(f"folder: there is no folder {self.folder}")
        states = {}
        for path in sorted(self.folder.glob("*.py")):
            with suppress(OSError):  # an editor is just replacing it
                stat = path.stat()
                states[path] = (stat.st_mtime_ns, stat.st_size)
        return states
