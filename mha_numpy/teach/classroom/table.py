"""The table of an assignment, a TOML file: read, checked and written; and the secret next to it."""

import json
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.assignment import VARIANTS, Assignment
from mha_numpy.teach.classroom.attempts import ATTEMPTS
from mha_numpy.teach.classroom.gradebooks import FILES
from mha_numpy.teach.classroom.late import NOTHING_OFF, read_late
from mha_numpy.teach.classroom.marks import MARKS, read_marks
from mha_numpy.teach.classroom.moments import end_of
from mha_numpy.teach.classroom.roster import read_roster
from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.exercise import exercise_of
from mha_numpy.teach.load_own import load_own
from mha_numpy.teach.own import Own, read_own, told_of

SECRET_BYTES = 32
TABLE, ROSTER, SECRET = "assignment.toml", "roster.csv", "secret"
OWN = "exercises"  # the folder of those that a teacher wrote


def read_assignment(folder: Path | str) -> Assignment:
    """Read an assignment that `make_assignment` wrote, with later changes to its table.

    Parameters
    ----------
    folder : path

    Returns
    -------
    Assignment

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from mha_numpy.teach.classroom import make_assignment
    >>> with TemporaryDirectory() as folder:
    ...     made = make_assignment("hw1-forward", folder)
    ...     read_assignment(folder) == made.assignment
    True
    """
    path = Path(folder) / TABLE
    table = _parsed(path)
    name, title = (_text(table, key, path) for key in ("name", "title"))
    own = _read_own(Path(folder) / OWN)
    exercises = {
        key if key in own else find_exercise(key).id: value
        for key, value in _numbers(table, "points", path).items()
    }
    marks = read_marks(_numbers(table, "marks", path))
    *groups, slip = MARKS
    total = sum(marks.values()) - marks[slip]
    if set(marks) != set(MARKS) or abs(total - 100) > 1e-9 or marks[slip] > 100:
        raise ConfigError(
            f"marks: expected {', '.join(groups)} with the sum 100, and {slip} up to 100; {path} "
            f"has {table['marks']}"
        )
    ids = table.get("handed_out", list(exercises))
    if not exercises or not isinstance(ids, list) or not set(exercises) <= set(ids):
        raise ConfigError(
            f"points: expected exercises that were handed out, {ids}; {path} has {list(exercises)}"
        )
    deadline = table.get("deadline")
    if deadline is not None and not isinstance(deadline, date):
        raise ConfigError(f"deadline: expected 2030-05-31T12:00:00; {path} has {deadline!r}")
    roster = Path(folder) / ROSTER
    students = read_roster(roster) if roster.exists() else None
    secret = read_secret(Path(folder) / _text(table, "secret_file", path))
    when = None if deadline is None else end_of(deadline)
    without = "seeds" if students is None else "conventions"  # as before there was a choice
    variants = table.get("variants", without)
    if variants not in VARIANTS or (variants == "conventions" and students is None):
        known = ", ".join(VARIANTS)
        raise ConfigError(
            f"variants: expected one of {known} (conventions need {ROSTER}); {path} has "
            f"{variants!r}"
        )
    attempts = table.get("attempts", "last")
    if attempts not in ATTEMPTS:
        known = " or ".join(map(repr, ATTEMPTS))
        raise ConfigError(f"attempts: expected {known}; {path} has {attempts!r}")
    late = read_late(_numbers(table, "late", path), path) if "late" in table else NOTHING_OFF
    return Assignment(
        name, title, exercises, marks, when, secret, students, tuple(ids), variants, late, attempts,
        _columns(table, path), own,
    )  # fmt: skip


def _columns(table: dict[str, Any], path: Path) -> dict[str, str]:
    """Return the titles of the columns in gradebooks, by platform."""
    columns = table.get("gradebook", {})
    is_table = isinstance(columns, dict) and set(columns) <= set(FILES)
    if not is_table or not all(isinstance(title, str) and title for title in columns.values()):
        raise ConfigError(
            f"gradebook: expected titles of columns for {', '.join(FILES)}; {path} has {columns!r}"
        )
    return columns


