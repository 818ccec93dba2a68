"""What a student has done so far: checks, hints, what is right; in memory, or in a file."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mha_numpy.errors import ConfigError
from mha_numpy.exercises.verdict import Verdict

ON_MISTAKES = 3  # the first hint that is about the student's own mistake


@dataclass
class Record:
    """What was done for one exercise."""

    passed: bool = False  # at the last check
    checks: int = 0
    hints: int = 0
    mistakes: list[str] = field(default_factory=list)  # the likely cause at the last check


class Records:
    """The record of every exercise, by id; kept in a JSON file if there is a path.

    Examples
    --------
    >>> Records()["softmax"]
    Record(passed=False, checks=0, hints=0, mistakes=[])
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self._records: dict[str, Record] = {}
        self._load()

    def __getitem__(self, exercise_id: str) -> Record:
        return self._records.setdefault(exercise_id, Record())

    def _load(self) -> None:
        """Read the file, if there is one."""
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
                f"{self.path}: expected the record of a student's progress; remove it to begin anew"
            )

    def note(self, verdict: Verdict) -> None:
        """Note a check."""
        if verdict.is_unwritten:
            return
        self._load()  # another check may have written since
        record, mistakes = self[verdict.exercise.id], sorted(verdict.mistakes)
        if mistakes != record.mistakes:
            record.hints = min(record.hints, ON_MISTAKES - 1)  # there is something new to say
        record.passed, record.checks = verdict.passed, record.checks + 1
        record.mistakes = mistakes
        self._save()

    def next_hint(self, exercise_id: str, most: int) -> int:
        """Note that a hint is given, and return its number: 1, 2, ... and then the last again."""
        record = self[exercise_id]
        record.hints = min(record.hints + 1, most)
        self._save()
        return record.hints

    def _save(self) -> None:
        """Write the file anew, as a whole: a stop in between leaves the former one."""
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
    """Return whether a record that was read holds what it should."""
    counts = (record.checks, record.hints)
    return (
        isinstance(record.passed, bool)
        and all(isinstance(count, int) and count >= 0 for count in counts)
        and isinstance(record.mistakes, list)
        and all(isinstance(name, str) for name in record.mistakes)
    )
