"""A student's progress: checks, hints and right answers, in memory or in a file."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.hints import COUNT, Hint, give_hint
from mha_numpy.teach.exercises.verdict import Verdict

ON_MISTAKES = 3  # the first hint that is about the student's own mistake
FIRST = (
    "check your answer again to get this hint, or write --force to get it now "
    "(in Python, force=True)"
)


@dataclass
class Record:
    """The progress on one exercise."""

    passed: bool = False  # at the last check
    checks: int = 0
    hints: int = 0
    mistakes: list[str] = field(default_factory=list)  # the likely cause at the last check
    is_tried: bool = False  # checked since the last hint

    @property
    def state(self) -> str:
        """The progress in one word."""
        return "done" if self.passed else "tried" if self.checks else ""


class Records:
    """The record of every exercise, by id; saved in a JSON file if there is a path."""

    def __init__(self, path: Path | None = None):
        self.path = path
        self._records: dict[str, Record] = {}
        self._load()

    def __getitem__(self, exercise_id: str) -> Record:
        return self._records.setdefault(exercise_id, Record())

    def _load(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self._records = {name: Record(**record) for name, record in found.items()}
            is_record = all(map(_is_record, self._records.values()))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            is_record = False
        if not is_record:
            raise ConfigError(
                f"{self.path}: expected the record of a student's progress; delete it to start over"
            )

    def note(self, verdict: Verdict) -> None:
        """Note a check.

        Checking a stub is no attempt. Checking the museum's code is one, even unchanged.
        """
        if verdict.is_unwritten and verdict.exercise.kind != "museum":
            return
        self._load()  # another check may have written since
        record = self[verdict.exercise.id]
        record.is_tried = True
        if not verdict.is_unwritten:
            mistakes = sorted(verdict.mistakes)
            if mistakes != record.mistakes:
                record.hints = min(record.hints, ON_MISTAKES - 1)  # there is something new to say
            record.passed, record.checks = verdict.passed, record.checks + 1
            record.mistakes = mistakes
        self._save()

    def give_hint(
        self, exercise: Exercise, number: int | None = None, *, force: bool = False
    ) -> Hint:
        """Return a hint, by default the next, and note it; or say what to do first.

        Each hint after the first needs a check since the last hint, unless `force`.
        """
        record = self[exercise.id]
        number = min(record.hints + 1, COUNT) if number is None else number
        found = give_hint(exercise, number, record.mistakes)
        if number <= record.hints:
            return found
        if number > 1 and not (record.is_tried or force):
            return replace(found, text=FIRST, difference=None, is_given=False)
        record.hints, record.is_tried = number, False
        self._save()
        return found

    def _save(self) -> None:
        """Write the whole file again; an interruption leaves the old one."""
        if self.path is None:
            return
        records = {name: asdict(record) for name, record in self._records.items()}
        text = json.dumps(records, indent=1)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            new.write_text(text + "\n", encoding="utf-8")
            new.replace(self.path)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from error


def _is_record(record: Record) -> bool:
    counts = (record.checks, record.hints)
    return (
        all(isinstance(flag, bool) for flag in (record.passed, record.is_tried))
        and all(isinstance(count, int) and count >= 0 for count in counts)
        and isinstance(record.mistakes, list)
        and all(isinstance(name, str) for name in record.mistakes)
    )
