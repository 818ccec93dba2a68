"""read_overrides: a teacher's decisions about single students, from overrides.csv."""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.csv_files import read_rows
from mha_numpy.teach.classroom.moments import read_moment

OVERRIDES = "overrides.csv"
TIMES = ("deadline", "handed_in")
COLUMNS = ("id", "exercise", "points", *TIMES, "comment")


class Override(NamedTuple):
    """One decision: a row of the file."""

    student: str
    exercise: str = ""  # "": the whole assignment
    points: float | None = None
    deadline: datetime | None = None
    handed_in: datetime | None = None
    comment: str = ""
    line: int = 0


def read_overrides(folder: Path | str, assignment: Assignment) -> list[Override]:
    r"""Read the decisions about an assignment, none if its folder has no such file.

    Each row has an id and a decision: points of an exercise, or of the whole assignment where
    `exercise` is empty; the student's own deadline; when the work was handed in, if no
    platform recorded it; a comment, which the student reads. Columns may be missing.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> hw = Assignment("hw", "", {"rope": 10}, {})
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / OVERRIDES
    ...     _ = path.write_text("id,exercise,points,comment\nada,rope,8,as we discussed\n")
    ...     (one,) = read_overrides(folder, hw)
    >>> one.student, one.exercise, one.points, one.comment
    ('ada', 'rope', 8.0, 'as we discussed')
    """
    path = Path(folder) / OVERRIDES
    if not path.exists():
        return []
    rows = read_rows(path, "overrides")
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    unknown = [name for name in header if name and name not in COLUMNS]
    if "id" not in header or unknown or len(set(header)) < len(header):
        raise ConfigError(
            f"overrides: expected the columns {', '.join(COLUMNS)} in the first line of {path}, "
            f"each at most once; it has {', '.join(header) or 'nothing'}"
        )
    found: list[Override] = []
    decided: dict[tuple[str, str, str], int] = {}  # in which line
    for line, row in rows[1:]:
        cells = dict(zip(header, row, strict=False))
        if len(row) > len(header) and any(row[len(header) :]):
            raise ConfigError(
                f"overrides: expected {len(header)} cells; {path}, line {line} has {len(row)}; "
                "put quotes around a comment with a comma in it"
            )
        one = _override(cells, line, f"{path}, line {line}", assignment)
        found.append(one)
        for name in ("points", *TIMES):
            if getattr(one, name) is None:
                continue
            before = decided.setdefault((one.student, one.exercise, name), line)
            if before != line:
                whose = " and ".join(filter(None, (one.student, one.exercise)))
                raise ConfigError(
                    f"overrides: column {name}: expected one row for {whose}; {path} has lines "
                    f"{before} and {line}; delete one"
                )
    return found


def _override(cells: dict[str, str], line: int, where: str, assignment: Assignment) -> Override:
    student, exercise = cells["id"], cells.get("exercise", "")
    if not student:
        raise ConfigError(f"overrides: column id: expected an id; {where} has none")
    roster = assignment.roster
    if roster is not None and student not in roster:
        advice = did_you_mean(student, roster) or "the ids are in roster.csv"
        raise ConfigError(
            f"overrides: column id: expected a student of the roster; {where} has {student!r}; "
            f"{advice}"
        )
    if exercise and exercise not in assignment.exercises:
        advice = did_you_mean(exercise, assignment.exercises)
        known = ", ".join(assignment.exercises)
        raise ConfigError(
            f"overrides: column exercise: expected one of {known}, or nothing for all of them; "
            f"{where} has {exercise!r}{'; ' * bool(advice)}{advice}"
        )
    times = {
        name: read_moment(cells[name], f"overrides: column {name}: {where}")
        for name in TIMES
        if cells.get(name)
    }
    points = _points(cells.get("points", ""), exercise, where, assignment)
    comment = " ".join(cells.get("comment", "").split())
    if exercise and times:
        raise ConfigError(
            f"overrides: column {next(iter(times))}: expected it in a row without an exercise, as "
            f"it is about the whole assignment; {where} has {exercise!r}"
        )
    if points is None and not times and not comment:
        raise ConfigError(
            f"overrides: expected points, deadline, handed_in or a comment; {where} has none"
        )
    return Override(student, exercise, points, **times, comment=comment, line=line)


def _points(text: str, exercise: str, where: str, assignment: Assignment) -> float | None:
    if not text:
        return None
    most = assignment.exercises[exercise] if exercise else assignment.total
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        points = -1.0
    if not 0 <= points <= most:
        of = f"of {exercise}" if exercise else "of the whole assignment"
        raise ConfigError(
            f"overrides: column points: expected a number from 0 to {most:g}, the points {of}; "
            f"{where} has {text!r}"
        )
    return points
