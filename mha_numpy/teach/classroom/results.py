"""The results of grading a function, a student and a class, and the files that keep them."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.errors import ConfigError
from mha_numpy.tables import Table
from mha_numpy.teach.classroom.alike import Pair
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.submissions import File
from mha_numpy.teach.exercises.child.limits import Limits

NOTHING = "nothing was handed in"
UNSAFE = "This was run with --unsafe-local: with limits, but not in isolation."
STATES = {
    "right": "right",
    "follows": "right for your own forward, which is wrong",
    "wrong": "not right",
    "failed": "it did not run",
    "not written": "not written yet",
    "not there": "not handed in",
}


@dataclass
class Function:
    """The result of one function; its texts may be shown to the student."""

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
    counted: str = ""  # how many arrays are right, where some are not
    graded: float | None = None  # the grader's points, where a teacher's replace them
    comment: str = ""  # the teacher's
    kind: str = ""  # of the slip, also where no known mistake explains it


@dataclass
class Result:
    """The result of one student's work."""

    student: str
    name: str
    is_late: bool
    is_isolated: bool
    key: str
    trouble: list[str]
    functions: list[Function]
    fingerprint: list[int] = field(default_factory=list)  # see `alike`
    codes: dict[str, str] = field(default_factory=dict)  # what was handed in, by function
    handed_in: str = ""  # in ISO format, as far as it is known
    version: str = ""  # of the assignment
    earlier: list["Result"] = field(default_factory=list)  # of earlier attempts, if one may count
    # the rest is empty until `settle`
    attempt: str = ""  # which one counts
    total: float | None = None  # all points, if the teacher has decided
    comments: list[str] = field(default_factory=list)  # the teacher's, on the whole work
    extended: str = ""  # the deadline of this student, if it is another one
    days_late: int = 0  # that have begun
    percent_off: float = 0.0
    unclear: str = ""  # for the teacher

    @property
    def earned(self) -> float:
        """The sum of the points of all functions."""
        return round(sum(function.points for function in self.functions), 2)

    @property
    def points(self) -> float:
        """All points."""
        if self.total is not None:
            return self.total
        return round(self.earned * (1 - self.percent_off / 100), 2)

    @property
    def taken_off(self) -> float:
        """The points that are taken off because the work is late."""
        return round(self.earned - self.points, 2) if self.total is None else 0.0

    @property
    def decided(self) -> list[str]:
        """What has the teacher's points: ids of exercises, and "total"."""
        own = [one.exercise for one in self.functions if one.graded is not None]
        return own + ["total"] * (self.total is not None)

    @property
    def told(self) -> list[str]:
        """The teacher's comments."""
        own = [f"{one.exercise}: {one.comment}" for one in self.functions if one.comment]
        return [*self.comments, *own]

    @property
    def is_awaited(self) -> bool:
        """Whether there is no work yet, but an extension, and no points from the teacher."""
        return bool(self.extended) and NOTHING in self.trouble and not self.decided

    @property
    def out_of(self) -> float:
        """The points of a submission without mistakes."""
        return round(sum(function.out_of for function in self.functions), 2)


class Task(NamedTuple):
    """Everything needed to grade one student, anywhere."""

    student: str
    name: str
    is_late: bool
    trouble: tuple[str, ...]
    files: tuple[File, ...]
    assignment: Assignment
    limits: Limits
    is_isolated: bool
    key: str
    handed_in: str = ""

    def result(
        self,
        functions: list[Function],
        *more: str,
        fingerprint: Sequence[int] = (),
        codes: Mapping[str, str] | None = None,
    ) -> Result:
        """Return the result, with more remarks for the teacher."""
        return Result(
            self.student, self.name, self.is_late, self.is_isolated, self.key,
            [*self.trouble, *more], functions, list(fingerprint), dict(codes or {}), self.handed_in,
            self.assignment.version,
        )  # fmt: skip


class Graded(NamedTuple):
    """The results of one exercise in a class."""

    name: str
    out_of: float
    functions: list[Function]  # in the order of the students
    right: int
    mean: float  # of the points


class Grades(NamedTuple):
    """The results of a class."""

    assignment: Assignment
    results: list[Result]  # in the order of the ids
    alike: list[Pair]
    graded: int  # that had not been graded before
    strange: Sequence[str] = ()  # what belongs to no student of the roster

    def exercises(self) -> Iterator[Graded]:
        """Yield how each exercise went."""
        for name, out_of in self.assignment.exercises.items():
            functions = [one for r in self.results for one in r.functions if one.exercise == name]
            right = sum(function.state == "right" for function in functions)
            mean = sum(function.points for function in functions) / max(1, len(functions))
            yield Graded(name, out_of, functions, right, mean)

    def table(self) -> Table:
        """Return how each exercise went, for a terminal."""
        rows = []
        for one in self.exercises():
            causes = Counter(mistake for function in one.functions for mistake in function.mistakes)
            most = "".join(f"{cause} ({count})" for cause, count in causes.most_common(1))
            right = f"{one.right} of {len(one.functions)}"
            rows.append([one.name, right, f"{one.mean:.1f} of {one.out_of:g}", most])
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
    """Return a file name for any id.

    Examples
    --------
    >>> file_name("ada"), file_name("../x")
    ('ada', '_x-d6b96a97')
    """
    letters = "".join(c if c.isalnum() or c in "-_." else "_" for c in student)
    plain = letters.encode()[:100].decode(errors="ignore")  # file systems count bytes
    if plain == student and not plain.startswith("."):
        return plain
    return f"{plain.lstrip('.')}-{hashlib.sha256(student.encode(errors='replace')).hexdigest()[:8]}"


def read_result(path: Path) -> Result | None:
    """Return a result that was written before; None if there is none, or it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return _as_result(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _as_result(found: dict[str, Any]) -> Result:
    functions = [Function(**function) for function in found.pop("functions")]
    earlier = [_as_result(one) for one in found.pop("earlier")]
    return Result(functions=functions, earlier=earlier, **found)


def write_atomically(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file as a whole: a process that is stopped halfway leaves the old one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text + "\n" * (not text.endswith("\n")), encoding=encoding)
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"out: cannot write {path}: {error.strerror}") from error
