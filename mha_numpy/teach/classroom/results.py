"""What came of grading: of a function, of a student, of a class; and the files that hold it."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.tables import Table
from mha_numpy.teach.classroom.alike import Pair
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.exercises.child.limits import Limits


@dataclass
class Function:
    """What came of one function; its texts may be shown to the student."""

    exercise: str
    points: float
    out_of: float
    state: str  # "right", "follows", "wrong", "failed", "not written" or "not there"
    groups: dict[str, bool] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    cause: str = ""
    mistakes: list[str] = field(default_factory=list)  # names of the bank
    hint: str = ""
    file: str = ""
    seconds: float = 0.0


@dataclass
class Result:
    """What came of one student's work."""

    student: str
    name: str
    is_late: bool
    is_isolated: bool
    key: str
    trouble: list[str]
    functions: list[Function]
    fingerprint: list[int] = field(default_factory=list)  # see `alike`

    @property
    def points(self) -> float:
        """All points."""
        return round(sum(function.points for function in self.functions), 2)

    @property
    def out_of(self) -> float:
        """The points of work that is all right."""
        return round(sum(function.out_of for function in self.functions), 2)


class Task(NamedTuple):
    """All that is needed to grade one student, anywhere."""

    student: str
    name: str
    is_late: bool
    trouble: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]  # the newest last
    assignment: Assignment
    limits: Limits
    is_isolated: bool
    key: str

    def result(
        self, functions: list[Function], *more: str, fingerprint: Sequence[int] = ()
    ) -> Result:
        """Return what came of it, with more that is to be looked at."""
        return Result(
            self.student, self.name, self.is_late, self.is_isolated, self.key,
            [*self.trouble, *more], functions, list(fingerprint),
        )  # fmt: skip


class Grades(NamedTuple):
    """What came of a class."""

    assignment: Assignment
    results: list[Result]  # in the order of the ids
    alike: list[Pair]
    graded: int  # that had not been graded before

    @property
    def functions(self) -> dict[str, list[Function]]:
        """All students' functions, by exercise."""
        found: dict[str, list[Function]] = {name: [] for name in self.assignment.exercises}
        for result in self.results:
            for function in result.functions:
                found[function.exercise].append(function)
        return found

    def table(self) -> Table:
        """Return how each exercise went, for a terminal."""
        rows = []
        for name, functions in self.functions.items():
            right = sum(function.state == "right" for function in functions)
            mean = sum(function.points for function in functions) / len(functions)
            causes = Counter(mistake for function in functions for mistake in function.mistakes)
            most = "".join(f"{cause} ({count})" for cause, count in causes.most_common(1))
            out_of = self.assignment.exercises[name]
            rows.append([name, f"{right} of {len(functions)}", f"{mean:.1f} of {out_of:g}", most])
        columns = ["exercise", "right", "mean", "most frequent mistake"]
        return Table(self.assignment.title, columns, rows)


def given_up(task: Task) -> Result:
    """Return the result of a task that has ended its process more than once."""
    points = task.assignment.exercises
    functions = [Function(name, 0.0, out_of, "failed") for name, out_of in points.items()]
    return task.result(functions, "grading ended early: please look at it yourself")


def path_of(out: Path, student: str) -> Path:
    """Return where a student's result is kept."""
    return out / "by_student" / f"{file_name(student)}.json"


def file_name(student: str) -> str:
    """Return a file name for an id, whatever is in it.

    Examples
    --------
    >>> file_name("ada"), file_name("../x")
    ('ada', '_x-d6b96a97')
    """
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in student)[:100]
    if plain == student and not plain.startswith("."):
        return plain
    return f"{plain.lstrip('.')}-{hashlib.sha256(student.encode(errors='replace')).hexdigest()[:8]}"


def read_result(path: Path) -> Result | None:
    """Return a result that was written before; None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        functions = [Function(**function) for function in found.pop("functions")]
        return Result(functions=functions, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file as a whole: whoever is stopped in between leaves the former one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text + "\n" * (not text.endswith("\n")), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"out: cannot write {path}: {error.strerror}") from error