def _read_own(folder: Path) -> dict[str, Own]:
    """Return the exercises that the teacher wrote, by the id, which is also the folder's name."""
    found = {}
    for one in sorted(path for path in folder.glob("*") if path.is_dir()):
        own = read_own(one)
        with told_of(one):
            exercise = exercise_of(load_own(own))
        if exercise.id != one.name:
            raise ConfigError(
                f"from: the function in {one} has been renamed to {exercise.function_name}; make "
                "the assignment again, because students have the old name"
            )
        found[one.name] = own
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"assignment: there is no {path}; `mha-numpy assignment NAME --out {path.parent}` "
            "writes it"
        ) from error
    except OSError as error:
        raise ConfigError(f"assignment: cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"assignment: expected TOML in {path}; {error}") from error


def secret_name(folder: Path) -> str:
    """Return where the secret of an assignment is, as its table says, if there is one."""
    if not (folder / TABLE).exists():
        return SECRET
    return _text(_parsed(folder / TABLE), "secret_file", folder / TABLE)


def read_secret(path: Path) -> bytes:
    """Return the content of a file, without a newline at its end."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"secret-file: cannot read {path}: {error.strerror}") from error
    if len(secret) < SECRET_BYTES // 2:
        raise ConfigError(
            f"secret-file: expected {SECRET_BYTES // 2} bytes or more, drawn at random; {path} "
            f"has {len(secret)}"
        )
    return secret


def as_toml(assignment: Assignment, secret_file: str) -> str:
    """Return the table of an assignment."""
    when = assignment.deadline
    return TOML.format(
        name=_quoted(assignment.name),
        title=_quoted(assignment.title),
        deadline=f"deadline = {when.isoformat()}" if when else "# deadline = 2030-05-31T23:59:00",
        secret_file=_quoted(secret_file),
        variants=_quoted(assignment.variants),
        attempts=_quoted(assignment.attempts),
        handed_out="\n".join(f"    {_quoted(exercise)}," for exercise in assignment.handed_out),
        points="\n".join(
            f"{exercise} = {points:g}" for exercise, points in assignment.exercises.items()
        ),
        marks="\n".join(f"{group} = {share:g}" for group, share in assignment.marks.items()),
        late="\n".join(f"{name} = {x:g}" for name, x in assignment.late._asdict().items()),
    )


TOML = """\
# Written by `mha-numpy assignment`, read by `mha-numpy grade`. You can change title, deadline,
# points, marks, attempts and the late rule at any time. The students' variants depend on the rest.

name = {name}
title = {title}
{deadline}
attempts = {attempts}  # which counts, if a student hands in several times: "last" or "best"
secret_file = {secret_file}
variants = {variants}  # what differs between students: "none", "seeds" or "conventions"
handed_out = [
{handed_out}
]

# An exercise without a line here is not graded.
[points]
{points}

# A function earns its points in the share of its arrays that are right on the hidden inputs. These
# are percent of what it earns: for values, for types and shapes, and for robustness (nothing NaN,
# inputs unchanged, the same result in a second call, no more memory than the task allows).
# `slip` is percent of the values of wrong arrays if one known mistake explains all of them.
[marks]
{marks}

# For each day that has begun since the deadline, late work loses this percent of the points that
# it has earned, and never more than `most` percent. Extensions are in overrides.csv.
[late]
{late}

# The titles of the columns that get the grades, if a gradebook has them already. A new column is
# called like the assignment.
[gradebook]
# canvas = "Homework 1 (1234)"
# moodle = "Homework 1"
# blackboard = "Homework 1 [Total Pts: 100 Score] |1234"
"""


def _quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(table: dict[str, Any], key: str, path: Path) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f'{key}: expected {key} = "..." in {path}; got {value!r}')
    return value


def _numbers(table: dict[str, Any], key: str, path: Path) -> dict[str, float]:
    values = table.get(key)
    if not isinstance(values, dict):
        raise ConfigError(f"{key}: expected a table [{key}] in {path}; got {values!r}")
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise ConfigError(
                f"{key}: expected numbers of 0 or more; {path} has {name} = {value!r}"
            )
    return values
